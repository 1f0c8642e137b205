//! Compiles a plan to programs. Each judges one area of addresses and passes all others on to the next program, so that
//! together they are one filter, in any order. Some of them alone drop nothing that all of them would let pass.

use super::assembler::{Assembler, DROP, Instruction, PASS};
use super::headers::{self, Exits, Judged};
use super::policies::{self, Area, Outcomes};
use super::search::search;
use super::task::{Ends, Target, Task};
use super::{TooMany, exceptions};
use crate::routes::plan::{Family, Plan};

/// Instructions of one program. The kernel accepts 4096, but lists a filter only if it fits a 32 KiB netlink reply.
pub(crate) const MAX_INSTRUCTIONS_PER_PROGRAM: usize = 3500;

/// Programs for one direction of one device.
pub(crate) const MAX_PROGRAMS_PER_PLAN: usize = 256;

/// The programs that enforce a plan; none if they would never drop a packet.
pub(crate) fn programs(plan: &Plan, target: Target) -> Result<Vec<Vec<Instruction>>, TooMany> {
    programs_of(plan, target, MAX_INSTRUCTIONS_PER_PROGRAM)
}

/// The same with programs of at most so many instructions.
pub(super) fn programs_of(
    plan: &Plan,
    target: Target,
    most: usize,
) -> Result<Vec<Vec<Instruction>>, TooMany> {
    let families = [Family::V4, Family::V6].map(|family| Task::new(plan, target, family));
    let tasks: Vec<_> = families.iter().filter(|task| task.ever_drops()).collect();
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let whole: Vec<_> = tasks
        .iter()
        .map(|task| (*task, Area::all(task.family)))
        .collect();
    if let Some(program) = fitting(&whole, most)? {
        return Ok(vec![program]);
    }
    let mut programs = Vec::new();
    for (task, area) in whole {
        split(task, area, most, &mut programs)?;
    }
    Ok(programs)
}

/// Halves the area until each part fits a program.
fn split(
    task: &Task,
    area: Area,
    most: usize,
    programs: &mut Vec<Vec<Instruction>>,
) -> Result<(), TooMany> {
    if !task.within(&area).ever_drops() {
        return Ok(());
    }
    if let Some(program) = fitting(&[(task, area)], most)? {
        programs.push(program);
        return if programs.len() > MAX_PROGRAMS_PER_PLAN {
            Err(TooMany)
        } else {
            Ok(())
        };
    }
    for half in task.within(&area).halves(area).ok_or(TooMany)? {
        split(task, half, most, programs)?;
    }
    Ok(())
}

/// One program for these areas, unless it is too long.
fn fitting(boxes: &[(&Task, Area)], most: usize) -> Result<Option<Vec<Instruction>>, TooMany> {
    let Some((first, _)) = boxes.first() else {
        return Ok(None);
    };
    let mut program = Assembler::default();
    let (pass, drop) = (program.label(), program.label());
    let mut bodies: Vec<_> = boxes
        .iter()
        .map(|(task, area)| (program.label(), *task, *area))
        .collect();
    let judged = |family| {
        let found = bodies.iter().find(|(_, task, _)| task.family == family);
        found.map(|(body, task, area)| Judged {
            body: *body,
            destinations: task.within(area).destinations(),
        })
    };
    let (v4, v6) = (judged(Family::V4), judged(Family::V6));
    headers::begin(
        &mut program,
        first.target.link,
        &Exits { v4, v6, pass, drop },
    );
    for (label, task, area) in bodies.drain(..) {
        program.bind(label);
        let inside = task.within(&area);
        match write(&inside, &mut program, &area, Ends { pass, drop }) {
            Err(TooMany) if area.is_divisible() => return Ok(None),
            written => written?,
        }
    }
    program.bind(pass);
    program.finish_with(PASS);
    program.bind(drop);
    program.finish_with(DROP);
    let instructions = program.instructions();
    Ok((instructions.len() <= most).then_some(instructions))
}

/// Writes the code that judges one family's packets within an area, and the exceptions.
fn write(task: &Task, program: &mut Assembler, area: &Area, ends: Ends) -> Result<(), TooMany> {
    let reads = task.lists.iter().any(|rules| policies::asks_upper(rules));
    for (field, range) in [
        (headers::destination(task.family), area.destination),
        (headers::source(task.family), area.source),
    ] {
        let inside = program.label();
        search(program, field, &[(range, inside)], ends.pass);
        program.bind(inside);
    }
    if reads {
        headers::read_upper(program, task.family, task.target.link);
    }
    for rules in &task.lists {
        let (dropped, passed) = (program.label(), ends.pass);
        let judge = (task.family, task.target.hook, task.target.mark);
        policies::judge(program, judge, rules, Outcomes { dropped, passed })?;
        program.bind(dropped);
    }
    exceptions::write(task, program, ends, reads);
    program.jump(ends.drop);
    Ok(())
}

impl Area {
    fn is_divisible(&self) -> bool {
        self.source.first < self.source.last || self.destination.first < self.destination.last
    }
}
