//! What a gateway passes to the process that replaces it (`esplanade restart`): the descriptors of its TUN device and
//! its sockets, over the control socket. Packets wait in these from the last read of the old process to the first one
//! of the new process.
//!
//! ```text
//!   old: reads no more ──► numbers are kept ──► descriptors, then "left" ──► ends
//!   new:                                        takes them up ───────────► the same device, the same ports
//! ```
//!
//! A newer program may be unable to use them: then it opens its own. With key exchange its sockets come too, and the
//! child SAs that were negotiated ([`PassedKeyExchange`]).

mod descriptors;
mod key_exchange;

pub(crate) use descriptors::{receive, receive_all, send};
pub(crate) use key_exchange::{PassedChild, PassedCounters, PassedKeyExchange, PassedReqids};

use dataplane::io::Family;
use dataplane::io::tun::TunOffloads;
use dataplane::io::udp::FirstSocket;
use dataplane::train::TrainKinds;
use ikev2::connection::NAT_PORT;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The version of [`PassedDescriptors`]; nothing is handed over if it differs.
pub(crate) const FORMAT: u32 = 1;

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

/// What the descriptors stand for, in their order: the TUN device first, if there is one, then the rest as it is listed
/// here, and the sockets of key exchange last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PassedDescriptors {
    /// The version of this format.
    pub format: u32,
    /// The TUN device.
    pub tun: Option<Trials>,
    /// Sockets.
    pub sockets: Vec<Need>,
    /// Of each family in which key exchange shares port 4500 with ESP in UDP (whether it is IPv6): whether the socket
    /// of ESP was bound first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub esp_is_first: Vec<(bool, bool)>,
    /// TUN devices of associations and peers, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<(String, Trials)>,
    /// The network that the sockets belong to.
    pub outer: Outer,
    /// Of a gateway that negotiates keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_exchange: Option<PassedKeyExchange>,
}

/// What a gateway inherits from the previous one.
#[derive(Default)]
pub(crate) struct Inheritance {
    /// Its TUN device, with its offloads.
    pub tun: Option<(OwnedFd, TunOffloads)>,
    /// Its sockets.
    pub sockets: BTreeMap<Need, OwnedFd>,
    /// Which of the two sockets of port 4500 was bound first, by family (whether IPv6).
    pub order: BTreeMap<bool, FirstSocket>,
    /// TUN devices of associations and peers, by name.
    pub devices: BTreeMap<String, (OwnedFd, TunOffloads)>,
    /// The network that the sockets belong to.
    pub outer: Outer,
    /// The sockets of its key exchange, and what it has negotiated.
    pub key_exchange: Option<(Vec<OwnedFd>, PassedKeyExchange)>,
}

impl Inheritance {
    /// Matches descriptors with what they stand for; nothing if the two do not match.
    pub(crate) fn of(passed: PassedDescriptors, descriptors: Vec<OwnedFd>) -> Self {
        let for_ike = passed.key_exchange.as_ref().map_or(0, |ike| ike.sockets);
        let count = usize::from(passed.tun.is_some())
            + passed.sockets.len()
            + passed.devices.len()
            + for_ike;
        if passed.format != FORMAT || descriptors.len() != count {
            return Self::default();
        }
        let mut descriptors = descriptors.into_iter();
        let tun = passed
            .tun
            .and_then(|trials| Some((descriptors.next()?, trials.into())));
        // In this order: a zip ends with its shorter side, before it takes a descriptor.
        let sockets = passed.sockets.into_iter().zip(&mut descriptors).collect();
        let devices = passed.devices.into_iter().zip(&mut descriptors);
        let devices = devices.map(|((name, trials), queue)| (name, (queue, trials.into())));
        let devices = devices.collect();
        Self {
            tun,
            sockets,
            order: passed.esp_is_first.into_iter().map(order).collect(),
            devices,
            outer: passed.outer,
            key_exchange: passed.key_exchange.map(|ike| (descriptors.collect(), ike)),
        }
    }
}

impl Inheritance {
    /// Sockets of another network, and what was negotiated there, are of no use.
    pub(crate) fn keep_only_of(&mut self, outer: &Outer) {
        if self.outer != *outer {
            self.sockets.clear();
            self.key_exchange = None;
        }
    }

    /// The part of a key exchange that has peers, or may get some. On the port that it shares with ESP in UDP the order
    /// in which the sockets were bound decides which gets what: those that were bound in another order are let go.
    pub(crate) fn take_key_exchange(
        &mut self,
        has_peers: bool,
    ) -> (Vec<OwnedFd>, PassedKeyExchange) {
        let passed = self.key_exchange.take();
        let is_alike = |(sockets, _): &(Vec<OwnedFd>, _)| has_peers || sockets.is_empty();
        if !passed.as_ref().is_some_and(is_alike) {
            let is_shared =
                |need: &Need| matches!(need, Need::Udp { port, .. } if *port == NAT_PORT);
            self.sockets.retain(|need, _| !is_shared(need));
        }
        passed.filter(|_| has_peers).unwrap_or_default()
    }

    /// Which of the two sockets of the shared port there is first.
    pub(crate) fn first_socket(&self, family: Family) -> FirstSocket {
        let v6 = family == Family::V6;
        let port = NAT_PORT;
        let has_esp = self.sockets.contains_key(&Need::Udp { v6, port });
        if has_esp {
            FirstSocket::Esp
        } else {
            FirstSocket::Ike
        }
    }
}

fn order((v6, esp_is_first): (bool, bool)) -> (bool, FirstSocket) {
    let first = if esp_is_first {
        FirstSocket::Esp
    } else {
        FirstSocket::Ike
    };
    (v6, first)
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

#[cfg(test)]
mod tests {
    use super::descriptors::MAX_MESSAGE_DESCRIPTORS;
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

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
        let (first, descriptors) = receive_all(&new).unwrap();
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
    fn more_descriptors_than_one_message_takes_arrive_in_their_order() {
        let (mut old, new) = UnixStream::pair().unwrap();
        let count = 2 * MAX_MESSAGE_DESCRIPTORS + 1;
        let ends: Vec<_> = (0..count).map(|_| UnixStream::pair().unwrap()).collect();
        let (kept, given): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let given: Vec<OwnedFd> = given.into_iter().map(OwnedFd::from).collect();
        send(&old, &given).unwrap();
        old.write_all(b"{}").unwrap();
        let (first, received) = receive_all(&new).unwrap();
        assert_eq!((first, received.len()), (b'{', count));
        for (number, (mut kept, received)) in kept.into_iter().zip(received).enumerate() {
            let number = u32::try_from(number).unwrap().to_be_bytes();
            kept.write_all(&number).unwrap();
            let mut read = [0; 4];
            UnixStream::from(received).read_exact(&mut read).unwrap();
            assert_eq!(read, number);
        }
    }

    #[test]
    fn sockets_beside_those_of_ike_are_kept_by_a_key_exchange_alone_that_has_the_same() {
        let shared = Need::Udp {
            v6: false,
            port: NAT_PORT,
        };
        let inherited = |with_ike: Option<usize>| {
            let descriptor = || OwnedFd::from(UnixStream::pair().unwrap().0);
            let sockets = [shared, Need::Esp { v6: false }].map(|need| (need, descriptor()));
            let key_exchange = with_ike.map(|count| {
                let sockets = (0..count).map(|_| descriptor()).collect();
                (sockets, PassedKeyExchange::default())
            });
            Inheritance {
                sockets: sockets.into(),
                key_exchange,
                ..Inheritance::default()
            }
        };
        for (with_ike, has_peers, taken, is_kept) in [
            (None, false, 0, false),
            (None, true, 0, false),
            (Some(0), false, 0, true),
            (Some(0), true, 0, true),
            (Some(4), true, 4, true),
            (Some(4), false, 0, false),
        ] {
            let mut inheritance = inherited(with_ike);
            let (sockets, _) = inheritance.take_key_exchange(has_peers);
            let case = (with_ike, has_peers);
            assert_eq!(sockets.len(), taken, "{case:?}");
            assert_eq!(
                inheritance.sockets.contains_key(&shared),
                is_kept,
                "{case:?}"
            );
            assert_eq!(
                inheritance.sockets.len(),
                1 + usize::from(is_kept),
                "{case:?}"
            );
        }
    }

    #[test]
    fn an_answer_without_descriptors_is_read_as_ever() {
        let (mut old, new) = UnixStream::pair().unwrap();
        old.write_all(b"\"done\"\n").unwrap();
        let (first, descriptors) = receive_all(&new).unwrap();
        assert_eq!((first, descriptors.len()), (b'"', 0));
    }
}
