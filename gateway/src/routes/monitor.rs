//! The kernel's notifications about everything that enforcement depends on: links, addresses, routes, rules, traffic
//! control, settings of devices, nftables, XFRM policies.
//!
//! Notifications only trigger a comparison with the kernel, which then finds what is missing. So a notification about
//! another program's change does no harm, and an overflow of the queue (ENOBUFS) triggers the comparison too.

use super::Site;
use super::netlink::xfrm;
use super::steering::OWNER;
use crate::netlink_socket::listen;
use crate::netlink_socket::message::{KernelMessage, messages};
use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_XFRM};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Multicast groups, as `linux/rtnetlink.h` numbers them: links, traffic control, and of both families addresses,
/// routes, rules and settings.
const ROUTE_GROUPS: [u32; 10] = [1, 4, 5, 7, 8, 9, 11, 19, 24, 25];

/// NFNLGRP_NFTABLES of `linux/netfilter/nfnetlink.h`.
const NFTABLES_GROUP: u32 = 7;

/// XFRMNLGRP_POLICY of `linux/xfrm.h`.
const XFRM_POLICY_GROUP: u32 = 4;

/// Longer messages are truncated, and then count as changes of the gateway's own objects.
pub(super) const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// The sockets that receive the kernel's notifications.
pub(crate) struct Monitor {
    route: Socket,
    /// None if the kernel has no nftables, or does not permit listening: then only the comparison each second remains.
    nftables: Option<Socket>,
    /// None if the kernel has no XFRM.
    xfrm: Option<Socket>,
    /// The name of the gateway's table, with a terminating zero byte.
    table: Vec<u8>,
    /// Room for what is received: the main thread looks at every turn.
    room: Vec<u8>,
}

/// What has happened since the last call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Notifications {
    /// Something that the gateway has installed may have changed.
    pub installed: bool,
    /// Addresses of this host have changed.
    pub addresses: bool,
    /// Some notifications were lost, so anything may have changed.
    pub lost: bool,
}

/// The ports of the sockets by which the gateway makes its changes: it has the kernel's answers, so notifications of
/// them are no news.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnPorts {
    /// That of routes.
    pub route: u32,
    /// That of the nftables table, if it is open.
    pub nftables: Option<u32>,
}

impl Monitor {
    /// Changes from now on are noticed.
    pub(crate) fn open(site: &Site) -> io::Result<Self> {
        let mut table = site.firewall_table().into_bytes();
        table.push(0);
        Ok(Self {
            route: listen(NETLINK_ROUTE, &ROUTE_GROUPS)?,
            nftables: listen(NETLINK_NETFILTER, &[NFTABLES_GROUP]).ok(),
            xfrm: listen(NETLINK_XFRM, &[XFRM_POLICY_GROUP]).ok(),
            table,
            room: vec![0; MAX_MESSAGE_BYTES],
        })
    }

    /// Readable when there are notifications.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let all = [
            Some(&self.route),
            self.nftables.as_ref(),
            self.xfrm.as_ref(),
        ];
        let all = all.into_iter().flatten();
        // SAFETY: the sockets live as long as the borrow of this monitor, and are not closed before.
        all.map(|socket| unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) })
    }

    /// Reads all pending notifications. Of the gateway's own changes those of routes and of the nftables table are no
    /// news: with many peers each of them would cause a comparison.
    pub(crate) fn take(&mut self, own: OwnPorts) -> Notifications {
        let mut news = Notifications::default();
        let room = &mut self.room;
        read_all(
            &self.route,
            room,
            &mut news,
            |message, news| match message.kind {
                // RTM_NEWADDR, RTM_DELADDR
                20 | 21 => news.addresses = true,
                // RTM_NEWROUTE, RTM_DELROUTE: the sixth byte is the route's protocol.
                24 | 25 if message.port == own.route => {}
                24 | 25 => {
                    news.installed |= message.body.get(5).is_none_or(|owner| *owner == OWNER)
                }
                _ => news.installed = true,
            },
        );
        if let Some(socket) = &self.nftables {
            let table = &*self.table;
            read_all(socket, room, &mut news, |message, news| {
                let names_our_table = || {
                    message
                        .body
                        .windows(table.len())
                        .any(|bytes| bytes == table)
                };
                news.installed |= own.nftables != Some(message.port) && names_our_table();
            });
        }
        if let Some(socket) = &self.xfrm {
            read_all(socket, room, &mut news, |message, news| {
                news.installed |= xfrm::is_about(message.kind, message.body, OWNER);
            });
        }
        news
    }
}

/// Calls `each` with every pending message. What does not fit into `room` is truncated.
pub(super) fn read_all(
    socket: &Socket,
    room: &mut [u8],
    news: &mut Notifications,
    mut each: impl FnMut(&KernelMessage<'_>, &mut Notifications),
) {
    loop {
        match socket.recv(&mut &mut *room, libc::MSG_TRUNC) {
            Ok(len) if len > room.len() => news.installed = true,
            Ok(len) => {
                for message in messages(&room[..len]) {
                    each(&message, news);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                news.lost = true;
                if error.raw_os_error() != Some(libc::ENOBUFS) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::DEFAULT_MARK;
    use crate::routes::barrier::Barrier as _;
    use crate::routes::barrier::nftables::Nftables;
    use crate::routes::firewall::tests::kernel::{in_a_namespace, isolated};
    use crate::routes::netlink::Netlink;
    use crate::routes::plan::{Family, Plan};
    use crate::routes::steering::{Route, RoutingRule, RuleAction};
    use crate::routes::tables::Exits;
    use ipsec::policy::Prefix;
    use std::net::Ipv4Addr;

    fn site() -> Site {
        Site::new("esp0", None, DEFAULT_MARK).unwrap()
    }

    fn by(netlink: &Netlink) -> OwnPorts {
        OwnPorts {
            route: netlink.port(),
            nftables: None,
        }
    }

    #[test]
    fn a_rule_that_comes_or_goes_is_news_and_a_full_queue_is_too() {
        // In a namespace of its own, where nothing else changes.
        isolated(|| {
            in_a_namespace(|| {
                let mut netlink = Netlink::open().unwrap();
                let mut monitor = Monitor::open(&site()).unwrap();
                assert_eq!(monitor.take(by(&netlink)), Notifications::default());
                let rule = RoutingRule::of_all(Family::V4, 31_007, RuleAction::Nothing);
                netlink.add_rule(&rule).unwrap();
                netlink.delete_rule(&rule).unwrap();
                assert!(monitor.take(by(&netlink)).installed);
                assert_eq!(monitor.take(by(&netlink)), Notifications::default());
                // More than the queue holds, which is about 200 KB.
                for _ in 0..2000 {
                    netlink.add_rule(&rule).unwrap();
                    netlink.delete_rule(&rule).unwrap();
                }
                assert!(monitor.take(by(&netlink)).lost);
                assert_eq!(monitor.take(by(&netlink)), Notifications::default());
            });
        });
    }

    #[test]
    fn a_route_is_news_unless_the_gateway_has_put_it() {
        // In a namespace of its own, where nothing else changes.
        isolated(|| {
            in_a_namespace(|| {
                let [mut gateway, mut other] = [(); 2].map(|()| Netlink::open().unwrap());
                let mut monitor = Monitor::open(&site()).unwrap();
                let route = Route {
                    family: Family::V4,
                    destination: Prefix {
                        address: Ipv4Addr::new(198, 51, 100, 0).into(),
                        len: 24,
                    },
                    device: None,
                    next_hop: None,
                    source: None,
                    mtu: None,
                    whole: false,
                    metric: 1024,
                };
                let (table, exits) = (site().table(), Exits::default());
                gateway.put_route(table, &exits, &route).unwrap();
                gateway.delete_route(table, &exits, &route).unwrap();
                assert_eq!(monitor.take(by(&gateway)), Notifications::default());
                gateway.put_route(table, &exits, &route).unwrap();
                monitor.take(by(&gateway));
                other.delete_route(table, &exits, &route).unwrap();
                assert!(monitor.take(by(&gateway)).installed);
            });
        });
    }

    #[test]
    fn the_table_is_news_unless_the_gateway_has_changed_it() {
        isolated(|| {
            in_a_namespace(|| {
                let plan = Plan {
                    exchanges_keys: true,
                    ..Plan::default()
                };
                let mut monitor = Monitor::open(&site()).unwrap();
                let mut barrier = Nftables::new(&site());
                barrier.install(&plan).unwrap();
                let own = OwnPorts {
                    route: 0,
                    nftables: barrier.nftables_port(),
                };
                assert!(!monitor.take(own).installed);
                let ends = ["192.0.2.1", "192.0.2.2"].map(|end| end.parse().unwrap());
                let with_a_peer = Plan {
                    outer: [(ends[0], ends[1])].into(),
                    ..plan
                };
                barrier.install_outer(&with_a_peer).unwrap();
                assert!(!monitor.take(own).installed);
                barrier.remove().unwrap();
                assert!(!monitor.take(own).installed);
                Nftables::new(&site()).install(&with_a_peer).unwrap();
                assert!(monitor.take(own).installed);
            });
        });
    }
}
