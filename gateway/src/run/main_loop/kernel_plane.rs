//! What the kernel's own IPsec tells a gateway whose packets it carries: it reaches the same places as notices of our
//! own data plane.

use super::Gateway;
use crate::failure::Failure;
use crate::plane::{KernelNotice, KernelNotices, association_name};
use crate::run::plane_choice::ChosenPlane;
use ipsec::packet::{FragmentKind, Outline};
use ipsec::policy::{Direction, Policy};
use netlink_packet_xfrm::{Selector, UserAcquire};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The number of the device of an acquire that a policy requires.
const NO_DEVICE: u32 = 0;

/// The number of the policy of an acquire of a device without policies.
const NO_POLICY: u32 = 0;

/// For answers about counters.
const MAX_AGE_OF_ANSWERS: Duration = Duration::from_millis(100);

impl Gateway {
    /// Notes which plane carries the packets; from now on the kernel's notifications are taken.
    pub(in crate::run) fn on_plane(mut self, chosen: ChosenPlane) -> Result<Self, Failure> {
        if chosen.by_kernel {
            let notices = KernelNotices::open().map_err(|error| {
                Failure::new(format!(
                    "cannot listen to the kernel's IPsec, which needs CAP_NET_ADMIN: {error}"
                ))
            })?;
            self.kernel_notices = Some(notices);
        }
        self.chosen_plane = chosen;
        Ok(self)
    }

    /// Those of a gateway that is replaced stay for the next process.
    pub(super) fn end_kernel_associations(&mut self) -> io::Result<()> {
        if self.is_replaced {
            return self.plane.kernel().read_kernel_counters(Duration::ZERO);
        }
        self.plane.kernel().end_kernel_associations()
    }

    /// Takes the kernel's notifications.
    pub(super) fn handle_kernel_notices(&mut self) {
        let port = self.plane.kernel().kernel_port();
        let Some(notices) = &mut self.kernel_notices else {
            return;
        };
        let mut has_expired = false;
        for notice in notices.take(port) {
            match notice {
                KernelNotice::Acquire(message) => self.acquire_for_the_kernel(&message),
                KernelNotice::Expired { id, is_hard, last } => {
                    let host = self.plane.kernel();
                    host.observe_last(&id, &last);
                    if let Some(sa) = host.kernels_sa(&id) {
                        sa.state.expire(is_hard);
                        has_expired = true;
                    }
                }
                KernelNotice::Moved { id, from } => {
                    if let Some(sa) = self.plane.kernel().kernels_sa(&id) {
                        sa.state.record_peer_endpoint(&sa.config, from);
                    }
                }
                KernelNotice::Changed => self.removals.suspect(Instant::now()),
            }
        }
        if has_expired {
            self.age();
        }
    }

    /// Ends associations by which the kernel would use a nonce again under the same key.
    pub(super) fn look_at_nonces(&mut self) {
        let snapshot = self.snapshot();
        let repeated = self.plane.kernel().repeated_nonces(&snapshot);
        for (sa, number) in &repeated {
            (self.warnings.warn())(&format!(
                "{} ends: with sequence number {number} the kernel would use a nonce again under its key. Set new keys \
                 on both sides",
                association_name(&sa.config)
            ));
            sa.state.expire(true);
        }
        if !repeated.is_empty() {
            self.age();
        }
    }

    /// Reads the counters of the kernel's associations before they are shown.
    pub(super) fn read_kernel_counters(&mut self) {
        self.read_kernel_counters_older_than(MAX_AGE_OF_ANSWERS);
    }

    /// Reads them if they are older than this.
    pub(super) fn read_kernel_counters_older_than(&mut self, age: Duration) {
        if let Err(error) = self.plane.kernel().read_kernel_counters(age) {
            (self.warnings.warn_once())(&error.to_string());
        }
    }

    fn acquire_for_the_kernel(&mut self, message: &UserAcquire) {
        let Some(policy) = self.plane.kernel().kernels_policy(message.policy.index) else {
            return;
        };
        let Some(outline) = outline(&message.selector) else {
            return;
        };
        let snapshot = self.snapshot();
        let mut policies = snapshot.policies(Direction::Out);
        let is_it =
            |known: &Policy| known.selector == policy.selector && known.device == policy.device;
        if let Some((number, _)) = policies.find(|(_, known)| is_it(known)) {
            self.acquire(number, NO_DEVICE, outline);
            return;
        }
        // Not one of the databases': a device into which none leads has its own in the kernel.
        let device = policy.device.as_deref();
        if let Some(number) = device.and_then(|name| self.plane.kernel().device_number(name)) {
            self.acquire(NO_POLICY, number, outline);
        }
    }
}

/// The packet that the kernel's selector describes. Its length is not known.
fn outline(selector: &Selector) -> Option<Outline> {
    let address = |address: &netlink_packet_xfrm::Address| match i32::from(selector.family) {
        libc::AF_INET => {
            let bytes: [u8; 4] = *address.addr.first_chunk()?;
            Some(IpAddr::from(bytes))
        }
        libc::AF_INET6 => Some(IpAddr::V6(address.to_ipv6())),
        _ => None,
    };
    let header_len = if i32::from(selector.family) == libc::AF_INET {
        20
    } else {
        40
    };
    let has_ports = selector.sport_mask != 0 || selector.dport_mask != 0;
    Some(Outline {
        source: address(&selector.saddr)?,
        destination: address(&selector.daddr)?,
        protocol: selector.proto,
        header_len,
        transport_offset: header_len,
        total_len: header_len,
        ports: has_ports.then_some((selector.sport, selector.dport)),
        fragment: FragmentKind::Whole,
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 64,
    })
}
