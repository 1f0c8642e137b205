//! The user of the gateway's sockets, as the drop rules see it: our user's number in the user namespace that owns the
//! network namespace.

use crate::routes::plan::Senders;
use dataplane::io::Warn;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// `NS_GET_USERNS` of `linux/nsfs.h`: the user namespace to which a namespace belongs.
const OWNER_OF_NAMESPACE: libc::Ioctl = 0xb701;

/// The user of this process, if the network namespace's user namespace has the same numbers as ours.
pub(super) fn of_this_process(warn: &Warn) -> Senders {
    match counts_as_we_do() {
        Ok(true) => {
            let user = rustix::process::geteuid().as_raw();
            Senders::Users([user].into())
        }
        outcome => {
            let why = outcome
                .err()
                .map_or("its user ids are mapped".to_owned(), |error| {
                    format!("its owner is unknown: {error}")
                });
            warn(&format!(
                "this network namespace belongs to another user namespace ({why}): other processes that send ESP, AH \
                 or UDP from the gateway's ports to a peer with its mark cannot be recognised by their user"
            ));
            Senders::Any
        }
    }
}

fn counts_as_we_do() -> io::Result<bool> {
    let network = File::open("/proc/thread-self/ns/net")?;
    // SAFETY: the call takes no pointer; it gives a new descriptor, or less than 0.
    let owner = unsafe { libc::ioctl(network.as_raw_fd(), OWNER_OF_NAMESPACE) };
    if owner < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so nothing else owns it.
    let owner = File::from(unsafe { OwnedFd::from_raw_fd(owner) });
    let (owner, ours) = (
        owner.metadata()?,
        fs::metadata("/proc/thread-self/ns/user")?,
    );
    Ok((owner.dev(), owner.ino()) == (ours.dev(), ours.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    use std::sync::Arc;

    #[test]
    fn in_a_network_namespace_of_our_own_we_are_known_by_our_number() {
        let warn: Warn = Arc::new(|text: &str| panic!("{text}"));
        let found = std::thread::spawn(move || {
            if rustix::process::geteuid().is_root() {
                // SAFETY: only the network namespace of this thread changes; no descriptor or memory is unshared.
                unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            }
            of_this_process(&warn)
        });
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(found.join().unwrap(), Senders::Users([user].into()));
    }
}
