//! The settings that the studies and other programs recommend: where each is found, its recommended value, the reason,
//! and its drawback.
//!
//! A setting that the lab can vary has the name of the lab's factor, so that results of `esplanade lab run tune` find
//! its row here.

use super::host::{Host, Target};
use super::informational;
use super::recommendation::Recommendation;

/// One row of the table.
pub(super) struct Setting {
    pub name: &'static str,
    pub location: Location,
    pub wish: Recommendation,
    /// Its drawback, if it has one: then it is changed only by name.
    pub price: Option<&'static str>,
    /// Whether the lab has a factor of this name.
    pub in_lab: bool,
    pub reason: &'static str,
}

/// Where a setting is found: in one file or in several.
pub(super) enum Location {
    /// Files below /proc/sys.
    System(&'static [&'static str]),
    /// A file of each device.
    Device(&'static str),
    /// A file of the gateway's own device.
    Tun(&'static str),
    /// A file of each `rx` or `tx` queue of each device.
    Queue(&'static str, &'static str),
    /// Features of each device, as `ethtool` calls them.
    Features(&'static [&'static str]),
    /// A file of each processor.
    Processor(&'static str),
    /// Nothing to write: the value is only shown.
    Informational(fn(&dyn Host) -> Option<String>),
}

/// The files or features of a location on this host, and which queue each is of how many; none where the host has no
/// such file or feature.
pub(super) fn targets(
    location: &Location,
    host: &dyn Host,
    devices: &[String],
    tun: &str,
) -> Vec<(Target, (usize, usize))> {
    let of_devices = |paths: &dyn Fn(&str) -> Vec<Target>| -> Vec<Target> {
        devices.iter().flat_map(|device| paths(device)).collect()
    };
    let targets = match location {
        Location::System(files) => files
            .iter()
            .map(|file| Target::file(format!("/proc/sys/{file}")))
            .collect(),
        Location::Device(file) => of_devices(&|device| vec![Target::of_device(device, file)]),
        Location::Tun(file) => vec![Target::of_device(tun, file)],
        Location::Queue(kind, file) => {
            let queues = devices
                .iter()
                .map(|device| queues(host, device, kind, file));
            return queues.flat_map(numbered).collect();
        }
        Location::Features(names) => of_devices(&|device| {
            let feature = |name: &&str| Target::Feature {
                device: device.to_owned(),
                name: (*name).to_owned(),
            };
            names.iter().map(feature).collect()
        }),
        Location::Processor(file) => processors(host)
            .map(|cpu| Target::file(format!("/sys/devices/system/cpu/{cpu}/{file}")))
            .collect(),
        Location::Informational(_) => Vec::new(),
    };
    targets.into_iter().map(|target| (target, (0, 1))).collect()
}

fn numbered(targets: Vec<Target>) -> impl Iterator<Item = (Target, (usize, usize))> {
    let count = targets.len();
    let targets = targets.into_iter().enumerate();
    targets.map(move |(number, target)| (target, (number, count)))
}

fn queues(host: &dyn Host, device: &str, kind: &str, file: &str) -> Vec<Target> {
    let folder = format!("/sys/class/net/{device}/queues");
    let prefix = format!("{kind}-");
    let mut numbers: Vec<u32> = host
        .list(&folder)
        .iter()
        .filter_map(|name| name.strip_prefix(&prefix)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let path = |number: u32| Target::file(format!("{folder}/{prefix}{number}/{file}"));
    numbers.into_iter().map(path).collect()
}

fn processors(host: &dyn Host) -> impl Iterator<Item = String> {
    let is_one = |name: &String| {
        let number = name.strip_prefix("cpu");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let mut all = host.list("/sys/devices/system/cpu");
    all.retain(is_one);
    all.sort_by_key(|name| (name.len(), name.clone()));
    all.into_iter()
}

/// How many processors the host has.
pub(super) fn count_processors(host: &dyn Host) -> usize {
    processors(host).count().max(1)
}

const fn row(
    name: &'static str,
    location: Location,
    wish: Recommendation,
    reason: &'static str,
) -> Setting {
    Setting {
        name,
        location,
        wish,
        price: None,
        in_lab: false,
        reason,
    }
}

impl Setting {
    const fn at_the_price_of(self, price: &'static str) -> Self {
        let price = Some(price);
        Self { price, ..self }
    }

    const fn measured(self) -> Self {
        Self {
            in_lab: true,
            ..self
        }
    }
}

/// The socket buffer that `dataplane` requests.
const SOCKET_BUFFER: u64 = 4 << 20;

/// All of them: buffers, the receive path, devices, TCP of this host, processors.
pub(super) const SETTINGS: &[Setting] = &[
    row(
        "rmem_max",
        Location::System(&["net/core/rmem_max"]),
        Recommendation::AtLeast(SOCKET_BUFFER),
        "a burst waits in the socket while the gateway is busy; without CAP_NET_ADMIN this is all it gets",
    ),
    row(
        "wmem_max",
        Location::System(&["net/core/wmem_max"]),
        Recommendation::AtLeast(SOCKET_BUFFER),
        "the same for what leaves",
    ),
    row(
        "netdev_max_backlog",
        Location::System(&["net/core/netdev_max_backlog"]),
        Recommendation::AtLeast(10_000),
        "virtual links and packets steered to another processor queue here; what does not fit is lost without a word",
    ),
    row(
        "netdev_budget",
        Location::System(&["net/core/netdev_budget"]),
        Recommendation::AtLeast(600),
        "packets that one softirq takes; a third column of /proc/net/softnet_stat that grows says that it ends too early",
    ),
    row(
        "netdev_budget_usecs",
        Location::System(&["net/core/netdev_budget_usecs"]),
        Recommendation::AtLeast(8_000),
        "the time that one softirq takes at most: the other limit of the same",
    ),
    row(
        "ip_early_demux",
        Location::System(&["net/ipv4/ip_early_demux"]),
        Recommendation::Exactly("0"),
        "looks for a local socket before routing; a gateway forwards, and its own socket is not connected",
    )
    .at_the_price_of("connections that end on this host lose a shortcut")
    .measured(),
    row(
        "offloads",
        Location::Features(&[
            "tx-checksumming",
            "scatter-gather",
            "tcp-segmentation-offload",
            "generic-segmentation-offload",
            "generic-receive-offload",
        ]),
        Recommendation::Exactly("on"),
        "GSO buffers of up to 64 KiB pass the stack, the tunnel and the cipher's queue at the cost of one packet",
    )
    .measured(),
    row(
        "rx_udp_gro_forwarding",
        Location::Features(&["rx-udp-gro-forwarding"]),
        Recommendation::Exactly("on"),
        "UDP that is only forwarded is coalesced into GSO buffers, too; name the devices of the protected networks with --device",
    )
    .measured(),
    row(
        "rx_gro_list",
        Location::Features(&["rx-gro-list"]),
        Recommendation::Exactly("off"),
        "chains packets without joining them: good for plain forwarding, but a TUN device then gets single packets in place of GSO buffers",
    )
    .measured(),
    row(
        "gro_flush_timeout_ns",
        Location::Device("gro_flush_timeout"),
        Recommendation::Exactly("50000"),
        "receive coalescing may wait for more packets",
    )
    .at_the_price_of("up to 50 µs more of round trip")
    .measured(),
    row(
        "napi_defer_hard_irqs",
        Location::Device("napi_defer_hard_irqs"),
        Recommendation::Exactly("2"),
        "a quiet device is looked at twice more before its interrupt is switched on again; only together with gro_flush_timeout_ns",
    )
    .at_the_price_of("a little more of the processor")
    .measured(),
    row(
        "txqueuelen",
        Location::Device("tx_queue_len"),
        Recommendation::AtLeast(1_000),
        "what a device's own queue holds, where it has one",
    ),
    row(
        "tun_txqueuelen",
        Location::Tun("tx_queue_len"),
        Recommendation::AtLeast(1_000),
        "what waits in the TUN device for the gateway; each place may hold a GSO buffer of 64 KiB",
    )
    .at_the_price_of("packets that wait longer when the gateway is too slow"),
    row(
        "rps_cpus",
        Location::Queue("rx", "rps_cpus"),
        Recommendation::EveryProcessor,
        "flows of one receive queue spread over the processors before the stack looks at them",
    )
    .at_the_price_of("packets cross processors; of no use to a single flow, or with a queue for each processor")
    .measured(),
    row(
        "xps_cpus",
        Location::Queue("tx", "xps_cpus"),
        Recommendation::ItsShare,
        "each processor sends through a queue of its own",
    )
    .at_the_price_of("what the driver chose is overruled"),
    row(
        "busy_poll",
        Location::System(&["net/core/busy_poll"]),
        Recommendation::AtLeast(50),
        "poll() looks at the device for so many µs before it sleeps",
    )
    .at_the_price_of("processor time that no other program gets; `esplanade run --wake busy` is the gateway's own way"),
    row(
        "busy_read",
        Location::System(&["net/core/busy_read"]),
        Recommendation::AtLeast(50),
        "the same for recvmmsg()",
    )
    .at_the_price_of("processor time that no other program gets"),
    row(
        "tcp.buffer_bytes",
        Location::System(&["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem"]),
        Recommendation::LastAtLeast(16 << 20),
        "how far TCP's own tuning may go: rate × round trip must fit. For connections that end here; a forwarded one has its hosts'",
    )
    .measured(),
    row(
        "tcp.moderate_rcvbuf",
        Location::System(&["net/ipv4/tcp_moderate_rcvbuf"]),
        Recommendation::Exactly("1"),
        "TCP tunes its receive buffer by itself",
    ),
    row(
        "tcp.window_scaling",
        Location::System(&["net/ipv4/tcp_window_scaling"]),
        Recommendation::Exactly("1"),
        "without it 64 KiB are on their way at most",
    )
    .measured(),
    row(
        "tcp.sack",
        Location::System(&["net/ipv4/tcp_sack"]),
        Recommendation::Exactly("1"),
        "a lost packet costs one packet and not a window",
    )
    .measured(),
    row(
        "tcp.timestamps",
        Location::System(&["net/ipv4/tcp_timestamps"]),
        Recommendation::Exactly("1"),
        "round trips are measured and old segments told apart, for twelve bytes of each packet",
    )
    .measured(),
    row(
        "governor",
        Location::Processor("cpufreq/scaling_governor"),
        Recommendation::Exactly("performance"),
        "short bursts end before a slow clock has risen",
    )
    .at_the_price_of("power"),
    row(
        "mtu",
        Location::Informational(informational::nothing),
        Recommendation::Nothing,
        "fewer, larger packets: 9000 where every device of the path between the gateways takes it; `ip link set DEV mtu 9000`",
    )
    .measured(),
    row(
        "smt",
        Location::Informational(informational::smt),
        Recommendation::Nothing,
        "two threads of one core share its cipher units: give --cpus one of each pair",
    ),
    row(
        "irqbalance",
        Location::Informational(informational::irqbalance),
        Recommendation::Nothing,
        "moves interrupts about: keep it, or pin the device's queues to processors that --cpus leaves free",
    ),
    row(
        "mitigations",
        Location::Informational(informational::mitigations),
        Recommendation::Nothing,
        "each system call pays for them; they are there for a reason, and nothing here switches them off",
    ),
    row(
        "conntrack",
        Location::Informational(informational::conntrack),
        Recommendation::Nothing,
        "tracks outer packets in vain: `nft add rule ip raw prerouting udp dport 4500 notrack`, and `ip protocol esp notrack`",
    ),
];

/// The setting of this name.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}
