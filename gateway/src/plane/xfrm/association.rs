//! An association in the kernel's form: its names, and the requests that need no more than those.
//!
//! `emit` writes the message that adds one, `parse` reads one; what the kernel does not support is refused here.

mod emit;
mod identity;
mod parse;

pub(super) use emit::emit;
pub(super) use identity::{identity, identity_of, read_address};
pub(super) use parse::{XfrmState, parse};

use crate::plane::Unsupported;
use ipsec::sa::{DontFragment, Dscp, Mode, Protocol, SaConfig, SaId, Spi};
use netlink_packet_xfrm::state::{AllocSpiMessage, DelGetMessage, FlushMessage, GetDumpMessage};
use netlink_packet_xfrm::*;
use std::net::IpAddr;

const EVERY_PROTOCOL: u8 = 255;

/// The query for one association, which is also the request to delete it.
pub(super) fn named(id: &SaId) -> DelGetMessage {
    let mut message = DelGetMessage::default();
    message.user_sa_id.destination(&id.destination);
    message.user_sa_id.spi = id.spi.get();
    message.user_sa_id.proto = id.protocol.number();
    message
}

pub(super) fn flush(protocol: Option<Protocol>) -> XfrmMessage {
    let protocol = protocol.map_or(EVERY_PROTOCOL, Protocol::number);
    XfrmMessage::FlushSa(FlushMessage { protocol })
}

pub(super) fn everything() -> XfrmMessage {
    XfrmMessage::GetDumpSa(GetDumpMessage::default())
}

/// Asks the kernel for an SPI between two ends.
pub(super) fn reserve(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    range: Option<(Spi, Spi)>,
) -> XfrmMessage {
    let mut spi_info = UserSpiInfo::default();
    spi_info.info.source(&source);
    spi_info.info.destination(&destination);
    spi_info.info.id.proto = protocol.number();
    if let Some((low, high)) = range {
        (spi_info.min, spi_info.max) = (low.get(), high.get());
    }
    let nlas = Vec::new();
    XfrmMessage::AllocSpi(AllocSpiMessage { spi_info, nlas })
}

/// Refuses what the kernel alone does not support, with a sentence.
pub(super) fn check_supported(config: &SaConfig) -> Result<(), Unsupported> {
    let refusals = [
        (
            config.interface.is_some(),
            "`-o interface` needs Esplanade's own data plane; for the kernel use `ip link … type xfrm`",
        ),
        (
            config.sequence > 0,
            "`-o sequence` needs a gateway (`esplanade run`); for the kernel use `ip xfrm state … replay-seq N \
             replay-oseq N`",
        ),
        (
            config.aggfrag.is_some(),
            "`-o aggfrag` needs a gateway (`esplanade run`), which knows the direction of an association",
        ),
        (
            config.cpu.is_some() || config.offload.is_some(),
            "`-o cpu` and `-o offload` need a gateway (`esplanade run --plane kernel`), which knows the direction of an \
             association",
        ),
        (
            config.keepalive > 0,
            "`-o keepalive` needs a gateway (`esplanade run`); with the kernel's IPsec an IKE daemon sends keepalives",
        ),
    ];
    match refusals.iter().find(|(applies, _)| *applies) {
        Some((_, sentence)) => Err(Unsupported::new(*sentence)),
        None => check_carried(config),
    }
}

/// Refuses what the kernel does not support beside a gateway either, with a sentence.
pub(super) fn check_carried(config: &SaConfig) -> Result<(), Unsupported> {
    let encryption = config
        .suite
        .encryption()
        .map(|(row, _)| (row.name, row.xfrm));
    let integrity = config
        .suite
        .integrity()
        .map(|(row, _)| (row.name, row.xfrm));
    let mut algorithms = encryption.into_iter().chain(integrity);
    if let Some((name, _)) = algorithms.find(|(_, xfrm)| xfrm.is_empty()) {
        return Err(Unsupported(format!(
            "the kernel does not support {name}; use another algorithm, or use `esplanade run --plane user`"
        )));
    }
    if config.replay_window > XFRMA_REPLAY_ESN_MAX as u32 {
        return Err(Unsupported(format!(
            "the kernel's largest replay window is {XFRMA_REPLAY_ESN_MAX} packets; reduce `-r`"
        )));
    }
    let refusals = [
        (
            config.df == DontFragment::Set,
            "the kernel either copies or clears the DF bit; `df=set` needs Esplanade's own data plane",
        ),
        (
            matches!(config.dscp, Dscp::Set(1..)),
            "the kernel either copies the DSCP or sets it to 0; other values need Esplanade's own data plane",
        ),
        (
            config.dummy > 0,
            "`-o dummy` needs Esplanade's own data plane; the kernel sends no dummy packets",
        ),
        (
            config.tfc > 0 && config.mode != Mode::Tunnel,
            "the kernel supports TFC padding only in tunnel mode; add `-m tunnel`",
        ),
    ];
    match refusals.iter().find(|(applies, _)| *applies) {
        Some((_, sentence)) => Err(Unsupported::new(*sentence)),
        None => Ok(()),
    }
}

/// Refuses what the kernel cannot change in an existing association, with a sentence.
pub(super) fn check_update(old: &SaConfig, new: &SaConfig) -> Result<(), Unsupported> {
    let mut same = old.clone();
    same.lifetimes = new.lifetimes;
    if old.encapsulation.is_some() && new.encapsulation.is_some() {
        same.encapsulation = new.encapsulation;
    }
    if new.mode == Mode::Any {
        same.mode = Mode::Any;
    }
    if same == *new {
        Ok(())
    } else {
        Err(Unsupported::new(
            "the kernel can update only the lifetimes and ports of an existing association; `delete` and `add` it \
             instead",
        ))
    }
}
