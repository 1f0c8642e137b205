//! Where results go. No result is ever overwritten: an older one in the way is moved aside to a numbered name, and a
//! folder that holds anything else is not touched at all.

mod order;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::record::packed;

pub use order::{ORDER, RunRequest};

/// The records among the results: what makes a folder a result.
pub const RECORDS: &str = "records.jsonl";
/// The table among the results.
pub const TABLE: &str = "table.txt";
/// The page among the results.
pub const PAGE: &str = "report.html";
/// What is what among the results.
pub const README: &str = "README";

/// A folder for one run, and where the previous one went.
#[derive(Debug, PartialEq, Eq)]
pub struct OutDir {
    /// The folder: it exists and is empty.
    pub path: PathBuf,
    /// The new name of an earlier result that was in the way.
    pub moved: Option<PathBuf>,
    /// Whether a run goes on here that was cut short after its first record: what is there stays.
    pub resumed: bool,
}

/// The folder of a run that goes on.
pub fn reopen(path: &Path) -> Result<OutDir, String> {
    let path = path
        .canonicalize()
        .map_err(|error| cannot("find", path, &error))?;
    let records = path.join(RECORDS);
    let (resumed, packed) = (records.exists(), packed(&records));
    if !resumed && packed.exists() {
        let packed = packed.display();
        return Err(format!(
            "the records are compressed: run `gunzip {packed}`, then resume"
        ));
    }
    // One that was cut short before its first record begins anew.
    Ok(OutDir {
        path,
        moved: None,
        resumed,
    })
}

/// Makes the folder ready. The error is a text for the user.
pub fn prepare(path: &Path) -> Result<OutDir, String> {
    let moved = match state(path).map_err(|error| cannot("look at", path, &error))? {
        State::Free => None,
        State::Result => Some(move_aside(path)?),
        State::Foreign => {
            let shown = path.display();
            return Err(format!(
                "{shown} exists and is not a result of the lab; nothing was written. Choose another folder with --out, or remove it"
            ));
        }
    };
    fs::create_dir_all(path).map_err(|error| cannot("make", path, &error))?;
    let path = path
        .canonicalize()
        .map_err(|error| cannot("find", path, &error))?;
    Ok(OutDir {
        path,
        moved,
        resumed: false,
    })
}

enum State {
    Free,
    Result,
    Foreign,
}

fn state(path: &Path) -> io::Result<State> {
    let mut entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Free),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(State::Foreign),
        Err(error) => return Err(error),
    };
    match entries.next() {
        None => Ok(State::Free),
        Some(_) if path.join(RECORDS).is_file() || path.join(ORDER).is_file() => Ok(State::Result),
        Some(_) => Ok(State::Foreign),
    }
}

fn move_aside(path: &Path) -> Result<PathBuf, String> {
    let shown = path.as_os_str().to_string_lossy();
    let shown = shown.trim_end_matches('/');
    let mut names = (1..).map(|number| PathBuf::from(format!("{shown}.{number}")));
    let free = names.find(|name| !name.exists()).unwrap_or_default();
    fs::rename(path, &free).map_err(|error| cannot("move aside", path, &error))?;
    Ok(free)
}

fn cannot(act: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {act} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("lab-outdir-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_new_folder_is_made_with_its_parents() {
        let place = place("new");
        let out = prepare(&place.join("a/b")).unwrap();
        assert_eq!(out.moved, None);
        assert!(out.path.is_dir());
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn earlier_results_are_kept_under_numbers() {
        let place = place("earlier");
        let demo = place.join("demo");
        for round in 0..3 {
            let out = prepare(&demo).unwrap();
            fs::write(out.path.join(RECORDS), round.to_string()).unwrap();
        }
        let kept = |name: &str| fs::read_to_string(place.join(name).join(RECORDS)).unwrap();
        assert_eq!(
            (kept("demo.1"), kept("demo.2"), kept("demo")),
            ("0".into(), "1".into(), "2".into())
        );
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn packed_records_are_not_written_past() {
        let place = place("packed");
        fs::write(packed(&place.join(RECORDS)), "packed").unwrap();
        let refused = reopen(&place).err().unwrap();
        assert!(refused.contains("gunzip"), "{refused}");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn foreign_folders_and_files_are_not_touched() {
        let place = place("foreign");
        fs::write(place.join("letter"), "dear").unwrap();
        let refused = prepare(&place).unwrap_err();
        assert!(refused.contains("not a result of the lab"), "{refused}");
        assert!(prepare(&place.join("letter")).is_err());
        assert_eq!(fs::read_to_string(place.join("letter")).unwrap(), "dear");
        fs::remove_dir_all(place).unwrap();
    }
}
