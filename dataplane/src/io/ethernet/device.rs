//! The open device: it makes its source, its sinks and a handle for those who look after it.

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

/// The open device. Packets pile up in its ring until a source is made.
pub struct Ethernet {
    options: EthernetOptions,
    ring: Option<Ring>,
    shared: Arc<Shared>,
    warn: Warn,
}

/// A hand on a device that is at work.
#[derive(Clone)]
pub struct EthernetHandle(Arc<Shared>);

impl EthernetHandle {
    /// From now on these are the addresses of this host.
    pub fn set_local_addresses(&self, addresses: LocalAddresses) {
        if **self.0.local_addresses.load() != addresses {
            self.0.local_addresses.store(Arc::new(addresses));
        }
    }

    /// What became of packets so far.
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

    /// For those who look after it.
    pub fn handle(&self) -> EthernetHandle {
        EthernetHandle(Arc::clone(&self.shared))
    }

    /// Which trains it hands over: all, for hosts beside it and its own merging make them.
    pub fn reads(&self) -> TrainKinds {
        ALL
    }

    /// Which trains it takes.
    pub fn takes(&self) -> TrainKinds {
        self.options.takes()
    }

    /// Its source, once: what the kernel has already had its way with is passed over. The snapshot of each read decides
    /// what is taken; `waker` ends the sleep.
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

    /// A sink of its own, which asks `next_hops` for its way.
    pub fn sink(&self, next_hops: Box<dyn NextHops>) -> EthernetSink {
        let shared = Arc::clone(&self.shared);
        EthernetSink::new(&self.options, next_hops, shared, Arc::clone(&self.warn))
    }

    /// The same for a few packets now and then: it leaves the device's queue to another one.
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
