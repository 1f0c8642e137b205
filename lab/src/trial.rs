//! One trial, from a fresh topology to an outcome. Correctness comes first: a fast wrong tunnel is no result. Whatever
//! happens, the contender is taken down and the topology goes with it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::capture::CaptureWriter;
use crate::case::Case;
use crate::check::{self, Evidence};
use crate::contender::Tunnel;
use crate::fault::Fault;
use crate::host::Tap;
use crate::load::Carried;
use crate::meter::{IntrusiveMeter, Meter, MeterContext, Readings};
use crate::record::{Outcome, Verdict};
use crate::stage::Stage;
use crate::testbed::{Testbed, Topology, WAN};
use crate::verdict;

/// What a trial needs beside its case.
pub(crate) struct TrialContext<'a> {
    /// Builds a fresh topology for each trial.
    pub testbed: &'a mut dyn Testbed,
    /// What reads the cost.
    pub meters: &'a mut [Box<dyn Meter>],
    /// The meter that the trial is for, if it is not a measured one.
    pub intrusive: Option<(IntrusiveMeter, &'a mut Box<dyn Meter>)>,
    /// The place of the case in the experiment.
    pub place: usize,
    /// Where packets of the protected wire are kept, if they are.
    pub capture: Option<&'a mut CaptureWriter>,
}

/// The result of a trial: the outcome, and what is recorded with it.
pub(crate) struct TrialResult {
    /// For the record.
    pub outcome: Outcome,
    /// What the load found.
    pub figures: BTreeMap<String, f64>,
    /// What limited it.
    pub verdict: Option<Verdict>,
    /// For the record, too.
    pub notes: Vec<String>,
}

impl TrialResult {
    /// An outcome without figures.
    pub(crate) fn with(outcome: Outcome) -> TrialResult {
        TrialResult {
            outcome,
            figures: BTreeMap::new(),
            verdict: None,
            notes: Vec::new(),
        }
    }
}

/// A fault and the stage it happened at.
struct StageFault {
    stage: Stage,
    fault: Fault,
    check: Option<Box<Evidence>>,
}

/// Runs one trial. `token` makes this trial's canary unlike any other.
pub(crate) fn run(case: &Case, trial: &mut TrialContext<'_>, token: &str) -> TrialResult {
    let mut notes = Vec::new();
    let outcome =
        on_fresh_topology(case, trial, token, &mut notes).unwrap_or_else(StageFault::into_outcome);
    let mut result = TrialResult::with(outcome);
    result.notes = notes;
    if let Outcome::Measured { carried, .. } | Outcome::Examined { carried, .. } =
        &mut result.outcome
    {
        result.figures = std::mem::take(&mut carried.figures);
        result
            .figures
            .insert("goodput_bps".into(), carried.goodput_bps);
        if let Some(ideal) = case.ideal_bps {
            result.figures.insert("ideal_bps".into(), ideal);
            result
                .figures
                .insert("ideal_ratio".into(), carried.goodput_bps / ideal);
        }
    }
    if let Outcome::Measured { readings, .. } | Outcome::Examined { readings, .. } = &result.outcome
    {
        let lost = result.figures.get("lost_count").copied();
        let renewals = readings
            .get("tunnel.rekeys_count")
            .filter(|all| **all > 0.0);
        if let (Some(lost), Some(renewals)) = (lost, renewals) {
            result
                .figures
                .insert("lost_per_rekey".into(), lost / renewals);
        }
        // A meter that takes all idle time cannot show whether there was any.
        if trial
            .intrusive
            .as_ref()
            .is_none_or(|(intrusive, _)| intrusive.leaves_idle_time())
        {
            result.verdict = verdict::judge(case.load.demand(), &result.figures, readings);
        }
    }
    result
}

fn on_fresh_topology(
    case: &Case,
    trial: &mut TrialContext<'_>,
    token: &str,
    notes: &mut Vec<String>,
) -> Result<Outcome, StageFault> {
    let topology = trial
        .testbed
        .build(&case.topology_spec)
        .map_err(at(Stage::Testbed))?;
    let mut tunnel = case.contender.up(&topology).map_err(at(Stage::Up))?;
    // Starting up is not what is measured, nor is ending: only between the two a gateway is held to its share.
    let held = topology.limit(&tunnel.gateways()).map_err(at(Stage::Up));
    let outcome = held.and_then(|()| measure(case, &*tunnel, &topology, trial, token, notes));
    for fault in [topology.remove_quotas(), tunnel.down(&topology)]
        .into_iter()
        .filter_map(Result::err)
    {
        notes.push(format!("stopping: {fault}"));
    }
    outcome
}

fn measure(
    case: &Case,
    tunnel: &dyn Tunnel,
    topology: &Topology,
    trial: &mut TrialContext<'_>,
    token: &str,
    notes: &mut Vec<String>,
) -> Result<Outcome, StageFault> {
    let mut capture = WireCapture::open(case, tunnel, topology, trial).map_err(at(Stage::Check))?;
    let evidence = checked(case, topology, token)?;
    notes.extend(evidence.note());
    let spoiled = |stage| {
        let seen = Box::new(evidence.clone());
        move |fault| StageFault {
            stage,
            fault,
            check: Some(seen),
        }
    };
    let mut load = case
        .load
        .prepare(topology)
        .map_err(spoiled(Stage::WarmUp))?;
    load.warm_up().map_err(spoiled(Stage::WarmUp))?;
    if let Err(fault) = capture.save(case, tunnel, trial) {
        notes.push(format!("the capture: {fault}"));
    }
    let name = format!("{:03}-{}", trial.place + 1, case.id);
    let context = MeterContext {
        topology,
        tunnel,
        case: &name,
    };
    begin(trial, &context).map_err(spoiled(Stage::Meters))?;
    mark(trial, &context).map_err(spoiled(Stage::Meters))?;
    let _change = topology.change().map_err(spoiled(Stage::Load))?;
    let started = Instant::now();
    let carried = load.run(case.duration).map_err(spoiled(Stage::Load))?;
    let window = started.elapsed();
    mark(trial, &context).map_err(spoiled(Stage::Meters))?;
    let mut readings = end(trial, &context).map_err(spoiled(Stage::Meters))?;
    readings.insert("window_s".into(), window.as_secs_f64());
    plausible(&carried).map_err(spoiled(Stage::Load))?;
    Ok(match &trial.intrusive {
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

fn checked(case: &Case, topology: &Topology, token: &str) -> Result<Evidence, StageFault> {
    let mut evidence = check::examine(topology, token, case.contender.capture_point())
        .map_err(at(Stage::Check))?;
    if case.topology_spec.impairment.is_some() {
        evidence = evidence.of_an_impaired_wire();
    }
    match evidence.verdict(case.contender.protection()) {
        Ok(()) => Ok(evidence),
        Err(why) => Err(StageFault {
            stage: Stage::Check,
            fault: Fault::Failed(why),
            check: Some(Box::new(evidence)),
        }),
    }
}

/// An intrusive meter begins first: it may take its time, and the others must not see that.
fn begin(trial: &mut TrialContext<'_>, context: &MeterContext<'_>) -> Result<(), Fault> {
    let intrusive = trial.intrusive.iter_mut().map(|(_, meter)| &mut **meter);
    intrusive
        .chain(trial.meters.iter_mut())
        .try_for_each(|meter| {
            meter
                .begin(context)
                .map_err(|fault| fault.during(meter.id()))
        })
}

/// The load begins, or has just ended: only intrusive meters need the exact moments.
fn mark(trial: &mut TrialContext<'_>, context: &MeterContext<'_>) -> Result<(), Fault> {
    let mut intrusive = trial.intrusive.iter_mut().map(|(_, meter)| &mut **meter);
    intrusive.try_for_each(|meter| {
        meter
            .mark(context)
            .map_err(|fault| fault.during(meter.id()))
    })
}

/// Meters end in the reverse order: the last that began is the one whose window is tightest.
fn end(trial: &mut TrialContext<'_>, context: &MeterContext<'_>) -> Result<Readings, Fault> {
    let intrusive = trial.intrusive.iter_mut().map(|(_, meter)| &mut **meter);
    let mut all = Readings::new();
    for meter in trial.meters.iter_mut().rev().chain(intrusive) {
        all.extend(
            meter
                .end(context)
                .map_err(|fault| fault.during(meter.id()))?,
        );
    }
    Ok(all)
}

/// A load without any data is not a result.
fn plausible(carried: &Carried) -> Result<(), Fault> {
    if carried.bytes > 0 && carried.goodput_bps.is_finite() && carried.goodput_bps > 0.0 {
        Ok(())
    } else {
        Err(Fault::failed(format!("{} carried no byte", carried.tool)))
    }
}

fn at(stage: Stage) -> impl Fn(Fault) -> StageFault {
    move |fault| StageFault {
        stage,
        fault,
        check: None,
    }
}

impl StageFault {
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
struct WireCapture(Option<Box<dyn Tap>>);

impl WireCapture {
    fn open(
        case: &Case,
        tunnel: &dyn Tunnel,
        topology: &Topology,
        trial: &TrialContext<'_>,
    ) -> Result<WireCapture, Fault> {
        let wanted = trial
            .capture
            .as_ref()
            .is_some_and(|capture| capture.wants(&case.id));
        if wanted && !tunnel.keys().is_empty() {
            return Ok(WireCapture(Some(topology.left.tap(WAN)?)));
        }
        Ok(WireCapture(None))
    }

    fn save(
        &mut self,
        case: &Case,
        tunnel: &dyn Tunnel,
        trial: &mut TrialContext<'_>,
    ) -> Result<(), Fault> {
        let (Some(mut tap), Some(capture)) = (self.0.take(), trial.capture.as_mut()) else {
            return Ok(());
        };
        capture.add(&case.id, &tap.frames()?, &tunnel.keys())
    }
}
