//! The open device: it makes its source, its sinks and a handle to control it.

use super::forwarding::LocalAddresses;
use super::options::{ALL, EthernetOptions};
use super::shared::Shared;
use super::sink::EthernetSink;
use super::source::EthernetSource;
use super::stats::EthernetStats;
use crate::io::packet::ring::Ring;
use crate::io::packet::{NativeIo, NextHops};
use crate::io::{Waker, Warn};
use crate::train::TrainKinds;
use arc_swap::ArcSwap;
use ipsec::database::Snapshot;
use std::io;
use std::sync::Arc;

/// The open device. Packets collect in its ring until a source is made.
pub struct Ethernet {
    options: EthernetOptions,
    ring: Option<Ring>,
    shared: Arc<Shared>,
    warn: Warn,
}

/// Controls a device that is in use.
#[derive(Clone)]
pub struct EthernetHandle(Arc<Shared>);

impl EthernetHandle {
    /// Sets the addresses of this host.
    pub fn set_local_addresses(&self, addresses: LocalAddresses) {
        if **self.0.local_addresses.load() != addresses {
            self.0.local_addresses.store(Arc::new(addresses));
        }
    }

    /// Its counters.
    pub fn stats(&self) -> &EthernetStats {
        &self.0.stats
    }
}

impl Ethernet {
    /// Opens the device's ring.
    pub fn open(options: EthernetOptions, warn: &Warn) -> io::Result<Self> {
        let ring = Ring::open_for_router(options.device, options.mtu)?;
        Ok(Self {
            options,
            ring: Some(ring),
            shared: Arc::default(),
            warn: Arc::clone(warn),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Its index.
    pub fn device(&self) -> u32 {
        self.options.device
    }

    /// A handle to control it.
    pub fn handle(&self) -> EthernetHandle {
        EthernetHandle(Arc::clone(&self.shared))
    }

    /// Which trains can be read from it: all, since neighbouring namespaces and GRO make them.
    pub fn reads(&self) -> TrainKinds {
        ALL
    }

    /// Which trains it sends.
    pub fn takes(&self) -> TrainKinds {
        self.options.takes()
    }

    /// Its source, once. Packets that are in the ring already are skipped: the kernel has handled them. The snapshot at
    /// each read decides what is taken; `waker` ends the sleep.
    pub fn source(
        &mut self,
        databases: Arc<ArcSwap<Snapshot>>,
        waker: Waker,
    ) -> Option<EthernetSource> {
        let ring = self.ring.take()?;
        self.shared.icmp_reports.set_waker(waker.clone());
        Some(EthernetSource::new(
            ring,
            databases,
            waker,
            Arc::clone(&self.shared),
        ))
    }

    /// A new sink, which looks next hops up in `next_hops`.
    pub fn sink(&self, next_hops: Box<dyn NextHops>) -> EthernetSink {
        let shared = Arc::clone(&self.shared);
        EthernetSink::new(&self.options, next_hops, shared, Arc::clone(&self.warn))
    }

    /// A sink for replies, which are few: it leaves the device's AF_XDP queue to the other one.
    pub fn reply_sink(&self, next_hops: Box<dyn NextHops>) -> EthernetSink {
        let options = EthernetOptions {
            native_io: NativeIo::Packet,
            offloads: false,
            ..self.options.clone()
        };
        let shared = Arc::clone(&self.shared);
        EthernetSink::new(&options, next_hops, shared, Arc::clone(&self.warn))
    }
}
