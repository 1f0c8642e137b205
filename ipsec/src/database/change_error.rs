//! Why a command is refused.

use crate::sa::{Protocol, SaId, SequenceTooHigh};
use std::net::IpAddr;
use thiserror::Error;

/// Why a command is refused, and what to do about it.
#[derive(Debug, Error)]
pub(super) enum ChangeError {
    #[error(
        "there is already an {}; delete it first, or use `update` to change it and keep its counters",
        describe(.0)
    )]
    SaExists(SaId),
    #[error("there is no {} from {from}; `setkey -D` lists all", describe(.id))]
    NoSa { id: SaId, from: IpAddr },
    #[error(
        "an {} has the same ends by {known_ports}, and this one is by {ports}: two hosts behind one NAT, and in transport \
         mode no policy could decide which of them a packet is for. Use `-m tunnel`, give each its own `-u N` with \
         policies of its own ports (`unique:N`), or delete the other one first",
        describe(.known)
    )]
    SameNat {
        known: SaId,
        known_ports: String,
        ports: String,
    },
    #[error("every SPI of that range is in use")]
    NoFreeSpi,
    #[error(
        "there is already a policy for this traffic in this direction; delete it first, or use `spdupdate`"
    )]
    PolicyExists,
    #[error(
        "`ipcomp` has to be the first of a policy's templates, with `esp` or `ah` behind it: what is encrypted does not \
         become shorter, and compression alone protects nothing"
    )]
    CompressionPlace,
    #[error("there is no policy for this traffic in this direction; `setkey -DP` lists all")]
    NoPolicy,
    #[error(transparent)]
    Update(#[from] SequenceTooHigh),
}

fn describe(id: &SaId) -> String {
    let protocol = match id.protocol {
        Protocol::Esp => "ESP",
        Protocol::Ah => "AH",
        Protocol::IpComp => "IPComp",
    };
    format!(
        "{protocol} association to {} with SPI {}",
        id.destination, id.spi
    )
}
