//! Runs the trials of a study in its folder: writes records as they come, then the table and the page, and returns an
//! exit code.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use super::recorded::{read, write_page};
use crate::absence::Absence;
use crate::capture::{CAPTURE_FILE, CaptureWriter, WIRESHARK_FOLDER};
use crate::case::Case;
use crate::experiment::{Experiment, Summary};
use crate::outdir::{OutDir, PAGE, README, RECORDS, TABLE};
use crate::progress::Progress;
use crate::record::{self, Journal, Outcome, Provenance, Record};
use crate::spec::{Programs, Spec};
use crate::stop::{INTERRUPTED_EXIT, Stop};
use crate::testbed::guest::EMULATED;
use crate::testbed::{Namespaces, Quotas, Ssh, Testbed};
use crate::{meter, report};

/// Exit code when some trial failed although its contender was there, or nothing could be measured at all.
const EXIT_SOME_FAILED: u8 = 3;
/// Packets of the protected wire kept for a packet analyser.
const MAX_CAPTURE_PACKETS: usize = 2000;

/// How the machines of a testbed are reached, and what they run.
pub(super) struct Machines {
    /// Configuration for ssh instead of the user's own.
    pub ssh_config: Option<PathBuf>,
    /// Copied to remote hosts.
    pub programs: Programs,
    /// Whether this is the lab inside a guest.
    pub emulated: bool,
    /// CPU quotas for the gateways, if a case has a share.
    pub quotas: Option<Result<Quotas, Absence>>,
}

pub(super) fn measure(
    spec: &Spec,
    cases: &[Case],
    out: &OutDir,
    machines: Machines,
    repeat: String,
) -> Result<Summary, String> {
    let stop = Stop::on_signals().map_err(|error| format!("cannot catch signals: {error}"))?;
    let emulated = machines.emulated;
    let lab = machines.programs.lab.clone();
    let (mut testbed, provenance) = testbed(spec, machines, out, stop)?;
    let cannot = |what: &str| {
        let what = out.path.join(what).display().to_string();
        move |error: std::io::Error| format!("cannot write {what}: {error}")
    };
    let earlier = earlier(out)?;
    let mut journal = open_journal(out).map_err(cannot(RECORDS))?;
    // A resumed run keeps its first capture.
    let mut capture = if out.resumed {
        None
    } else {
        Some(
            CaptureWriter::create(&out.path, MAX_CAPTURE_PACKETS, cases.len())
                .map_err(cannot(CAPTURE_FILE))?,
        )
    };
    if !out.resumed {
        fs::write(out.path.join(README), readme(&repeat)).map_err(cannot(README))?;
    }
    let provenance = Provenance {
        command: repeat,
        testbed: if emulated {
            format!("{}, {EMULATED}", testbed.describe())
        } else {
            testbed.describe()
        },
        emulated,
        ..provenance
    };
    if let Some(first) = earlier.first() {
        if first.provenance.emulated != emulated {
            return Err(record::MIXED.into());
        }
        eprintln!("resuming: {} records exist", earlier.len());
        for change in first.provenance.changes(&Provenance {
            versions: first.provenance.versions.clone(),
            ..provenance.clone()
        }) {
            eprintln!("warning: changed since the first record: {change}");
        }
    }
    let experiment = Experiment {
        study: spec.study.clone(),
        title: spec.title.clone(),
        reference: spec.reference.clone(),
        rounds: spec.rounds,
        seed: spec.seed.unwrap_or_default(),
        cases,
        done: record::done(&earlier),
        testbed: &mut *testbed,
        meters: &mut meter::usual(),
        intrusive: &mut meter::intrusive(&lab),
        capture: capture.as_mut(),
        provenance,
        stop,
    };
    let summary = experiment.run(&mut journal, &mut Progress::default());
    let mut summary = summary.map_err(|fault| fault.to_string())?;
    summary.records.splice(0..0, earlier);
    Ok(summary)
}

/// The testbed of a spec, and the machine that its figures come from.
fn testbed(
    spec: &Spec,
    machines: Machines,
    out: &OutDir,
    stop: Stop,
) -> Result<(Box<dyn Testbed>, Provenance), String> {
    let Some(hosts) = spec.hosts.clone() else {
        let mut testbed = Namespaces::new(&out.path, stop);
        if let Some(quotas) = machines.quotas {
            testbed = testbed.with_quotas(quotas);
        }
        return Ok((Box::new(testbed), Provenance::of_this_machine()));
    };
    let Programs { lab, esplanade } = machines.programs;
    let own = [("esplanade-lab", Some(lab)), ("esplanade", esplanade)];
    let uploads = own
        .into_iter()
        .filter_map(|(name, path)| Some((name, path?)));
    eprintln!("connecting to the hosts of the testbed");
    let testbed = Ssh::connect(
        hosts,
        machines.ssh_config,
        uploads.collect(),
        &out.path,
        stop,
    );
    let testbed = testbed.map_err(|fault| fault.to_string())?;
    let provenance = testbed.provenance();
    Ok((Box::new(testbed), provenance))
}

/// What a resumed run has already.
fn earlier(out: &OutDir) -> Result<Vec<Record>, String> {
    if out.resumed && out.path.join(RECORDS).exists() {
        Ok(read(&out.path)?.0)
    } else {
        Ok(Vec::new())
    }
}

fn open_journal(out: &OutDir) -> io::Result<Journal> {
    let place = out.path.join(RECORDS);
    if out.resumed && place.exists() {
        Journal::reopen(&place)
    } else {
        Journal::create(&place)
    }
}

pub(super) fn conclude(summary: &Summary, table: &str, out: &OutDir) -> Result<ExitCode, String> {
    println!("{table}");
    let kept = fs::write(out.path.join(TABLE), table);
    let (place, count) = (out.path.display(), summary.records.len());
    eprintln!(
        "saved in {place}: {count} record{}",
        if count == 1 { "" } else { "s" }
    );
    if let Some(why) = &summary.not_kept {
        return Err(format!(
            "not all records could be written: {why}. The table above is complete"
        ));
    }
    let page = report::html(&summary.records, None, &out.path);
    let page = page.map_or(Ok(()), |page| write_page(&out.path.join(PAGE), &page));
    kept.map_err(|error| format!("cannot write {TABLE}: {error}. The records are complete"))?;
    page.map_err(|why| format!("{why}. The records are complete"))?;
    if summary.interrupted {
        let place = out.path.display();
        eprintln!(
            "interrupted: completed trials are saved. Resume with: esplanade lab run --resume {place}"
        );
        return Ok(ExitCode::from(INTERRUPTED_EXIT as u8));
    }
    let any =
        |wanted: fn(&Outcome) -> bool| summary.records.iter().any(|record| wanted(&record.outcome));
    let failed = any(|outcome| matches!(outcome, Outcome::Failed { .. }));
    let measured = any(|outcome| matches!(outcome, Outcome::Measured { .. }));
    Ok(if measured && !failed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_SOME_FAILED)
    })
}

pub(super) fn readme(repeat: &str) -> String {
    format!(
        "{TABLE}        the table
{PAGE}      the HTML page: charts, tables, bottlenecks, provenance
{RECORDS}    one line of JSON for each trial; all that `esplanade lab report` needs
config/          the configuration files of each contender
{CAPTURE_FILE}     up to {MAX_CAPTURE_PACKETS} packets from the wire between the gateways, of the suites that Wireshark 4.0 can decrypt
stacks/          where the time went, if a profile was taken: folded stacks for flame graphs
{WIRESHARK_FOLDER}/       a Wireshark profile with the keys

Decrypt the captured packets:
    WIRESHARK_CONFIG_DIR={WIRESHARK_FOLDER} wireshark {CAPTURE_FILE}
    WIRESHARK_CONFIG_DIR={WIRESHARK_FOLDER} tshark -r {CAPTURE_FILE} -T fields -e esp.spi -e esp.icv_good -e _ws.col.Info

Run it again:
    {repeat}
"
    )
}
