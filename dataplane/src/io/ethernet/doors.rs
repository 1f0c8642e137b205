//! The device's ways out: for frames, for trains, and the kernel's own for packets without a known neighbour. Each is
//! opened when it is first needed.

use super::EthernetOptions;
use super::trains::TrainExit;
use super::ways::any;
use crate::io::packet::NativeIo;
use crate::io::packet::exit::{Ends, Exit};
use crate::io::raw::{WholeSink, open_whole};
use crate::io::{Delivery, Family, Parcel, Paths, ProtectedSink, Sent, SocketOptions, Warn};
use ipsec::packet::Outline;
use ipsec::tunnel::Outer;
use ipsec::wire::ip::pass_hop;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so long an exit that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// All ways out of one device.
pub(super) struct Doors {
    options: EthernetOptions,
    gate: Gate,
    trains: TrainGate,
    raw: [Option<WholeSink>; 2],
    warn: Warn,
}

/// The device's exit, or when it failed.
enum Gate {
    New,
    Open(Exit),
    Shut(Instant),
}

/// The same for trains: what failed once is done without.
enum TrainGate {
    New,
    Open(TrainExit),
    Shut,
}

impl Doors {
    pub fn of(options: EthernetOptions, warn: Warn) -> Self {
        Self {
            options,
            gate: Gate::New,
            trains: TrainGate::New,
            raw: [None, None],
            warn,
        }
    }

    pub fn options(&self) -> &EthernetOptions {
        &self.options
    }

    /// Opens the device's exit if need be.
    pub fn exit(&mut self, now: Instant) -> Option<&mut Exit> {
        let is_due = match &self.gate {
            Gate::New => true,
            Gate::Open(_) => false,
            Gate::Shut(since) => now - *since >= TRY_AGAIN,
        };
        if is_due {
            self.gate = self.try_to_open().map_or(Gate::Shut(now), Gate::Open);
        }
        match &mut self.gate {
            Gate::Open(exit) => Some(exit),
            _ => None,
        }
    }

    fn try_to_open(&self) -> Option<Exit> {
        let order: &[NativeIo] = match self.options.way {
            NativeIo::Xdp => &[NativeIo::Xdp, NativeIo::Packet],
            _ => &[NativeIo::Packet],
        };
        order.iter().find_map(|way| {
            Exit::open(*way, self.options.device, self.options.mtu)
                .map_err(|why| {
                    (self.warn)(&format!(
                        "packets cannot leave {} by `{way}` ({why}): doing without, slower",
                        self.options.name
                    ));
                })
                .ok()
        })
    }

    /// The exit has failed: the device is down, or gone, and may come back.
    pub fn shut(&mut self, now: Instant) {
        self.gate = Gate::Shut(now);
    }

    /// Sends a train one hop on. False if it has to be cut before.
    pub fn send_train(&mut self, ends: &Ends, train: &Delivery<'_>, sent: &mut Sent) -> bool {
        if let TrainGate::New = self.trains {
            self.trains = match TrainExit::open(self.options.device) {
                Ok(exit) => TrainGate::Open(exit),
                Err(why) => self.do_without_trains(&why),
            };
        }
        let TrainGate::Open(exit) = &mut self.trains else {
            return false;
        };
        match exit.send(ends, train, sent) {
            Ok(went) => went,
            // Down, or gone: its packets meet the same, and are counted.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO)) => {
                false
            }
            Err(error) => {
                self.trains = self.do_without_trains(&error);
                false
            }
        }
    }

    fn do_without_trains(&self, why: &io::Error) -> TrainGate {
        (self.warn)(&format!(
            "trains cannot leave {} whole ({why}): they are cut here, slower",
            self.options.name
        ));
        TrainGate::Shut
    }

    /// Sends a packet one hop on through the raw socket: the kernel finds the neighbour, and keeps the packet while it does.
    pub fn send_by_raw_socket(&mut self, packet: &[u8], sent: &mut Sent) {
        let mut packet = packet.to_vec();
        let outcome = match (pass_hop(&mut packet), Outline::read(&packet)) {
            (true, Ok(outline)) => self.deliver_by_raw_socket(&packet, &outline),
            _ => None,
        };
        match outcome {
            Some(outcome) => *sent += outcome,
            None => sent.failed += 1,
        }
    }

    fn deliver_by_raw_socket(&mut self, packet: &[u8], outline: &Outline) -> Option<Sent> {
        let parcel = Parcel {
            outer: Outer {
                // Whoever sent it: the kernel asks only whether the host is this one.
                source: any(outline.destination),
                destination: outline.destination,
                protocol: outline.protocol,
                ports: None,
                traffic_class: outline.traffic_class,
                dont_fragment: true,
                hop_limit: outline.hop_limit,
                written: outline.header_len as u16,
            },
            bytes: packet,
            stride: packet.len(),
        };
        let raw = self.raw_socket(Family::of(outline.destination))?;
        raw.deliver(&[parcel]).ok()
    }

    fn raw_socket(&mut self, family: Family) -> Option<&mut WholeSink> {
        let place = usize::from(family == Family::V6);
        if self.raw[place].is_none() {
            let mut options = SocketOptions::new(Paths::default(), Arc::clone(&self.warn));
            options.mark = Some(self.options.mark);
            options.device = Some(self.options.name.clone());
            self.raw[place] = open_whole(family, &options)
                .map_err(|why| {
                    (self.warn)(&format!("packets for unknown neighbours are lost: {why}"));
                })
                .ok();
        }
        self.raw[place].as_mut()
    }
}
