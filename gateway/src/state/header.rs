//! The first pages of the file: its version, its owner, and where it was last in use. Two copies, written in turn.

use super::machine::{MARK_LEN, Machine, Mark};
use super::record::checksum;

/// Bytes of one copy; records begin behind the second.
pub(super) const PAGE: usize = 4096;

/// What the file begins with.
const MAGIC: &[u8; 16] = b"esplanade number";

/// The layout; a file of another one is not read.
const VERSION: u64 = 1;

/// Bytes of the salt for names in this file.
pub(super) const SALT_LEN: usize = 32;

/// The header of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Header {
    /// Counts the starts with this file.
    pub generation: u64,
    /// Random, different for each file.
    pub salt: [u8; SALT_LEN],
    /// The machine and the boot of the last start.
    pub machine: Machine,
    /// The file's inode number, by which a copy is recognised in the same boot.
    pub inode: u64,
    /// The user of the gateway that uses it.
    pub owner: u64,
    /// The process of the last start.
    pub pid: u64,
    /// The network namespace of the last start, by its number.
    pub namespace: u64,
}

/// Why two pages are not a valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadHeader {
    /// Another program's file, or one that is damaged.
    Unknown,
    /// A state file of a layout that this version does not support.
    Version(u64),
}

impl Header {
    /// One copy, as it is written.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE);
        page.extend_from_slice(MAGIC);
        let words = |page: &mut Vec<u8>, words: &[u64]| {
            words
                .iter()
                .for_each(|word| page.extend_from_slice(&word.to_le_bytes()));
        };
        words(&mut page, &[VERSION, self.generation]);
        page.extend_from_slice(&self.salt);
        for mark in [
            self.machine.installation,
            self.machine.hardware,
            self.machine.generation,
            self.machine.boot,
        ] {
            page.extend_from_slice(&mark);
        }
        words(
            &mut page,
            &[self.inode, self.owner, self.pid, self.namespace],
        );
        page.resize(PAGE - 8, 0);
        let sum = checksum(&page);
        words(&mut page, &[sum]);
        page
    }

    /// The newer of the two copies, and whether it is the second.
    pub(super) fn read(pages: &[u8]) -> Result<(Self, bool), BadHeader> {
        let (first, second) = pages.split_at_checked(PAGE).unwrap_or((pages, &[]));
        match (Self::decode(first), Self::decode(second)) {
            (Ok(first), Ok(second)) if second.generation > first.generation => Ok((second, true)),
            (Ok(first), _) => Ok((first, false)),
            (_, Ok(second)) => Ok((second, true)),
            (Err(BadHeader::Unknown), Err(why)) | (Err(why), Err(_)) => Err(why),
        }
    }

    fn decode(page: &[u8]) -> Result<Self, BadHeader> {
        let mut rest = page;
        let take = |rest: &mut &[u8], len: usize| -> Result<Vec<u8>, BadHeader> {
            let (part, left) = rest.split_at_checked(len).ok_or(BadHeader::Unknown)?;
            *rest = left;
            Ok(part.to_vec())
        };
        let word = |rest: &mut &[u8]| -> Result<u64, BadHeader> {
            let mut word = [0; 8];
            word.copy_from_slice(&take(rest, 8)?);
            Ok(u64::from_le_bytes(word))
        };
        let mark = |rest: &mut &[u8]| -> Result<Mark, BadHeader> {
            let mut mark = Mark::default();
            mark.copy_from_slice(&take(rest, MARK_LEN)?);
            Ok(mark)
        };
        if page.len() < PAGE || take(&mut rest, MAGIC.len())? != MAGIC {
            return Err(BadHeader::Unknown);
        }
        let version = word(&mut rest)?;
        let mut sum = &page[PAGE - 8..PAGE];
        if word(&mut sum)? != checksum(&page[..PAGE - 8]) {
            return Err(BadHeader::Unknown);
        }
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        let generation = word(&mut rest)?;
        let mut salt = [0; SALT_LEN];
        salt.copy_from_slice(&take(&mut rest, SALT_LEN)?);
        Ok(Self {
            generation,
            salt,
            machine: Machine {
                installation: mark(&mut rest)?,
                hardware: mark(&mut rest)?,
                generation: mark(&mut rest)?,
                boot: mark(&mut rest)?,
            },
            inode: word(&mut rest)?,
            owner: word(&mut rest)?,
            pid: word(&mut rest)?,
            namespace: word(&mut rest)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(generation: u64) -> Header {
        Header {
            generation,
            salt: [5; SALT_LEN],
            machine: Machine {
                boot: [6; MARK_LEN],
                ..Machine::default()
            },
            inode: 7,
            owner: 1000,
            pid: 8,
            namespace: 9,
        }
    }

    #[test]
    fn the_newer_whole_copy_holds() {
        let pages =
            |first: u64, second: u64| [header(first).encode(), header(second).encode()].concat();
        assert_eq!(Header::read(&pages(3, 4)), Ok((header(4), true)));
        assert_eq!(Header::read(&pages(5, 4)), Ok((header(5), false)));
        let mut torn = pages(3, 4);
        torn[PAGE + 100] ^= 1;
        assert_eq!(Header::read(&torn), Ok((header(3), false)));
        torn[100] ^= 1;
        assert_eq!(Header::read(&torn), Err(BadHeader::Unknown));
        assert_eq!(Header::read(&pages(3, 4)[..PAGE]), Ok((header(3), false)));
        assert_eq!(Header::read(b"short"), Err(BadHeader::Unknown));
    }

    #[test]
    fn a_later_layout_is_named_in_the_error() {
        let mut page = header(1).encode();
        page[16..24].copy_from_slice(&7u64.to_le_bytes());
        let sum = checksum(&page[..PAGE - 8]);
        page[PAGE - 8..].copy_from_slice(&sum.to_le_bytes());
        page.resize(2 * PAGE, 0);
        assert_eq!(Header::read(&page), Err(BadHeader::Version(7)));
    }
}
