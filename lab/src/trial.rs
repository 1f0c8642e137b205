//! One trial, from a fresh bed to an outcome. Correctness comes first: a fast wrong tunnel is no result. Whatever
//! happens, the contender is taken down and the bed goes with it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::capture::Album;
use crate::case::Case;
use crate::check::{self, Evidence};
use crate::contender::Tunnel;
use crate::fault::Fault;
use crate::host::Tap;
use crate::load::Carried;
use crate::meter::{Heavy, Meter, Readings, Scene};
use crate::record::{Outcome, Verdict};
use crate::stage::Stage;
use crate::testbed::{Bed, Testbed, WAN};
use crate::verdict;

/// What a trial needs beside its case.
pub struct Rig<'a> {
    /// Raises a fresh bed for each trial.
    pub testbed: &'a mut dyn Testbed,
    /// What reads the cost.
    pub meters: &'a mut [Box<dyn Meter>],
    /// The meter that the trial is for, if it is not a measured one.
    pub heavy: Option<(Heavy, &'a mut Box<dyn Meter>)>,
    /// The place of the case in the experiment.
    pub place: usize,
    /// Where packets of the protected wire are kept, if they are.
    pub album: Option<&'a mut Album>,
}

/// What a trial gives: the outcome, and what is worth knowing beside it.
pub struct Ended {
    /// For the record.
    pub outcome: Outcome,
    /// What the load found.
    pub figures: BTreeMap<String, f64>,
    /// What limited it.
    pub verdict: Option<Verdict>,
    /// For the record, too.
    pub notes: Vec<String>,
}

impl Ended {
    /// An outcome without figures.
    pub fn with(outcome: Outcome) -> Ended {
        Ended {
            outcome,
            figures: BTreeMap::new(),
            verdict: None,
            notes: Vec::new(),
        }
    }
}

/// A fault and the stage it happened at.
struct Broken {
    stage: Stage,
    fault: Fault,
    check: Option<Box<Evidence>>,
}

/// Runs one trial. `token` makes this trial's canary unlike any other.
pub fn run(case: &Case, rig: &mut Rig<'_>, token: &str) -> Ended {
    let mut notes = Vec::new();
    let outcome = on_fresh_bed(case, rig, token, &mut notes).unwrap_or_else(Broken::into_outcome);
    let mut ended = Ended::with(outcome);
    ended.notes = notes;
    if let Outcome::Measured { carried, .. } | Outcome::Examined { carried, .. } =
        &mut ended.outcome
    {
        ended.figures = std::mem::take(&mut carried.figures);
        ended
            .figures
            .insert("goodput_bps".into(), carried.goodput_bps);
        if let Some(ideal) = case.ideal_bps {
            ended.figures.insert("ideal_bps".into(), ideal);
            ended
                .figures
                .insert("ideal_ratio".into(), carried.goodput_bps / ideal);
        }
    }
    if let Outcome::Measured { readings, .. } | Outcome::Examined { readings, .. } = &ended.outcome
    {
        let lost = ended.figures.get("lost_count").copied();
        let renewals = readings
            .get("tunnel.rekeys_count")
            .filter(|all| **all > 0.0);
        if let (Some(lost), Some(renewals)) = (lost, renewals) {
            ended
                .figures
                .insert("lost_per_rekey".into(), lost / renewals);
        }
        // What takes all idle time itself cannot say whether there was any.
        if rig
            .heavy
            .as_ref()
            .is_none_or(|(heavy, _)| heavy.leaves_idle_time())
        {
            ended.verdict = verdict::judge(case.load.demand(), &ended.figures, readings);
        }
    }
    ended
}

fn on_fresh_bed(
    case: &Case,
    rig: &mut Rig<'_>,
    token: &str,
    notes: &mut Vec<String>,
) -> Result<Outcome, Broken> {
    let bed = rig
        .testbed
        .raise(&case.ground)
        .map_err(at(Stage::Testbed))?;
    let mut tunnel = case.contender.up(&bed).map_err(at(Stage::Up))?;
    // Starting up is not what is measured, nor is ending: only between the two a gateway is held to its share.
    let held = bed.hold(&tunnel.gateways()).map_err(at(Stage::Up));
    let outcome = held.and_then(|()| measure(case, &*tunnel, &bed, rig, token, notes));
    for fault in [bed.let_go(), tunnel.down(&bed)]
        .into_iter()
        .filter_map(Result::err)
    {
        notes.push(format!("going down: {fault}"));
    }
    outcome
}

fn measure(
    case: &Case,
    tunnel: &dyn Tunnel,
    bed: &Bed,
    rig: &mut Rig<'_>,
    token: &str,
    notes: &mut Vec<String>,
) -> Result<Outcome, Broken> {
    let mut camera = Camera::open(case, tunnel, bed, rig).map_err(at(Stage::Check))?;
    let evidence = checked(case, bed, token)?;
    let spoiled = |stage| {
        let seen = Box::new(evidence.clone());
        move |fault| Broken {
            stage,
            fault,
            check: Some(seen),
        }
    };
    let mut load = case.load.prepare(bed).map_err(spoiled(Stage::WarmUp))?;
    load.warm_up().map_err(spoiled(Stage::WarmUp))?;
    if let Err(fault) = camera.develop(case, tunnel, rig) {
        notes.push(format!("the capture: {fault}"));
    }
    let name = format!("{:03}-{}", rig.place + 1, case.id);
    let scene = Scene {
        bed,
        tunnel,
        case: &name,
    };
    begin(rig, &scene).map_err(spoiled(Stage::Meters))?;
    mark(rig, &scene).map_err(spoiled(Stage::Meters))?;
    let _change = bed.change().map_err(spoiled(Stage::Load))?;
    let started = Instant::now();
    let carried = load.run(case.duration).map_err(spoiled(Stage::Load))?;
    let window = started.elapsed();
    mark(rig, &scene).map_err(spoiled(Stage::Meters))?;
    let mut readings = end(rig, &scene).map_err(spoiled(Stage::Meters))?;
    readings.insert("window_s".into(), window.as_secs_f64());
    plausible(&carried).map_err(spoiled(Stage::Load))?;
    Ok(match &rig.heavy {
        None => Outcome::Measured {
            check: evidence,
            carried,
            readings,
        },
        Some((by, _)) => Outcome::Examined {
            by: *by,
            check: evidence,
            carried,
            readings,
        },
    })
}

fn checked(case: &Case, bed: &Bed, token: &str) -> Result<Evidence, Broken> {
    let mut evidence = check::look(bed, token, case.contender.ear()).map_err(at(Stage::Check))?;
    if case.ground.impairment.is_some() {
        evidence = evidence.of_an_impaired_wire();
    }
    match evidence.verdict(case.contender.protection()) {
        Ok(()) => Ok(evidence),
        Err(why) => Err(Broken {
            stage: Stage::Check,
            fault: Fault::Failed(why),
            check: Some(Box::new(evidence)),
        }),
    }
}

/// A heavy meter begins first: it may take its time, and the others must not see that.
fn begin(rig: &mut Rig<'_>, scene: &Scene<'_>) -> Result<(), Fault> {
    let heavy = rig.heavy.iter_mut().map(|(_, meter)| &mut **meter);
    heavy
        .chain(rig.meters.iter_mut())
        .try_for_each(|meter| meter.begin(scene).map_err(|fault| fault.during(meter.id())))
}

/// The load begins, or has just ended: a heavy meter hears it, whose own ends are too far off.
fn mark(rig: &mut Rig<'_>, scene: &Scene<'_>) -> Result<(), Fault> {
    let mut heavy = rig.heavy.iter_mut().map(|(_, meter)| &mut **meter);
    heavy.try_for_each(|meter| meter.mark(scene).map_err(|fault| fault.during(meter.id())))
}

/// Meters end in the reverse order: the last that began is the one whose window is tightest.
fn end(rig: &mut Rig<'_>, scene: &Scene<'_>) -> Result<Readings, Fault> {
    let heavy = rig.heavy.iter_mut().map(|(_, meter)| &mut **meter);
    let mut all = Readings::new();
    for meter in rig.meters.iter_mut().rev().chain(heavy) {
        all.extend(meter.end(scene).map_err(|fault| fault.during(meter.id()))?);
    }
    Ok(all)
}

/// A load that says it carried nothing carried no result either.
fn plausible(carried: &Carried) -> Result<(), Fault> {
    if carried.bytes > 0 && carried.goodput_bps.is_finite() && carried.goodput_bps > 0.0 {
        Ok(())
    } else {
        Err(Fault::failed(format!("{} carried no byte", carried.tool)))
    }
}

fn at(stage: Stage) -> impl Fn(Fault) -> Broken {
    move |fault| Broken {
        stage,
        fault,
        check: None,
    }
}

impl Broken {
    fn into_outcome(self) -> Outcome {
        match self.fault {
            Fault::Interrupted => Outcome::Interrupted { stage: self.stage },
            fault => Outcome::Failed {
                stage: self.stage,
                why: fault.to_string(),
                check: self.check.map(|check| *check),
            },
        }
    }
}

/// Listens on the protected wire from before the check until the load begins: never while something is measured.
struct Camera(Option<Box<dyn Tap>>);

impl Camera {
    fn open(case: &Case, tunnel: &dyn Tunnel, bed: &Bed, rig: &Rig<'_>) -> Result<Camera, Fault> {
        let wanted = rig
            .album
            .as_ref()
            .is_some_and(|album| album.wants(&case.id));
        if wanted && !tunnel.keys().is_empty() {
            return Ok(Camera(Some(bed.left.tap(WAN)?)));
        }
        Ok(Camera(None))
    }

    fn develop(
        &mut self,
        case: &Case,
        tunnel: &dyn Tunnel,
        rig: &mut Rig<'_>,
    ) -> Result<(), Fault> {
        let (Some(mut tap), Some(album)) = (self.0.take(), rig.album.as_mut()) else {
            return Ok(());
        };
        album.add(&case.id, &tap.frames()?, &tunnel.keys())
    }
}
