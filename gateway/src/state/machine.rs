//! Identifies the machine and the boot, so that the state of another one is recognised.
//!
//! A copied virtual machine continues with the same numbers as its original, and one that is reset to a snapshot uses
//! numbers again. The identifiers that distinguish them are read where they exist; one that cannot be read is not
//! compared.

use super::key_fingerprint::keyed_hash;
use std::fs;

/// Bytes of a mark.
pub(super) const MARK_LEN: usize = 16;

/// A hash that identifies something; zeroes where it could not be read.
pub(super) type Mark = [u8; MARK_LEN];

/// Marks of this machine, in the order in which the file has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Machine {
    /// The installation, by `/etc/machine-id`.
    pub installation: Mark,
    /// The hardware or the virtual machine, by its firmware's UUID.
    pub hardware: Mark,
    /// The VM generation ID, which a hypervisor changes when it copies a machine or resets it to a snapshot.
    pub generation: Mark,
    /// The boot.
    pub boot: Mark,
}

/// How a state differs from one of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Foreign {
    /// Another installation or other hardware.
    Machine,
    /// The virtual machine was copied or reset to a snapshot.
    Generation,
}

impl Machine {
    /// The marks of this machine. The identifiers are not secret, but hashing keeps state files from spreading them.
    pub(super) fn here(salt: &[u8]) -> Self {
        let mark = |path: &str| mark(salt, &fs::read(path).unwrap_or_default());
        Self {
            installation: mark("/etc/machine-id"),
            hardware: mark("/sys/class/dmi/id/product_uuid"),
            generation: mark("/sys/firmware/qemu_fw_cfg/by_name/etc/vmgenid_guid/raw"),
            boot: mark("/proc/sys/kernel/random/boot_id"),
        }
    }

    /// Whether a state with these marks was made elsewhere.
    pub(super) fn foreign(&self, state: &Self) -> Option<Foreign> {
        let differ = |ours: Mark, theirs: Mark| {
            let unknown = Mark::default();
            ours != unknown && theirs != unknown && ours != theirs
        };
        if differ(self.installation, state.installation) || differ(self.hardware, state.hardware) {
            return Some(Foreign::Machine);
        }
        differ(self.generation, state.generation).then_some(Foreign::Generation)
    }
}

fn mark(salt: &[u8], content: &[u8]) -> Mark {
    let content = content.trim_ascii();
    // systemd writes this word for an installation that has no ID yet.
    if content.is_empty() || content == b"uninitialized" {
        return Mark::default();
    }
    let mut mark = Mark::default();
    mark.copy_from_slice(&keyed_hash(salt, content)[..MARK_LEN]);
    mark
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(marks: [u8; 4]) -> Machine {
        let [installation, hardware, generation, boot] = marks.map(|byte| [byte; MARK_LEN]);
        Machine {
            installation,
            hardware,
            generation,
            boot,
        }
    }

    #[test]
    fn only_marks_present_on_both_sides_distinguish_machines() {
        let here = machine([1, 2, 3, 4]);
        for (there, foreign) in [
            ([1, 2, 3, 4], None),
            ([1, 2, 3, 9], None),
            ([0, 0, 0, 0], None),
            ([9, 2, 3, 4], Some(Foreign::Machine)),
            ([1, 9, 3, 4], Some(Foreign::Machine)),
            ([0, 2, 9, 4], Some(Foreign::Generation)),
        ] {
            assert_eq!(here.foreign(&machine(there)), foreign, "{there:?}");
            assert_eq!(machine(there).foreign(&here), foreign, "{there:?}");
        }
    }

    #[test]
    fn a_mark_depends_on_the_salt_and_is_absent_for_nothing() {
        assert_ne!(mark(b"a", b"id\n"), mark(b"b", b"id"));
        assert_eq!(mark(b"a", b"id\n"), mark(b"a", b"id"));
        assert_eq!(mark(b"a", b"\n"), Mark::default());
        assert_eq!(mark(b"a", b"uninitialized\n"), Mark::default());
    }

    #[test]
    fn this_machine_is_not_foreign_to_itself() {
        let here = Machine::here(b"salt");
        assert_eq!(here.foreign(&Machine::here(b"salt")), None);
        assert_ne!(here.boot, Mark::default());
    }
}
