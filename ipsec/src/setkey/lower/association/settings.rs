//! The settings of an association from its extensions and options, and which of them exclude each other.

use super::aggfrag::aggfrag;
use super::{Lower, Lowering};
use crate::aggfrag::Aggfrag;
use crate::sa::replay::MAX_REPLAY_WINDOW_PACKETS;
use crate::sa::{self, DontFragment, Dscp, Offload, Reqid, SaConfig, SaId, UdpEncapsulation};
use crate::sa::{LifetimeLimits, Lifetimes};
use crate::setkey::Problem;
use crate::setkey::ast::*;
use crate::setkey::lower::option::{Encap, Options};
use crate::suite::Suite;
use std::net::IpAddr;
use std::sync::Arc;

/// A configuration before it is known for which addresses.
pub(super) struct Settings {
    mode: sa::Mode,
    reqid: Reqid,
    replay_window: u32,
    esn: bool,
    sequence: u64,
    key_is_fresh: bool,
    encapsulation: Option<UdpEncapsulation>,
    lifetimes: Lifetimes,
    df: DontFragment,
    dscp: Dscp,
    ecn: bool,
    tfc: u16,
    interface: Option<Arc<str>>,
    keepalive: u16,
    ah_align8: bool,
    aggfrag: Option<Aggfrag>,
    dummy: u16,
    cpu: Option<u16>,
    offload: Option<Offload>,
}

impl Settings {
    pub(super) fn config(&self, id: SaId, source: IpAddr, suite: Suite) -> SaConfig {
        SaConfig {
            id,
            source,
            suite,
            mode: self.mode,
            reqid: self.reqid,
            replay_window: self.replay_window,
            esn: self.esn,
            sequence: self.sequence,
            key_is_fresh: self.key_is_fresh,
            encapsulation: self.encapsulation,
            lifetimes: self.lifetimes,
            df: self.df,
            dscp: self.dscp,
            ecn: self.ecn,
            tfc: self.tfc,
            interface: self.interface.clone(),
            selectors: Arc::default(),
            keepalive: self.keepalive,
            dummy: self.dummy,
            ah_align8: self.ah_align8,
            is_standby: false,
            is_negotiated: false,
            aggfrag: self.aggfrag,
            cpu: self.cpu,
            offload: self.offload.clone(),
        }
    }
}

/// The port of ESP in UDP unless ports are given (RFC 3948).
const NAT_PORT: u16 = 4500;

impl Lowering<'_> {
    /// Everything that comes from the options; addresses, SPI and suite are put in later.
    pub(super) fn settings(&mut self, name: &SaName, options: &Options) -> Lower<Settings> {
        let extensions = &name.extensions;
        if let Some(label) = &extensions.label {
            let problem = Problem::unsupported(
                label.span,
                "security labels mean nothing outside the kernel",
            );
            return Err(problem.advise("leave out `-ctx`"));
        }
        self.warn_of_padding(extensions);
        let mode = extensions
            .mode
            .map_or(sa::Mode::Any, |mode| sa_mode(mode.node));
        let lifetimes = lifetimes(extensions, options);
        self.warn_of_late_soft_limits(name, &lifetimes);
        let encapsulation = self.encapsulation(name, options)?;
        Ok(Settings {
            interface: interface(options, mode)?,
            keepalive: keepalive(options, encapsulation.is_some())?,
            aggfrag: aggfrag(name, options, mode)?,
            dummy: dummy(options, &name.protocol.node)?,
            cpu: options.cpu.map(|cpu| cpu.node),
            offload: offload(name, options)?,
            mode,
            reqid: reqid(extensions.reqid)?,
            replay_window: self.replay_window(name, options)?,
            esn: options.esn.is_some_and(|esn| esn.node),
            sequence: sequence(options)?,
            key_is_fresh: options.key_is_fresh.is_some(),
            encapsulation,
            lifetimes,
            df: options.df.map(|df| df.node).unwrap_or_default(),
            dscp: options.dscp.map_or(Dscp::Copy, |dscp| dscp.node),
            ecn: options.ecn.is_none_or(|ecn| ecn.node),
            tfc: options.tfc.map_or(0, |tfc| tfc.node),
            ah_align8: options.ah_align8.is_some_and(|align| align.node),
        })
    }

    fn replay_window(&mut self, name: &SaName, options: &Options) -> Lower<u32> {
        let replay = name.extensions.replay;
        let packets = replay.map_or(0, |replay| replay.node);
        if name.protocol.node == ProtocolWord::IpComp {
            return without_numbers(options).map(|()| 0);
        }
        if packets == 0 {
            let without = "without `-r` packets can be replayed: `-r 1024` refuses those seen among the last 1024";
            self.warn(name.spi.span, without);
            return esn_needs_window(options);
        }
        let window = u32::try_from(packets)
            .ok()
            .filter(|&window| window <= MAX_REPLAY_WINDOW_PACKETS);
        window.ok_or_else(|| {
            let span = replay.map_or(name.spi.span, |replay| replay.span);
            let problem = Problem::new(
                span,
                format!("a replay window of {packets} packets is too large"),
            );
            problem.advise(format!(
                "at most {MAX_REPLAY_WINDOW_PACKETS} are remembered; 1024 is plenty"
            ))
        })
    }

    fn encapsulation(
        &mut self,
        name: &SaName,
        options: &Options,
    ) -> Lower<Option<UdpEncapsulation>> {
        let source = self.port(&name.source.port)?;
        let destination = self.port(&name.destination.port)?;
        let in_udp = matches!(name.protocol.node, ProtocolWord::EspUdp(_));
        match options.encap {
            Some(encap) if in_udp => {
                let problem =
                    Problem::new(encap.span, "`esp-udp` says already how the packets travel");
                Err(problem.advise("leave out `-o encap`; ports stand behind the addresses"))
            }
            Some(encap) if name.protocol.node == ProtocolWord::Ah && encap.node != Encap::None => {
                Err(
                    Problem::new(encap.span, "AH cannot travel in UDP (RFC 3948)")
                        .advise("use `esp`"),
                )
            }
            Some(At {
                node: Encap::Udp(source_port, destination_port),
                ..
            }) => Ok(Some(UdpEncapsulation {
                source_port,
                destination_port,
            })),
            _ if in_udp => Ok(Some(UdpEncapsulation {
                source_port: source.filter(|&port| port != 0).unwrap_or(NAT_PORT),
                destination_port: destination.filter(|&port| port != 0).unwrap_or(NAT_PORT),
            })),
            _ => no_ports(name, source.or(destination)).map(|()| None),
        }
    }

    fn warn_of_padding(&mut self, extensions: &Extensions) {
        let padding = extensions
            .padding
            .filter(|padding| padding.node != Padding::Sequential);
        if let Some(padding) = padding {
            self.warn(
                padding.span,
                "padding is always 1, 2, 3 … as RFC 4303 2.4 wants it; `-f` changes nothing",
            );
        }
    }

    fn warn_of_late_soft_limits(&mut self, name: &SaName, lifetimes: &Lifetimes) {
        let Lifetimes { soft, hard } = lifetimes;
        let limits = [
            (soft.bytes, hard.bytes),
            (soft.packets, hard.packets),
            (soft.age, hard.age),
            (soft.first_use, hard.first_use),
        ];
        if limits.iter().any(|&(soft, hard)| hard > 0 && soft >= hard) {
            self.warn(name.spi.span, "a soft limit that is not below its hard limit gives no time to replace the association");
        }
    }
}

/// A device carries whole packets to any destination that is routed into it, which needs tunnel mode.
fn interface(options: &Options, mode: sa::Mode) -> Lower<Option<Arc<str>>> {
    match &options.interface {
        Some(interface) if mode != sa::Mode::Tunnel => {
            let problem = Problem::new(
                interface.span,
                "an association of a device of its own must be a tunnel",
            );
            Err(problem.advise("write `-m tunnel`"))
        }
        interface => Ok(interface.as_ref().map(|name| Arc::clone(&name.node))),
    }
}

fn keepalive(options: &Options, in_udp: bool) -> Lower<u16> {
    match options.keepalive {
        Some(At { node: 1.., span }) if !in_udp => {
            let problem = Problem::new(span, "only ESP in UDP has a NAT to remind");
            Err(problem.advise("write `esp-udp`, or leave out `-o keepalive`"))
        }
        keepalive => Ok(keepalive.map_or(0, |seconds| seconds.node)),
    }
}

/// RFC 4303 2.6 knows dummy packets; RFC 4302 has nothing like them.
fn dummy(options: &Options, protocol: &ProtocolWord) -> Lower<u16> {
    match options.dummy {
        Some(At { node: 1.., span }) if *protocol == ProtocolWord::Ah => {
            let problem = Problem::new(span, "AH has no dummy packets");
            Err(problem.advise("leave out `-o dummy`, or use `esp`"))
        }
        dummy => Ok(dummy.map_or(0, |seconds| seconds.node)),
    }
}

/// What the kernel lets no network card do is refused whatever the card is.
fn offload(name: &SaName, options: &Options) -> Lower<Option<Offload>> {
    let Some(At {
        node: offload,
        span,
    }) = &options.offload
    else {
        return Ok(None);
    };
    let beside = [
        (name.protocol.node == ProtocolWord::Ah, "AH"),
        (options.interface.is_some(), "`-o interface`"),
        (
            options.aggfrag.is_some_and(|aggfrag| aggfrag.node),
            "`-o aggfrag`",
        ),
        (options.tfc.is_some(), "`-o tfc`"),
    ];
    match beside.iter().find(|(applies, _)| *applies) {
        None => Ok(Some(offload.clone())),
        Some((_, what)) => {
            let problem = Problem::new(*span, format!("no network card takes {what} over"));
            Err(problem.advise("leave out `-o offload`"))
        }
    }
}

fn sa_mode(mode: ModeWord) -> sa::Mode {
    match mode {
        ModeWord::Transport => sa::Mode::Transport,
        ModeWord::Tunnel => sa::Mode::Tunnel,
        ModeWord::Any => sa::Mode::Any,
    }
}

fn reqid(reqid: Option<At<u64>>) -> Lower<Reqid> {
    let Some(At { node, span }) = reqid else {
        return Ok(Reqid::default());
    };
    let number = u32::try_from(node).map(Reqid);
    number.map_err(|_| {
        Problem::new(span, "this identifier is too large")
            .advise("it has 32 bits: at most 4294967295")
    })
}

fn lifetimes(extensions: &Extensions, options: &Options) -> Lifetimes {
    let number = |limit: Option<At<u64>>| limit.map_or(0, |limit| limit.node);
    Lifetimes {
        soft: LifetimeLimits {
            bytes: number(extensions.soft_bytes),
            packets: number(options.soft_packets),
            age: number(extensions.soft_seconds),
            first_use: number(options.soft_use),
        },
        hard: LifetimeLimits {
            bytes: number(extensions.hard_bytes),
            packets: number(options.hard_packets),
            age: number(extensions.hard_seconds),
            first_use: number(options.hard_use),
        },
    }
}

/// RFC 4303 3.3.3: the high half of a number is inferred from the window, so that without one there is none.
fn esn_needs_window(options: &Options) -> Lower<u32> {
    match options.esn {
        Some(esn) if esn.node => {
            let problem = Problem::new(esn.span, "extended sequence numbers need a replay window");
            Err(problem.advise("add `-r 1024`"))
        }
        _ => Ok(0),
    }
}

/// IPComp has no sequence numbers, no keys and no packets without content.
fn without_numbers(options: &Options) -> Lower<()> {
    let spans = [
        options.esn.map(|option| option.span),
        options.sequence.map(|option| option.span),
        options.key_is_fresh.map(|option| option.span),
        options.tfc.map(|option| option.span),
        options.aggfrag.map(|option| option.span),
        options.dummy.map(|option| option.span),
        options.cpu.map(|option| option.span),
        options.offload.as_ref().map(|option| option.span),
        options.interface.as_ref().map(|option| option.span),
    ];
    match spans.into_iter().flatten().next() {
        None => Ok(()),
        Some(span) => {
            let problem = Problem::new(span, "IPComp has nothing that this option could change");
            Err(problem.advise("leave it out, or give it to the `esp` around it"))
        }
    }
}

/// RFC 4303 3.3.3: a number never comes twice, so that the last one leaves nothing to send.
fn sequence(options: &Options) -> Lower<u64> {
    let extended = options.esn.is_some_and(|esn| esn.node);
    let end = if extended { u64::MAX } else { u32::MAX.into() };
    match options.sequence {
        Some(At { node, span }) if node >= end => {
            let problem = Problem::new(span, "no sequence number is left behind this one");
            Err(problem.advise(if extended {
                "use new keys"
            } else {
                "use new keys; where more is to be sent than 32 bits count, both ends can use `-o esn`"
            }))
        }
        sequence => Ok(sequence.map_or(0, |last| last.node)),
    }
}

fn no_ports(name: &SaName, port: Option<u16>) -> Lower<()> {
    let ports = [&name.source.port, &name.destination.port];
    let span = ports
        .into_iter()
        .flatten()
        .map(|port| port.span)
        .next_back();
    match (port.filter(|&port| port != 0), span) {
        (Some(_), Some(span)) => {
            let problem = Problem::new(span, "ports belong to `esp-udp`");
            Err(problem.advise("which traffic is protected by port is said in a policy"))
        }
        _ => Ok(()),
    }
}
