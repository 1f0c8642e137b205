//! What is made from the records of an earlier run: its report, its page, a comparison of two, an export.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::output::print_text;
use crate::outdir::{PAGE, RECORDS};
use crate::record::{self, MIXED, Record};
use crate::report;
use crate::report::findings::Findings;

pub(super) fn report(
    dir: &Path,
    html: Option<PathBuf>,
    charts: Option<PathBuf>,
) -> Result<ExitCode, String> {
    let (records, torn) = read(dir)?;
    print!("{}", report::text(&records, dir));
    let place = html.unwrap_or_else(|| dir.join(PAGE));
    // A run that was killed at once has no page, and that is no error.
    let Some(page) = report::html(&records, torn, dir) else {
        return Ok(ExitCode::SUCCESS);
    };
    write_page(&place, &page)?;
    eprintln!("page: {}", place.display());
    charts.map_or(Ok(()), |charts| draw(&records, dir, &charts))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the charts of the page into a folder, each as a file.
fn draw(records: &[Record], dir: &Path, charts: &Path) -> Result<(), String> {
    fs::create_dir_all(charts)
        .map_err(|error| format!("cannot make the folder {}: {error}", charts.display()))?;
    let drawings = report::drawings(records, dir);
    for (name, drawing) in &drawings {
        replace(&charts.join(name), drawing)?;
    }
    let count = drawings.len();
    eprintln!("charts: {count} in {}", charts.display());
    Ok(())
}

/// Writes the page.
pub(super) fn write_page(place: &Path, page: &str) -> Result<(), String> {
    replace(place, page).map_err(|why| {
        format!("{why}. Use `esplanade lab report DIR --html FILE` to write it elsewhere")
    })
}

/// What is made from records can be made anew at any time, so an earlier one is replaced, but never by half of a new
/// one.
fn replace(place: &Path, text: &str) -> Result<(), String> {
    let mut half = place.as_os_str().to_owned();
    half.push(".part");
    let half = PathBuf::from(half);
    let written = fs::write(&half, text).and_then(|()| fs::rename(&half, place));
    written.map_err(|error| {
        let _ = fs::remove_file(&half);
        format!("cannot write {}: {error}", place.display())
    })
}

pub(super) fn read(dir: &Path) -> Result<(Vec<Record>, Option<String>), String> {
    let (records, torn) = record::read_all(&dir.join(RECORDS))?;
    if let Some(note) = &torn {
        eprintln!("note: {note}");
    }
    if record::mixed(&records) {
        return Err(format!("{}: {MIXED}", dir.display()));
    }
    Ok((records, torn))
}

pub(super) fn compare(a: &Path, b: &Path) -> Result<ExitCode, String> {
    let (before, after) = (read(a)?.0, read(b)?.0);
    let nothing = |dir: &Path| format!("{} has no records to compare", dir.display());
    if record::mixed(&before.iter().chain(&after).cloned().collect::<Vec<_>>()) {
        return Err(MIXED.into());
    }
    let before = Findings::of(&before).ok_or_else(|| nothing(a))?;
    let after = Findings::of(&after).ok_or_else(|| nothing(b))?;
    print_text(&report::compare::text(&before, &after))
}

pub(super) fn export(dir: &Path, json: bool) -> Result<ExitCode, String> {
    let records = read(dir)?.0;
    print_text(&if json {
        report::export::json(&records)
    } else {
        report::export::csv(&records)
    })
}
