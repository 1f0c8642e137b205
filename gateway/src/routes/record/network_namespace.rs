//! The network namespace and boot in which a record about the kernel's tables is valid.
//!
//! The kernel reuses a namespace's inode number for a later namespace. So the record also has the kernel's cookie, which
//! is unique within a boot. A namespace still exists if a process is in it or a mount refers to it.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// A network namespace of a boot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NetworkNamespace {
    /// The kernel's boot id.
    boot: String,
    /// The device number of the namespace's file.
    device: u64,
    /// The inode number of the namespace's file.
    inode: u64,
    /// The kernel's cookie of the namespace; 0 if the kernel is older than 5.14.
    cookie: u64,
}

/// How a recorded namespace relates to the current one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NamespaceState {
    /// It is the same.
    Here,
    /// The host has been rebooted since: nothing of it is left.
    BeforeBoot,
    /// A namespace that no visible process is in and no visible mount refers to.
    Gone(String),
    /// Another namespace, with its name and how to enter it.
    Elsewhere {
        /// Such as `net:[4026532281]`, with its name of `ip netns` if it has one.
        name: String,
        /// The prefix for a command that should run there.
        enter: String,
    },
}

impl NetworkNamespace {
    /// The current namespace and boot.
    pub(crate) fn here() -> io::Result<Self> {
        let namespace = fs::metadata("/proc/thread-self/ns/net")?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Ok(Self {
            boot: boot.trim().to_owned(),
            device: namespace.dev(),
            inode: namespace.ino(),
            cookie: cookie().unwrap_or(0),
        })
    }

    /// How this namespace relates to the current one.
    pub(crate) fn seen_from_here(&self) -> io::Result<NamespaceState> {
        let here = Self::here()?;
        if *self == here {
            return Ok(NamespaceState::Here);
        }
        if self.boot != here.boot {
            return Ok(NamespaceState::BeforeBoot);
        }
        let number = format!("net:[{}]", self.inode);
        // The inode number is the current namespace's, but the cookie is not: an earlier namespace had the number.
        if (self.device, self.inode) == (here.device, here.inode) {
            return Ok(NamespaceState::Gone(number));
        }
        Ok(mounted(&number)
            .or_else(|| inhabited(&number))
            .unwrap_or(NamespaceState::Gone(number)))
    }
}

/// A namespace that a mount refers to, such as those of `ip netns`.
fn mounted(number: &str) -> Option<NamespaceState> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // Fields 4 and 5: what is mounted, and where.
    let path = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        (fields.next() == Some(number)).then(|| fields.next())?
    })?;
    let (name, enter) = match path.strip_prefix("/run/netns/") {
        Some(name) => (
            format!("{name} ({number})"),
            format!("ip netns exec {name}"),
        ),
        None => (number.to_owned(), format!("nsenter --net={path}")),
    };
    Some(NamespaceState::Elsewhere { name, enter })
}

/// A namespace that a process is in.
fn inhabited(number: &str) -> Option<NamespaceState> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let inside = processes
        .map(|process| process.path().join("ns/net"))
        .find(|link| fs::read_link(link).is_ok_and(|target| target.as_os_str() == number))?;
    Some(NamespaceState::Elsewhere {
        name: number.to_owned(),
        enter: format!("nsenter --net={}", inside.display()),
    })
}

/// `SO_NETNS_COOKIE` of a new socket.
fn cookie() -> Option<u64> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
    let (mut cookie, mut len) = (0u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes into `cookie`, and both live through the call.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    (outcome == 0).then_some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_found_again_and_distinguished_from_others() {
        let here = NetworkNamespace::here().unwrap();
        assert_eq!(here.seen_from_here().unwrap(), NamespaceState::Here);
        let earlier = NetworkNamespace {
            boot: "another".to_owned(),
            ..here.clone()
        };
        assert_eq!(
            earlier.seen_from_here().unwrap(),
            NamespaceState::BeforeBoot
        );
        let gone = NetworkNamespace {
            inode: 7,
            ..here.clone()
        };
        let number = "net:[7]".to_owned();
        assert_eq!(gone.seen_from_here().unwrap(), NamespaceState::Gone(number));
        let reused = NetworkNamespace {
            cookie: here.cookie + 1,
            ..here
        };
        assert!(matches!(
            reused.seen_from_here().unwrap(),
            NamespaceState::Gone(_)
        ));
    }
}
