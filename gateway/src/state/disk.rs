//! Where bytes are kept: a file, or in tests a model of one that forgets what was not synced.

use rustix::fs::fstat;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at offsets. What was written is sure to be found after a power failure only once [`Disk::sync`] has returned.
pub(super) trait Disk: Send {
    /// How long it is, or why what is written there would be lost.
    fn len(&self) -> io::Result<u64>;

    /// Reads what is there; less than asked for at its end.
    fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize>;

    /// Writes all of it, beyond the end too.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns once everything written so far would survive a power failure.
    fn sync(&mut self) -> io::Result<()>;
}

/// By `pread`, `pwrite` and `fdatasync` on one descriptor, and no mapping: a file that another program makes shorter
/// costs a mapping's owner his life (SIGBUS), and a killed process loses nothing either way.
impl Disk for File {
    fn len(&self) -> io::Result<u64> {
        let found = fstat(self)?;
        match found.st_nlink {
            0 => Err(io::Error::other("another program has removed the file")),
            _ => Ok(found.st_size.try_into().unwrap_or(0)),
        }
    }

    fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < room.len() {
            match FileExt::read_at(self, &mut room[read..], at + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
