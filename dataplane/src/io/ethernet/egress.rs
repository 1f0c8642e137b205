//! The device's egress: for frames, for trains, and by a raw socket for packets without a known neighbour. Each is
//! opened when it is first needed.

use super::gso::GsoSocket;
use super::neighbour_cache::unspecified;
use super::options::EthernetOptions;
use crate::io::packet::egress::Egress;
use crate::io::packet::{LinkAddresses, NativeIo};
use crate::io::raw::{HdrinclSink, open_hdrincl};
use crate::io::{Burst, Delivery, Family, PmtuCache, ProtectedSink, Sent, SocketOptions, Warn};
use ipsec::packet::Outline;
use ipsec::tunnel::Outer;
use ipsec::wire::ip::decrement_hop_limit;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After this time an egress that failed is tried again.
const EGRESS_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The three ways to send by one device.
pub(super) struct DeviceEgress {
    options: EthernetOptions,
    state: EgressState,
    gso: GsoState,
    raw: [Option<HdrinclSink>; 2],
    warn: Warn,
}

/// State of the egress for frames: when it failed, it is tried again later.
enum EgressState {
    New,
    Open(Egress),
    Failed(Instant),
}

/// State of the egress for trains: after one failure it is not used any more.
enum GsoState {
    New,
    Open(GsoSocket),
    Failed,
}

impl DeviceEgress {
    pub fn new(options: EthernetOptions, warn: Warn) -> Self {
        Self {
            options,
            state: EgressState::New,
            gso: GsoState::New,
            raw: [None, None],
            warn,
        }
    }

    pub fn options(&self) -> &EthernetOptions {
        &self.options
    }

    /// The egress for frames, opened if necessary.
    pub fn open(&mut self, now: Instant) -> Option<&mut Egress> {
        let is_due = match &self.state {
            EgressState::New => true,
            EgressState::Open(_) => false,
            EgressState::Failed(since) => now - *since >= EGRESS_RETRY_INTERVAL,
        };
        if is_due {
            self.state = self
                .try_to_open()
                .map_or(EgressState::Failed(now), EgressState::Open);
        }
        match &mut self.state {
            EgressState::Open(egress) => Some(egress),
            _ => None,
        }
    }

    fn try_to_open(&self) -> Option<Egress> {
        let order: &[NativeIo] = match self.options.native_io {
            NativeIo::Xdp => &[NativeIo::Xdp, NativeIo::Packet],
            _ => &[NativeIo::Packet],
        };
        order.iter().find_map(|native_io| {
            Egress::open(*native_io, self.options.device, self.options.mtu)
                .map_err(|why| {
                    (self.warn)(&format!(
                        "packets cannot leave {} by `{native_io}` ({why}): using a slower path",
                        self.options.name
                    ));
                })
                .ok()
        })
    }

    /// Marks the egress as failed: the device is down or gone, and may come back.
    pub fn mark_failed(&mut self, now: Instant) {
        self.state = EgressState::Failed(now);
    }

    /// Forwards a train. False if it has to be segmented first.
    pub fn send_train(
        &mut self,
        addresses: &LinkAddresses,
        train: &Delivery<'_>,
        sent: &mut Sent,
    ) -> bool {
        if let GsoState::New = self.gso {
            self.gso = match GsoSocket::open(self.options.device) {
                Ok(egress) => GsoState::Open(egress),
                Err(why) => self.disable_gso(&why),
            };
        }
        let GsoState::Open(egress) = &mut self.gso else {
            return false;
        };
        match egress.send(addresses, train, sent) {
            Ok(went) => went,
            // The device is down or gone: the train's packets fail too, and are counted.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO)) => {
                false
            }
            Err(error) => {
                self.gso = self.disable_gso(&error);
                false
            }
        }
    }

    fn disable_gso(&self, why: &io::Error) -> GsoState {
        (self.warn)(&format!(
            "GSO does not work on {} ({why}): GSO buffers are segmented in software (slower)",
            self.options.name
        ));
        GsoState::Failed
    }

    /// Forwards a packet through the raw socket: the kernel resolves the neighbour, and keeps the packet meanwhile.
    pub fn send_by_raw_socket(&mut self, packet: &[u8], sent: &mut Sent) {
        let mut packet = packet.to_vec();
        let outcome = match (decrement_hop_limit(&mut packet), Outline::read(&packet)) {
            (true, Ok(outline)) => self.deliver_by_raw_socket(&packet, &outline),
            _ => None,
        };
        match outcome {
            Some(outcome) => *sent += outcome,
            None => sent.failed += 1,
        }
    }

    fn deliver_by_raw_socket(&mut self, packet: &[u8], outline: &Outline) -> Option<Sent> {
        let burst = Burst {
            outer: Outer {
                // Any source: the kernel checks only whether it is an address of this host.
                source: unspecified(outline.destination),
                destination: outline.destination,
                protocol: outline.protocol,
                ports: None,
                traffic_class: outline.traffic_class,
                dont_fragment: true,
                hop_limit: outline.hop_limit,
                emitted_len: outline.header_len as u16,
            },
            bytes: packet,
            stride: packet.len(),
        };
        let raw = self.raw_socket(Family::of(outline.destination))?;
        raw.deliver(&[burst]).ok()
    }

    fn raw_socket(&mut self, family: Family) -> Option<&mut HdrinclSink> {
        let index = usize::from(family == Family::V6);
        if self.raw[index].is_none() {
            let mut options = SocketOptions::new(PmtuCache::default(), Arc::clone(&self.warn));
            options.mark = Some(self.options.mark);
            options.device = Some(self.options.name.clone());
            self.raw[index] = open_hdrincl(family, &options)
                .map_err(|why| {
                    (self.warn)(&format!(
                        "packets for unresolved neighbours are dropped: {why}"
                    ));
                })
                .ok();
        }
        self.raw[index].as_mut()
    }
}
