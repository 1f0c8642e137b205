//! The kinds of contender and of load that a spec may name.

/// A word of a spec for one of a few values.
pub(super) trait Named: Copy + 'static {
    /// Every value, in the order in which errors list them.
    const ALL: &'static [Self];

    /// Its word.
    fn name(self) -> &'static str;

    /// The value of a word.
    fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.name() == word)
    }

    /// Every word.
    fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|one| one.name()).collect()
    }
}

/// A kind of contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContenderKind {
    Plain,
    Esplanade,
    KernelLibipsec,
    KernelXfrm,
    WireguardGo,
    Boringtun,
    KernelWireguard,
    OpenVpn,
}

impl Named for ContenderKind {
    const ALL: &'static [ContenderKind] = &[
        ContenderKind::Plain,
        ContenderKind::Esplanade,
        ContenderKind::KernelLibipsec,
        ContenderKind::KernelXfrm,
        ContenderKind::WireguardGo,
        ContenderKind::Boringtun,
        ContenderKind::KernelWireguard,
        ContenderKind::OpenVpn,
    ];

    fn name(self) -> &'static str {
        match self {
            ContenderKind::Plain => "plain",
            ContenderKind::Esplanade => "esplanade",
            ContenderKind::KernelLibipsec => "kernel-libipsec",
            ContenderKind::KernelXfrm => "kernel-xfrm",
            ContenderKind::WireguardGo => "wireguard-go",
            ContenderKind::Boringtun => "boringtun",
            ContenderKind::KernelWireguard => "kernel-wireguard",
            ContenderKind::OpenVpn => "openvpn",
        }
    }
}

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadKind {
    Iperf3,
    Iperf3Udp,
    Netperf,
    NetperfUdp,
    NetperfRr,
    RoundTrip,
    LoadedRoundTrip,
    Connections,
    Frames,
    Steady,
}

impl Named for LoadKind {
    const ALL: &'static [LoadKind] = &[
        LoadKind::Iperf3,
        LoadKind::Iperf3Udp,
        LoadKind::Netperf,
        LoadKind::NetperfUdp,
        LoadKind::NetperfRr,
        LoadKind::RoundTrip,
        LoadKind::LoadedRoundTrip,
        LoadKind::Connections,
        LoadKind::Frames,
        LoadKind::Steady,
    ];

    fn name(self) -> &'static str {
        match self {
            LoadKind::Iperf3 => "iperf3",
            LoadKind::Iperf3Udp => "iperf3-udp",
            LoadKind::Netperf => "netperf",
            LoadKind::NetperfUdp => "netperf-udp",
            LoadKind::NetperfRr => "netperf-rr",
            LoadKind::RoundTrip => "round-trip",
            LoadKind::LoadedRoundTrip => "loaded-round-trip",
            LoadKind::Connections => "connections",
            LoadKind::Frames => "frames",
            LoadKind::Steady => "steady",
        }
    }
}
