//! Runs an experiment over any testbed, contenders, loads and meters: records what is absent, runs every planned trial
//! and records it as it ends. A request to stop ends it between two steps.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::absence::Absence;
use crate::capture::CaptureWriter;
use crate::case::Case;
use crate::fault::Fault;
use crate::meter::{IntrusiveMeter, Meter};
use crate::plan::{Plan, Planned};
use crate::record::{Journal, Outcome, Provenance, Record, SCHEMA};
use crate::stop::Stop;
use crate::testbed::{Testbed, Topology, TopologySpec};
use crate::trial::{self, TrialContext, TrialResult};

/// What an experiment is made of.
pub struct Experiment<'a> {
    /// The study's name.
    pub study: String,
    /// The study's title.
    pub title: String,
    /// The id of the contender that ratios are taken to.
    pub reference: String,
    /// How many rounds.
    pub rounds: usize,
    /// Seed of the order.
    pub seed: u64,
    /// What is measured, in the order of the table.
    pub cases: &'a [Case],
    /// Trials that an earlier run recorded, as `(round, place of the case)`: they keep their places in the plan and are
    /// not run again.
    pub done: BTreeSet<(usize, usize)>,
    /// Builds topologies.
    pub testbed: &'a mut dyn Testbed,
    /// Read the cost.
    pub meters: &'a mut [Box<dyn Meter>],
    /// Read the cost in trials of their own, because they are one.
    pub intrusive: &'a mut [(IntrusiveMeter, Box<dyn Meter>)],
    /// Keeps packets of the protected wire.
    pub capture: Option<&'a mut CaptureWriter>,
    /// Where it all was.
    pub provenance: Provenance,
    /// The request to stop.
    pub stop: Stop,
}

/// Why cases cannot be measured, one by one, and which intrusive meters cannot look.
type Absences = (Vec<Option<Absence>>, Vec<(IntrusiveMeter, Absence)>);

/// Receives progress events.
pub trait Watcher {
    /// The plan is made; nothing ran yet.
    fn planned(&mut self, plan: &Plan, estimate: Duration);
    /// A trial begins.
    fn begins(&mut self, trial: &Planned, label: &str);
    /// A record was made (of a trial that ended, or of an absent contender).
    fn ended(&mut self, record: &Record);
    /// Something the user should know.
    fn trouble(&mut self, what: &str);
}

/// The result of an experiment.
#[derive(Debug, Default)]
pub struct Summary {
    /// Every record, in the order of execution.
    pub records: Vec<Record>,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// Why the records on the disk are not all of them, if they are not.
    pub not_kept: Option<String>,
}

impl Experiment<'_> {
    /// Runs it. The error is one that spoils everything: no testbed, no load tool.
    pub fn run(
        mut self,
        journal: &mut Journal,
        watcher: &mut dyn Watcher,
    ) -> Result<Summary, Fault> {
        let (absences, unavailable) = self.absences()?;
        // A check that was interrupted does not prove absence.
        if self.stop.asked() {
            return Ok(Summary {
                interrupted: true,
                ..Summary::default()
            });
        }
        let present: Vec<usize> = (0..absences.len())
            .filter(|&index| absences[index].is_none())
            .collect();
        let mut plan = Plan::new(&present, self.rounds, self.seed);
        for (intrusive, _) in self.intrusive.iter() {
            let asks = |case: &usize| self.cases[*case].intrusive.contains(intrusive);
            if !unavailable.iter().any(|(absent, _)| absent == intrusive) {
                let asking: Vec<usize> = present.iter().copied().filter(asks).collect();
                plan.examine(&asking, *intrusive);
            }
        }
        watcher.planned(&plan, self.estimate(&plan));
        let mut summary = Summary::default();
        for (index, absence) in absences.into_iter().enumerate() {
            if let Some(absence) = absence.filter(|_| !self.done.contains(&(0, index))) {
                let record = self.absent(index, absence, &plan);
                keep(record, journal, watcher, &mut summary);
            }
        }
        for (intrusive, absence) in unavailable {
            let record = self.without(intrusive, absence, &plan);
            if !self.done.contains(&(0, record.order)) {
                keep(record, journal, watcher, &mut summary);
            }
        }
        let left: Vec<Planned> = self.remaining(&plan);
        for planned in &left {
            if self.stop.asked() {
                break;
            }
            watcher.begins(planned, &self.cases[planned.case].label);
            let record = self.trial(planned, &plan);
            keep(record, journal, watcher, &mut summary);
        }
        summary.interrupted = self.stop.asked();
        summary.not_kept = journal.flush().err().map(|error| error.to_string());
        Ok(summary)
    }

    /// What no earlier run recorded.
    fn remaining(&self, plan: &Plan) -> Vec<Planned> {
        let mut trials = plan.trials.clone();
        trials.retain(|trial| !self.done.contains(&(trial.round, trial.case)));
        trials
    }

    /// Of what is left to do.
    fn estimate(&self, plan: &Plan) -> Duration {
        let mut left = plan.clone();
        left.trials = self.remaining(plan);
        let more = left.trials.iter().filter_map(|trial| trial.intrusive);
        let more: Duration = more.map(IntrusiveMeter::takes).sum();
        left.estimate(|case| self.cases[case].load.takes(self.cases[case].duration)) + more
    }

    /// Why a case cannot be measured here, if so, and which of the configured intrusive meters are absent. An error
    /// where no load is present at all.
    fn absences(&mut self) -> Result<Absences, Fault> {
        let Some(first) = self.cases.first() else {
            return Ok(Default::default());
        };
        // CPU quotas are left out here; whether they are available is checked below.
        let spec = TopologySpec {
            share: None,
            ..first.topology_spec.clone()
        };
        let topology: Topology = self.testbed.build(&spec)?;
        let loads = self
            .cases
            .iter()
            .map(|case| case.load.presence(&topology).err());
        let loads: Vec<Option<Absence>> = loads.collect();
        let nowhere = loads.iter().all(Option::is_some) && !self.stop.asked();
        if let Some(Some(absence)) = loads.iter().find(|_| nowhere) {
            return Err(Fault::failed(format!(
                "{}. {}",
                absence.why, absence.remedy
            )));
        }
        let testbed = &*self.testbed;
        let asked = self.cases.iter().zip(loads);
        let absences: Vec<_> = asked
            .map(|(case, load)| {
                let contender = case.contender.presence(&topology).err().or(load);
                contender.or_else(|| testbed.presence(&case.topology_spec).err())
            })
            .collect();
        let present = self.cases.iter().zip(&absences);
        let versions = present
            .filter(|(_, absence)| absence.is_none())
            .filter_map(|(case, _)| case.contender.version(&topology));
        self.provenance.versions.extend(versions);
        let unavailable = self.intrusive.iter().filter_map(|(intrusive, meter)| {
            let asked = self
                .cases
                .iter()
                .any(|case| case.intrusive.contains(intrusive));
            Some((*intrusive, asked.then(|| meter.presence(&topology).err())??))
        });
        Ok((absences, unavailable.collect()))
    }

    fn trial(&mut self, planned: &Planned, plan: &Plan) -> Record {
        let (began, clock) = (unix_now(), Instant::now());
        let token = format!("{:016x}-{}", self.seed, planned.number);
        let mut intrusive = self.intrusive.iter_mut();
        let mut context = TrialContext {
            testbed: &mut *self.testbed,
            meters: &mut *self.meters,
            intrusive: planned.intrusive.and_then(|wanted| {
                intrusive.find_map(|(intrusive, meter)| {
                    (*intrusive == wanted).then_some((wanted, meter))
                })
            }),
            place: planned.case,
            capture: self.capture.as_deref_mut(),
        };
        let ended = trial::run(&self.cases[planned.case], &mut context, &token);
        let mut record = self.record(planned, plan, ended);
        record.started_unix = began;
        record.took_s = clock.elapsed().as_secs_f64();
        record
    }

    fn absent(&self, case: usize, absence: Absence, plan: &Plan) -> Record {
        let planned = Planned {
            number: 0,
            round: 0,
            case,
            intrusive: None,
        };
        let outcome = Outcome::Absent {
            why: absence.why,
            remedy: absence.remedy,
        };
        self.record(&planned, plan, TrialResult::with(outcome))
    }

    /// An absent meter gets a row of its own, after all cases.
    fn without(&self, intrusive: IntrusiveMeter, absence: Absence, plan: &Plan) -> Record {
        let mut record = self.absent(0, absence, plan);
        record.order = self.cases.len() + intrusive as usize;
        record.contender = intrusive.name().into();
        record.label = intrusive.label().into();
        record.factors.clear();
        record
    }

    fn record(&self, planned: &Planned, plan: &Plan, ended: TrialResult) -> Record {
        let case = &self.cases[planned.case];
        let contender = &case.contender;
        let mut factors = case.factors.clone();
        factors.extend(contender.factors());
        Record {
            schema: SCHEMA,
            study: self.study.clone(),
            title: self.title.clone(),
            trial: planned.number,
            trials: plan.trials.len(),
            round: planned.round,
            rounds: plan.rounds,
            seed: plan.seed,
            order: planned.case,
            contender: case.id.clone(),
            label: case.label.clone(),
            factors,
            protection: contender.protection(),
            reference: self.reference.clone(),
            load: case.load.id().into(),
            duration_s: case.duration.as_secs_f64(),
            started_unix: unix_now(),
            took_s: 0.0,
            outcome: ended.outcome,
            figures: ended.figures,
            verdict: ended.verdict,
            notes: ended.notes,
            provenance: self.provenance.clone(),
        }
    }
}

fn keep(record: Record, journal: &mut Journal, watcher: &mut dyn Watcher, summary: &mut Summary) {
    if let Err(error) = journal.append(&record) {
        let path = journal.path().display();
        watcher.trouble(&format!(
            "cannot write {path}: {error}; the record is kept in memory and written later"
        ));
    }
    watcher.ended(&record);
    summary.records.push(record);
}

fn unix_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
