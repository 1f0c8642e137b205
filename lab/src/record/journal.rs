//! The file of records. A line is on the disk when [`Journal::append`] returns; a line cut short by a full disk is cut
//! off again, so that the file holds whole records (a crash may leave one torn line at the end, which readers name).

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::entry::{Record, SCHEMA};

/// An open file of records that only grows.
pub struct Journal {
    file: File,
    path: PathBuf,
    length: u64,
    waiting: VecDeque<String>,
    kept: usize,
}

impl Journal {
    /// Creates the file; one that exists is never touched.
    pub fn create(path: &Path) -> io::Result<Journal> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        alone(&file)?;
        Ok(Journal::onto(file, path))
    }

    /// Opens a file of records to add to it. A truncated last line is removed.
    pub fn reopen(path: &Path) -> io::Result<Journal> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        alone(&file)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::Start(whole as u64))?;
        let mut journal = Journal::onto(file, path);
        journal.length = whole as u64;
        Ok(journal)
    }

    /// Writes to a file that is open and empty.
    pub fn onto(file: File, path: &Path) -> Journal {
        Journal {
            file,
            path: path.to_owned(),
            length: 0,
            waiting: VecDeque::new(),
            kept: 0,
        }
    }

    /// Where the records are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many records are safely on the disk.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Writes the record and waits for the disk. One that cannot be written waits in memory and is tried again with the
    /// next: a disk that was full for a moment costs nothing.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_string(record)?;
        line.push('\n');
        self.waiting.push_back(line);
        self.flush()
    }

    /// Tries again to write what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(line) = self.waiting.front() {
            if let Err(error) = write_synced(&mut self.file, line.as_bytes()) {
                // A part of the line may be there: the file is made to end with a whole record again.
                let _ = self.file.set_len(self.length);
                let _ = self.file.seek(SeekFrom::Start(self.length));
                return Err(error);
            }
            self.length += line.len() as u64;
            self.kept += 1;
            self.waiting.pop_front();
        }
        Ok(())
    }
}

/// Two runs must not write into one file. Without locks in the file system this is not checked.
fn alone(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another run is writing this file")),
        _ => Ok(()),
    }
}

fn write_synced(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_data()
}

/// Reads a file of records, or where there is none the same packed by gzip. A torn last line is left out and named in
/// the second value.
pub fn read_all(path: &Path) -> Result<(Vec<Record>, Option<String>), String> {
    let packed = packed(path);
    let (path, text) = if !path.exists() && packed.exists() {
        (&*packed, unpacked(&packed))
    } else {
        (path, std::fs::read_to_string(path))
    };
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    read_text(&text).map_err(|why| format!("{}:{why}", path.display()))
}

/// Where a file of records is after `gzip`, which takes a tenth of the room.
pub fn packed(path: &Path) -> PathBuf {
    path.with_added_extension("gz")
}

/// More than this is no file of records, but one that was made to fill the memory.
const MAX_UNPACKED_BYTES: u64 = 4 << 30;

fn unpacked(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut whole = MultiGzDecoder::new(File::open(path)?).take(MAX_UNPACKED_BYTES);
    whole.read_to_string(&mut text)?;
    match whole.limit() {
        0 => Err(io::Error::other(format!(
            "unpacked it is {MAX_UNPACKED_BYTES} bytes or more"
        ))),
        _ => Ok(text),
    }
}

/// The same from text. Errors begin with the line number.
pub fn read_text(text: &str) -> Result<(Vec<Record>, Option<String>), String> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let torn = (whole < text.len()).then(|| {
        "the last line is cut short (the lab was killed while writing it) and is left out"
            .to_owned()
    });
    let records = text[..whole]
        .lines()
        .enumerate()
        .map(|(index, line)| read_line(line).map_err(|why| format!("{}: {why}", index + 1)))
        .collect::<Result<_, _>>()?;
    Ok((records, torn))
}

fn read_line(line: &str) -> Result<Record, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema: u32,
    }
    let version: Version = serde_json::from_str(line)
        .map_err(|error| format!("this is not a record of the lab: {error}"))?;
    if version.schema > SCHEMA {
        let found = version.schema;
        return Err(format!(
            "a record of schema {found}; this lab reads up to {SCHEMA}: use a newer esplanade-lab"
        ));
    }
    serde_json::from_str(line).map_err(|error| format!("this is not a complete record: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Outcome, done};
    use crate::report::fixture;
    use crate::stage::Stage;

    fn place(name: &str) -> PathBuf {
        let file = std::env::temp_dir().join(format!("lab-journal-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        file
    }

    #[test]
    fn a_reopened_journal_grows_behind_its_last_whole_record() {
        let file = place("grows");
        let records = fixture::cell("plain", 0, &[], &[1e9, 2e9, 3e9]);
        let mut journal = Journal::create(&file).unwrap();
        journal.append(&records[0]).unwrap();
        journal.append(&records[1]).unwrap();
        drop(journal);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, &text[..text.len() - 7]).unwrap();
        Journal::reopen(&file).unwrap().append(&records[2]).unwrap();
        let (read, torn) = read_all(&file).unwrap();
        assert_eq!(
            (read, torn),
            (vec![records[0].clone(), records[2].clone()], None)
        );
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn packed_records_are_read_where_there_are_no_others() {
        let file = place("packed");
        let records = fixture::cell("plain", 0, &[], &[1e9, 2e9]);
        let mut journal = Journal::create(&file).unwrap();
        records
            .iter()
            .for_each(|record| journal.append(record).unwrap());
        drop(journal);
        let gzip = std::process::Command::new("gzip").arg(&file).status();
        assert!(gzip.unwrap().success() && !file.exists());
        assert_eq!(read_all(&file).unwrap(), (records, None));
        let place = packed(&file);
        let bytes = std::fs::read(&place).unwrap();
        std::fs::write(&place, &bytes[..bytes.len() / 2]).unwrap();
        let why = read_all(&file).unwrap_err();
        assert!(
            why.starts_with(&format!("cannot read {}", place.display())),
            "{why}"
        );
        std::fs::remove_file(place).unwrap();
    }

    #[test]
    fn two_runs_cannot_write_one_journal() {
        let file = place("alone");
        let _writing = Journal::create(&file).unwrap();
        let refused = Journal::reopen(&file).err().unwrap().to_string();
        assert_eq!(refused, "another run is writing this file");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn what_was_interrupted_is_not_done() {
        let mut records = fixture::cell("plain", 4, &[], &[1e9, 2e9]);
        records[1].outcome = Outcome::Interrupted { stage: Stage::Load };
        assert_eq!(done(&records).into_iter().collect::<Vec<_>>(), [(1, 4)]);
    }
}
