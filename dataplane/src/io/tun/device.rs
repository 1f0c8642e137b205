//! An open TUN device with its queues.

use super::options::{TunOffloads, TunOptions};
use super::sink::TunSink;
use super::source::TunSource;
use super::{ioctl, probe};
use crate::io::{OpenError, Warn};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An open TUN device, up; it is deleted with its last queue unless it is persistent.
#[derive(Debug)]
pub struct Tun {
    /// The name it has.
    pub name: String,
    /// Its interface index.
    pub index: u32,
    /// The offloads that work.
    pub offloads: TunOffloads,
    link_local: bool,
    pub(super) queues: Vec<Arc<OwnedFd>>,
}

impl Tun {
    /// Creates the device, or attaches to a persistent one that is not in use, and sets it up. Each offload that does
    /// not work here is reported to `warn`.
    pub fn open(options: &TunOptions, warn: &Warn) -> Result<Self, OpenError> {
        let (queues, name) = ioctl::attach(options)?;
        if options.persistent {
            ioctl::make_persistent(&queues[0])
                .map_err(OpenError::during("make the TUN device last"))?;
        }
        if !options.link_local {
            ioctl::disable_ipv6_autoconfiguration(&name);
        }
        let index = ioctl::bring_up(&name, options.mtu)?;
        let offloads = match (options.offloads, options.known_offloads) {
            (true, Some(known)) => probe::switch_on(&queues[0], known)?,
            (true, None) => probe::try_offloads(&queues, (&name, index), warn)?,
            (false, _) => probe::without_offloads(&queues[0])?,
        };
        Ok(Self {
            name,
            index,
            offloads,
            link_local: options.link_local,
            queues: queues.into_iter().map(Arc::new).collect(),
        })
    }

    /// A device that another process has opened by the same options, and probed: `queue` is its only one. None if it
    /// was opened by others, or has gone.
    pub fn adopt(queue: OwnedFd, offloads: TunOffloads, options: &TunOptions) -> Option<Self> {
        let name = ioctl::attached_to(&queue)?;
        let was_tried = offloads != TunOffloads::default();
        if name != options.name || was_tried != options.offloads {
            return None;
        }
        let index = ioctl::bring_up(&name, options.mtu).ok()?;
        Some(Self {
            name,
            index,
            offloads,
            link_local: options.link_local,
            queues: vec![Arc::new(queue)],
        })
    }

    /// Another descriptor of its first queue.
    pub fn share(&self) -> io::Result<OwnedFd> {
        let queue = self.queues.first().ok_or(io::ErrorKind::NotFound)?;
        queue.try_clone()
    }

    /// The device's present name; none once it was deleted.
    pub fn name_now(&self) -> Option<String> {
        self.queues
            .first()
            .and_then(|queue| ioctl::attached_to(queue))
    }

    /// Sets the device's MTU, and the device up.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), OpenError> {
        ioctl::bring_up(&self.name, mtu).map(drop)
    }

    /// A source and a sink for each queue.
    pub fn ends(&self) -> impl Iterator<Item = (TunSource, TunSink)> + '_ {
        self.queues.iter().map(|queue| {
            let source = TunSource {
                device: queue.clone(),
                waker: None,
                link_local: self.link_local,
            };
            (
                source,
                TunSink {
                    device: queue.clone(),
                    takes: self.offloads.write,
                },
            )
        })
    }
}
