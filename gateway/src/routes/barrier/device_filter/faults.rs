//! Sorts errors: faults that keep filters off a device until an administrator repairs them, and errors that may be
//! gone at the next attempt.

use super::filtered_device::PREFERENCE;
use std::io;

/// Why a device has no filters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// There is no such device any more.
    Gone,
    /// The fault lasts until it is repaired; the text describes how.
    Lasting(String),
}

/// The fault of a device with an `ingress` qdisc, the predecessor of `clsact`, which has no egress hook.
pub(super) fn has_ingress_of_old(device: &str, kind: &str) -> Refusal {
    Refusal::Lasting(format!(
        "another program's qdisc `{kind}` is where `clsact` would be: configure that program to use clsact, or \
         delete the qdisc (tc qdisc del dev {device} {kind})"
    ))
}

/// Sorts an error of the kernel; what may succeed at the next attempt stays an error.
pub(super) fn sort(error: io::Error, device: &str, is_there: bool) -> io::Result<Refusal> {
    let lasting = |why: String| Ok(Refusal::Lasting(why));
    match error.raw_os_error() {
        Some(libc::ENODEV) => Ok(Refusal::Gone),
        Some(libc::ENOENT) => lasting(
            "this kernel does not support device filters: load the modules `sch_ingress` and `cls_bpf` (for a \
             container: on its host)"
                .to_owned(),
        ),
        Some(libc::EOPNOTSUPP) => lasting(
            "the device does not accept a filter of its own: it shares a filter block, or supports none".to_owned(),
        ),
        // The kernel returns the same error if the qdisc was deleted meanwhile, hence `is_there`.
        Some(libc::EINVAL) if is_there => lasting(format!(
            "another program's filters of another kind use preference {PREFERENCE}: change theirs, or delete them (tc \
             filter del dev {device} ingress pref {PREFERENCE}, and egress)"
        )),
        _ => Err(error),
    }
}

/// Faults of devices as one list: devices with the same fault share an entry.
pub(super) fn described<'a>(faults: impl Iterator<Item = &'a (String, String)>) -> Vec<String> {
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for (device, why) in faults {
        match told.iter_mut().find(|(known, _)| known == why) {
            Some((_, devices)) => devices.push(device),
            None => told.push((why, vec![device])),
        }
    }
    told.into_iter()
        .map(|(why, devices)| format!("{}: {why}", devices.join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_work_the_next_time_stays_an_error() {
        let sorted = |code, is_there| sort(io::Error::from_raw_os_error(code), "eth0", is_there);
        for code in [libc::EPERM, libc::ENOMEM, libc::ENOBUFS, libc::EEXIST] {
            assert_eq!(sorted(code, true).unwrap_err().raw_os_error(), Some(code));
        }
        assert!(sorted(libc::EINVAL, false).is_err());
        assert_eq!(sorted(libc::ENODEV, true).unwrap(), Refusal::Gone);
        let Refusal::Lasting(why) = sorted(libc::EINVAL, true).unwrap() else {
            panic!("a preference that is taken is not a device that is gone");
        };
        assert!(why.contains("pref 7"), "{why}");
    }

    #[test]
    fn the_same_fault_of_several_devices_is_reported_once() {
        let fault = |device: &str, why: &str| (device.to_owned(), why.to_owned());
        let all = [fault("eth0", "a"), fault("eth1", "b"), fault("eth2", "a")];
        assert_eq!(described(all.iter()), ["eth0, eth2: a", "eth1: b"]);
    }
}
