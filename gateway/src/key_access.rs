//! Files that hold keys: who else could read or replace them, and reading them without leaving copies behind.

use crate::privileges::User;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use zeroize::Zeroizing;

/// Which other users could read or replace the keys in a file. Pipes and other special files are not checked.
pub(crate) fn doubt(found: &Metadata, user: &User) -> Option<String> {
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    let is_ours = owner == user.uid() || User::is_trusted(owner);
    match mode {
        _ if !found.is_file() => None,
        _ if !is_ours => Some(format!("belongs to user {owner}, who can change them")),
        _ if mode & 0o022 != 0 => Some(format!("others may write it (mode {mode:04o})")),
        _ if mode & 0o004 != 0 => Some(format!("everybody may read it (mode {mode:04o})")),
        _ => None,
    }
}

/// Reads into memory that never moves while it is filled, because each move would leave a copy of the keys behind.
pub(crate) fn read_whole(file: &mut File, len: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(len).unwrap_or(0) + 4096));
    let mut room = Zeroizing::new([0; 4096]);
    loop {
        let count = match file.read(&mut room[..]) {
            Ok(0) => return Ok(text),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if text.len() + count > text.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(2 * text.capacity() + count));
            larger.extend_from_slice(&text);
            text = larger;
        }
        text.extend_from_slice(&room[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_others_may_read_or_write_are_doubted() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("esplanade-keys-{}", std::process::id()));
        std::fs::write(&path, "flush;").unwrap();
        let doubt_of = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            doubt(&std::fs::metadata(&path).unwrap(), &User::current()).unwrap_or_default()
        };
        assert_eq!([doubt_of(0o600), doubt_of(0o640)], ["", ""]);
        for (mode, words) in [
            (0o666, "write"),
            (0o620, "write"),
            (0o644, "everybody may read"),
        ] {
            assert!(doubt_of(mode).contains(words), "{mode:o}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_is_read_whole_whatever_length_it_claims() {
        let path = std::env::temp_dir().join(format!("esplanade-whole-{}", std::process::id()));
        let bytes: Vec<u8> = (0..100_000).map(|n| n as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        for len in [0, 1, 100_000, 200_000] {
            let text = read_whole(&mut File::open(&path).unwrap(), len).unwrap();
            assert_eq!(*text, bytes);
        }
        std::fs::remove_file(path).unwrap();
    }
}
