//! Decides when to compare with the kernel: after devices or traffic control have changed since the last comparison
//! that found nothing missing, and every ten seconds.

use crate::netlink_socket::listen;
use crate::routes::monitor::{MAX_MESSAGE_BYTES, read_all};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// RTNLGRP_LINK and RTNLGRP_TC.
const GROUPS: [u32; 2] = [1, 4];

const RTM_DELLINK: u16 = 17;

/// The comparison is repeated after this time, even without a notification.
const FULL_COMPARISON_INTERVAL: Duration = Duration::from_secs(10);

/// The kernel's notifications about devices and traffic control.
pub(super) struct DeviceNotifications {
    socket: Socket,
    /// Something has changed since the last comparison that found nothing missing.
    changed: bool,
    /// Something has changed since all devices were given their filters.
    unseen: bool,
    compared: Option<Instant>,
    /// Devices that were removed.
    gone: BTreeSet<u32>,
}

impl DeviceNotifications {
    /// Changes from now on are noticed.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            socket: listen(NETLINK_ROUTE, &GROUPS)?,
            changed: true,
            unseen: true,
            compared: None,
            gone: BTreeSet::new(),
        })
    }

    fn read(&mut self) {
        let mut all = crate::routes::monitor::Notifications::default();
        let (gone, changed) = (&mut self.gone, &mut self.changed);
        let mut any = false;
        let mut room = vec![0; MAX_MESSAGE_BYTES];
        read_all(&self.socket, &mut room, &mut all, |message, _| {
            any = true;
            let index = message
                .body
                .get(4..8)
                .and_then(|bytes| bytes.try_into().ok());
            if let (RTM_DELLINK, Some(index)) = (message.kind, index) {
                gone.insert(u32::from_ne_bytes(index));
            }
        });
        *changed |= any || all.lost || all.installed;
        self.unseen |= any || all.lost || all.installed;
    }

    /// Devices that were removed since the last call.
    pub(super) fn take_gone(&mut self) -> BTreeSet<u32> {
        self.read();
        std::mem::take(&mut self.gone)
    }

    /// Whether there may be devices without their filters.
    pub(super) fn take_unseen(&mut self) -> bool {
        self.read();
        std::mem::take(&mut self.unseen)
    }

    /// Giving them their filters failed: the next call of [`Self::take_unseen`] returns true.
    pub(super) fn still_unseen(&mut self) {
        self.unseen = true;
    }

    /// Whether to compare now. Changes after this call lead to another comparison.
    pub(super) fn take_due(&mut self) -> bool {
        self.read();
        let is_old = self
            .compared
            .is_none_or(|compared| compared.elapsed() >= FULL_COMPARISON_INTERVAL);
        let due = std::mem::take(&mut self.changed) || is_old;
        if due {
            self.compared = Some(Instant::now());
        }
        due
    }

    /// The comparison has found something missing, or failed: it is repeated at the next call of [`Self::take_due`].
    pub(super) fn compare_again(&mut self) {
        self.changed = true;
    }
}
