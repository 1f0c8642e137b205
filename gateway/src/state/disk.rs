//! Where bytes are stored: a file, or in tests a model of one that loses what was not synced.

use rustix::fs::fstat;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at offsets. Written bytes are certain to survive a power failure only once [`Disk::sync`] has returned.
pub(super) trait Disk: Send {
    /// Its length, or an error if written bytes would be lost.
    fn len(&self) -> io::Result<u64>;

    /// Reads up to the length of `room`; less at the end of the file.
    fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize>;

    /// Writes all of it, also beyond the end of the file.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns once everything written so far would survive a power failure.
    fn sync(&mut self) -> io::Result<()>;
}

/// By `pread`, `pwrite` and `fdatasync` on one descriptor, without a mapping: if another program truncates the file,
/// access to a mapping kills the process (SIGBUS). A process that is killed loses no written bytes either way.
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
