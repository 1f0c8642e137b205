//! What a gateway passes to the process that replaces it (`esplanade restart`): the descriptors of its TUN device and
//! its sockets, over the control socket. Packets wait in these from the last read of the old process to the first one
//! of the new process.
//!
//! ```text
//!   old: reads no more ──► numbers are kept ──► descriptors, then "left" ──► ends
//!   new:                                        takes them up ───────────► the same device, the same ports
//! ```
//!
//! A newer program may be unable to use them: then it opens its own.

use dataplane::io::tun::TunOffloads;
use dataplane::train::TrainKinds;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The version of [`PassedDescriptors`]; nothing is handed over if it differs.
pub(crate) const FORMAT: u32 = 1;

/// Descriptors that pass at once, at most.
const MAX_DESCRIPTORS: usize = 128;

/// The byte that descriptors are sent with, before the answer itself: JSON ignores it.
const CARRIER: u8 = b' ';

/// One socket of the protected side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Need {
    /// ESP in UDP, at a local port.
    Udp {
        /// Over IPv6.
        v6: bool,
        /// The local port.
        port: u16,
    },
    /// Native ESP.
    Esp {
        /// Over IPv6.
        v6: bool,
    },
    /// AH, received.
    Ah {
        /// Over IPv6.
        v6: bool,
    },
    /// Packets that are sent with IP headers of the gateway's making: AH, and ESP behind options or extension headers.
    Whole {
        /// Over IPv6.
        v6: bool,
    },
}

/// Where the sockets send and receive.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outer {
    /// The network namespace that was requested.
    pub namespace: Option<String>,
    /// The device that was requested.
    pub device: Option<String>,
    /// The user of the sockets, as the drop rules see it.
    pub user: u32,
}

/// The TUN device's offloads, as its probes found them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trials {
    checksum: bool,
    read: [bool; 3],
    write: [bool; 3],
}

/// What the descriptors stand for, in their order: the TUN device first, if there is one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PassedDescriptors {
    /// The version of this format.
    pub format: u32,
    /// The TUN device.
    pub tun: Option<Trials>,
    /// Sockets.
    pub sockets: Vec<Need>,
    /// The network that the sockets belong to.
    pub outer: Outer,
}

/// What a gateway inherits from the previous one.
#[derive(Default)]
pub(crate) struct Inheritance {
    /// Its TUN device, with its offloads.
    pub tun: Option<(OwnedFd, TunOffloads)>,
    /// Its sockets.
    pub sockets: BTreeMap<Need, OwnedFd>,
    /// The network that the sockets belong to.
    pub outer: Outer,
}

impl Inheritance {
    /// Matches descriptors with what they stand for; nothing if the two do not match.
    pub(crate) fn of(passed: PassedDescriptors, descriptors: Vec<OwnedFd>) -> Self {
        let count = usize::from(passed.tun.is_some()) + passed.sockets.len();
        if passed.format != FORMAT || descriptors.len() != count {
            return Self::default();
        }
        let mut descriptors = descriptors.into_iter();
        let tun = passed
            .tun
            .and_then(|trials| Some((descriptors.next()?, trials.into())));
        Self {
            tun,
            sockets: passed.sockets.into_iter().zip(descriptors).collect(),
            outer: passed.outer,
        }
    }
}

impl From<TunOffloads> for Trials {
    fn from(abilities: TunOffloads) -> Self {
        let kinds = |takes: TrainKinds| [takes.tcp_v4, takes.tcp_v6, takes.udp];
        Self {
            checksum: abilities.checksum,
            read: kinds(abilities.read),
            write: kinds(abilities.write),
        }
    }
}

impl From<Trials> for TunOffloads {
    fn from(trials: Trials) -> Self {
        let takes = |[tcp_v4, tcp_v6, udp]: [bool; 3]| TrainKinds {
            tcp_v4,
            tcp_v6,
            udp,
        };
        Self {
            checksum: trials.checksum,
            read: takes(trials.read),
            write: takes(trials.write),
        }
    }
}

/// Sends descriptors, with one byte that carries them.
pub(crate) fn send(stream: &UnixStream, descriptors: &[OwnedFd]) -> io::Result<()> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&all));
    let carrier = [IoSlice::new(&[CARRIER])];
    sendmsg(stream, &carrier, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Reads the first byte of an answer, with the descriptors sent along.
pub(crate) fn receive(stream: &UnixStream) -> io::Result<(u8, Vec<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let received = loop {
        let into = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(stream, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            descriptors.extend(files);
        }
    }
    Ok((byte[0], descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn descriptors_arrive_with_what_they_are_and_the_answer_behind_them() {
        let (mut old, mut new) = UnixStream::pair().unwrap();
        let (kept, given) = UnixStream::pair().unwrap();
        let need = Need::Udp {
            v6: true,
            port: 4500,
        };
        let passed = PassedDescriptors {
            format: FORMAT,
            sockets: vec![need],
            ..PassedDescriptors::default()
        };
        send(&old, &[given.into()]).unwrap();
        old.write_all(&serde_json::to_vec(&passed).unwrap())
            .unwrap();
        drop(old);
        let (first, descriptors) = receive(&new).unwrap();
        let mut text = vec![first];
        new.read_to_end(&mut text).unwrap();
        let read: PassedDescriptors = serde_json::from_slice(&text).unwrap();
        assert_eq!(read, passed);
        let mut inherited = Inheritance::of(read, descriptors);
        let given = UnixStream::from(inherited.sockets.remove(&need).unwrap());
        (&kept).write_all(b"x").unwrap();
        let mut byte = [0];
        (&given).read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn what_does_not_go_together_is_of_no_use() {
        let descriptor = || OwnedFd::from(UnixStream::pair().unwrap().0);
        let sound = PassedDescriptors {
            format: FORMAT,
            sockets: vec![Need::Esp { v6: false }],
            ..PassedDescriptors::default()
        };
        assert_eq!(
            Inheritance::of(sound.clone(), vec![descriptor()])
                .sockets
                .len(),
            1
        );
        assert!(
            Inheritance::of(sound.clone(), Vec::new())
                .sockets
                .is_empty()
        );
        let newer = PassedDescriptors {
            format: FORMAT + 1,
            ..sound
        };
        assert!(
            Inheritance::of(newer, vec![descriptor()])
                .sockets
                .is_empty()
        );
    }

    #[test]
    fn an_answer_without_descriptors_is_read_as_ever() {
        let (mut old, new) = UnixStream::pair().unwrap();
        old.write_all(b"\"done\"\n").unwrap();
        let (first, descriptors) = receive(&new).unwrap();
        assert_eq!((first, descriptors.len()), (b'"', 0));
    }
}
