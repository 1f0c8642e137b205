//! Plans whose traffic the kernel's own IPsec carries: the rules, and what they do on the running kernel, which need
//! not be able to seal.

use super::kernel::{firewall, in_a_namespace, isolated, said};
use super::*;
use crate::routes::installed::Installed;
use crate::routes::plan::{Planes, Way};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// With a peer that has a device, and with bypassed traffic elsewhere.
pub fn plan() -> Plan {
    let mut plan = super::plan();
    let mut to_peer = entry(
        "10.1.0.0/24",
        "10.4.0.0/24",
        Upper::Any,
        Disposition::Protect,
    );
    to_peer.device = Some("ike-a".into());
    plan.leaving.push(to_peer);
    plan.leaving.push(entry(
        "10.1.0.0/24",
        "10.9.0.0/24",
        Upper::Any,
        Disposition::Bypass,
    ));
    Plan {
        planes: Planes::Kernel,
        devices: ["ike-a".into()].into(),
        exchanges_keys: true,
        ..plan
    }
}

/// While traffic moves from one plane to the other.
pub fn moving() -> Plan {
    let old = super::plan();
    let new = Plan {
        planes: Planes::Kernel,
        ..super::plan()
    };
    crate::routes::combined_plan::combined_plan(&old, &new)
}

#[test]
fn what_comes_in_clear_is_not_passed_because_it_is_about_to_be_sealed() {
    let opened = when().ipsec(Field::Opened, true).accept();
    let sealed = when().ipsec(Field::Sealed, true);
    let passing = chain(&site(), &plan(), "passing");
    assert!(passing.contains(&opened));
    let asks_sealed = |rule: &&Rule| rule.terms.contains(&sealed.terms[0]);
    assert_eq!(passing.iter().find(asks_sealed), None);
}

#[test]
fn without_a_tun_device_its_name_is_no_exception() {
    let by_name = format!(
        "{:?}",
        when().device(Field::InDevice, ["esp0"], false).terms[0]
    );
    let value = by_name.split("values: ").nth(1).unwrap();
    let named = |plan: &Plan| format!("{:?}", ruleset(&site(), plan)).contains(&value[1..40]);
    assert!(named(&super::plan()) && named(&moving()));
    assert!(!named(&plan()));
    let directions = Plan {
        has_direction_devices: true,
        ..plan()
    };
    assert_eq!(ruleset(&site(), &directions), ruleset(&site(), &plan()));
}

#[test]
fn only_key_exchange_is_told_by_its_user() {
    let user = when().any(Field::SocketUser, [0_u32.to_ne_bytes()], false);
    let asks = |plan: &Plan| {
        let rules = chain(&site(), plan, "leaving").into_iter();
        rules
            .filter(|rule| rule.terms.contains(&user.terms[0]))
            .count()
    };
    assert_eq!([asks(&super::plan()), asks(&plan())], [5, 1]);
    // The kernel goes on sealing without a gateway.
    let without_gateway = Plan {
        senders: Senders::None,
        ..plan()
    };
    let rules = |plan: &Plan| chain(&site(), plan, "leaving").len();
    assert_eq!(rules(&plan()) - rules(&without_gateway), 1);
}

/// A device `eth0` whose frames go to the device `far` and come from there: the way to 10.2.0.5.
struct Wire {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Wire {
    fn new() -> Self {
        // The kernel's own IPv6 packets of a new link would be counted too.
        for scope in ["all", "default"] {
            let setting = format!("net.ipv6.conf.{scope}.disable_ipv6=1");
            said(&["sysctl", "-qw", &setting], "");
        }
        for words in [
            "link add eth0 address 02:00:00:00:00:01 type veth peer name far",
            "link set lo up",
            "link set eth0 up",
            "link set far up",
            "address add 10.1.0.1/24 dev eth0",
            "route add 10.2.0.0/24 via 10.1.0.254 dev eth0",
            "neighbour add 10.1.0.254 lladdr 02:00:00:00:00:09 dev eth0",
        ] {
            let argv: Vec<_> = ["ip"].into_iter().chain(words.split(' ')).collect();
            said(&argv, "");
        }
        let receiver = UdpSocket::bind("10.1.0.1:7000").unwrap();
        let timeout = Duration::from_millis(300);
        receiver.set_read_timeout(Some(timeout)).unwrap();
        Self {
            sender: UdpSocket::bind("10.1.0.1:7001").unwrap(),
            receiver,
        }
    }

    /// Whether a datagram to 10.2.0.5 leaves by `eth0` in clear.
    fn lets_out(&self) -> bool {
        let before = sent_by("eth0");
        let taken = self.sender.send_to(b"clear", "10.2.0.5:9").is_ok();
        let has_left = sent_by("eth0") > before;
        assert!(taken || !has_left);
        has_left
    }

    /// Whether a datagram of 10.2.0.5 that comes in clear by `eth0` is delivered.
    fn lets_in(&self) -> bool {
        send_frame("far", &datagram([10, 2, 0, 5], [10, 1, 0, 1]));
        self.receiver.recv(&mut [0; 64]).is_ok()
    }
}

/// Packets that a device has sent.
fn sent_by(device: &str) -> u64 {
    let table = said(&["cat", "/proc/thread-self/net/dev"], "");
    let line = table.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == device).then_some(counts)
    });
    let counts: Vec<_> = line.unwrap().split_whitespace().collect();
    counts[9].parse().unwrap()
}

/// A frame to UDP port 7000.
fn datagram(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 33, 0, 1, 0x40, 0, 64, 17, 0, 0];
    ip.extend([source, destination].concat());
    let words = ip
        .chunks(2)
        .map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [0, 9, 0x1b, 0x58, 0, 13, 0, 0];
    let ethernet = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]].concat();
    [&ethernet[..], &[8, 0], &ip, &udp, b"clear"].concat()
}

fn send_frame(device: &str, frame: &[u8]) {
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: the name is a C string, the address is a valid `sockaddr_ll`, and the frame outlives the call.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let sent = libc::sendto(
            socket,
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        );
        assert_eq!(
            sent as usize,
            frame.len(),
            "{}",
            std::io::Error::last_os_error()
        );
        libc::close(socket);
    }
}

fn way() -> Way {
    Way {
        device: "eth0".into(),
        next_hop: Some("10.1.0.254".parse().unwrap()),
        source: Some("10.1.0.1".parse().unwrap()),
    }
}

/// A plan by the kernel whose peer is reached by `eth0`.
fn led() -> Plan {
    let mut plan = super::plan();
    plan.leaving[1].via = Some(way());
    Plan {
        planes: Planes::Kernel,
        ..plan
    }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn what_a_policy_protects_neither_leaves_nor_arrives_in_clear() {
    isolated(|| {
        in_a_namespace(|| {
            let wire = Wire::new();
            assert!(wire.lets_out() && wire.lets_in(), "before there are rules");
            let mut installed = Installed::new(site()).unwrap();
            installed.enforce(led()).unwrap();
            assert_eq!(installed.missing().unwrap(), nothing());
            assert!(!wire.lets_out() && !wire.lets_in());
            let counted: Vec<_> = counters(&site())
                .into_iter()
                .map(|(name, packets, _)| (name, packets))
                .collect();
            assert!(counted.contains(&("clear_leaving", 1)), "{counted:?}");
            assert!(counted.contains(&("clear_arriving", 1)), "{counted:?}");
            installed.remove().unwrap();
            assert!(wire.lets_out() && wire.lets_in(), "after them");
            assert!(!said(&["ip", "rule"], "").contains("4500"));
        });
    });
}

#[test]
fn with_nftables_gone_the_devices_filter_alone_keeps_it_from_leaving() {
    isolated(|| {
        in_a_namespace(|| {
            let wire = Wire::new();
            let mut installed = Installed::new(site()).unwrap();
            installed.enforce(led()).unwrap();
            let filters = |way| said(&["tc", "filter", "show", "dev", "eth0", way], "");
            assert!(filters("egress").contains("bpf") && filters("ingress").is_empty());
            let gaps: Vec<_> = installed
                .barriers()
                .into_iter()
                .map(|state| (state.name, state.gaps.is_some()))
                .collect();
            assert_eq!(gaps, [("nftables", false), ("device filters", true)]);
            firewall(&site()).remove().unwrap_err();
            // As on kernels before 6.9, where other programs may change the table.
            drop(installed);
            said(&["nft", "delete", "table", "inet", "esplanade"], "");
            assert!(!wire.lets_out());
            assert!(wire.lets_in(), "XFRM policies alone judge it now");
        });
    });
}

#[test]
fn rules_and_routes_are_read_back_and_restored_when_another_program_takes_them() {
    isolated(|| {
        in_a_namespace(|| {
            let wire = Wire::new();
            let mut installed = Installed::new(site()).unwrap();
            installed.enforce(led()).unwrap();
            let routes = || said(&["ip", "route", "show", "table", "4500"], "");
            let before = routes();
            let led =
                "10.2.0.0/24 via 10.1.0.254 dev eth0 proto 229 src 10.1.0.1 metric 1024 onlink";
            assert!(before.contains(led), "{before}");
            assert!(before.contains("unreachable default"), "{before}");
            for changed in [
                "ip route replace 10.2.0.0/24 via 10.1.0.253 dev eth0 proto 229 src 10.1.0.1 metric 1024 table 4500 onlink",
                "ip route replace 10.2.0.0/24 via 10.1.0.254 dev eth0 proto 229 metric 1024 table 4500 onlink",
                "ip route replace 10.2.0.0/24 dev eth0 proto 229 src 10.1.0.1 metric 1024 table 4500",
                "ip route flush table 4500",
                "ip rule flush",
                "tc qdisc delete dev eth0 clsact",
            ] {
                said(&changed.split(' ').collect::<Vec<_>>(), "");
                // As when the kernel notifies of it.
                installed.compare_steering_next();
                assert_ne!(installed.missing().unwrap(), nothing(), "{changed}");
                installed.restore().unwrap();
                assert_eq!(installed.missing().unwrap(), nothing(), "{changed}");
                assert_eq!(routes(), before, "{changed}");
                assert!(!wire.lets_out());
            }
        });
    });
}

#[test]
fn source_nat_that_takes_a_packet_from_its_policy_sends_nothing() {
    isolated(|| {
        in_a_namespace(|| {
            let wire = Wire::new();
            said(
                &["ip", "route", "add", "10.3.0.0/24", "via", "10.1.0.254"],
                "",
            );
            let mut installed = Installed::new(site()).unwrap();
            installed.enforce(led()).unwrap();
            // As a packet is that was about to be sealed, and whose addresses no policy names any more.
            for (mark, passes) in [(0, true), (0x2000_0000, false), (0x3000_0000, true)] {
                set_mark(&wire.sender, mark);
                let sent = wire.sender.send_to(b"clear", "10.3.0.5:9");
                assert_eq!(sent.is_ok(), passes, "{mark:#x}");
            }
        });
    });
}

fn set_mark(socket: &UdpSocket, mark: u32) {
    // SAFETY: the option's value is a number that outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MARK,
            (&raw const mark).cast(),
            size_of::<u32>() as u32,
        )
    };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn no_host_of_the_same_link_is_told_to_send_past_this_one() {
    isolated(|| {
        in_a_namespace(|| {
            let _wire = Wire::new();
            said(&["sysctl", "-qw", "net.ipv4.ip_forward=1"], "");
            let neighbours = [
                ("10.1.0.7", "02:00:00:00:00:07"),
                ("10.1.0.8", "02:00:00:00:00:08"),
            ];
            for (host, lladdr) in neighbours {
                said(
                    &[
                        "ip",
                        "neighbour",
                        "add",
                        host,
                        "lladdr",
                        lladdr,
                        "dev",
                        "eth0",
                    ],
                    "",
                );
            }
            // The kernel limits the rate of redirects to each host.
            let forwarded = |host| {
                let before = sent_by("eth0");
                send_frame("far", &datagram([10, 1, 0, host], [10, 2, 0, 5]));
                sent_by("eth0") - before
            };
            assert_eq!(forwarded(7), 2, "the datagram and a redirect");
            let mut installed = Installed::new(site()).unwrap();
            installed.enforce(led()).unwrap();
            // What the far device sends comes from another host, where it would be in a namespace of its own.
            said(&["tc", "qdisc", "delete", "dev", "far", "clsact"], "");
            assert_eq!(forwarded(8), 0);
        });
    });
}
