//! An association as the kernel reports it.

use super::identity::{ESP_IN_UDP, identity, read_address};
use ipsec::algorithm::{Encryption, Integrity};
use ipsec::command::SaReport;
use ipsec::dropped::Dropped;
use ipsec::sa::Phase;
use ipsec::sa::{DontFragment, Dscp, Mode, Protocol, Reqid, SaConfig, SaId, UdpEncapsulation};
use ipsec::sa::{LifetimeLimits, Lifetimes};
use ipsec::suite::{CompressionAlgorithm, Secret, Suite};
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::*;
use std::sync::Arc;

/// A state of XFRM: what the kernel has under an SPI, address and protocol.
pub(crate) enum XfrmState {
    /// An association that setkey syntax can express.
    Sa(Box<SaReport>),
    /// An SPI that waits for its keys.
    Larval(SaId),
    /// Something else: an algorithm that is not in the table …
    Other,
}

/// Reads one.
pub(crate) fn parse(message: &ModifyMessage) -> XfrmState {
    let info = &message.user_sa_info;
    let Some(id) = identity(info) else {
        return XfrmState::Other;
    };
    let is_keyed = message.nlas.iter().any(|attribute| {
        matches!(
            attribute,
            XfrmAttrs::EncryptionAlg(_)
                | XfrmAttrs::EncryptionAlgAead(_)
                | XfrmAttrs::AuthenticationAlg(_)
                | XfrmAttrs::AuthenticationAlgTrunc(_)
                | XfrmAttrs::CompressionAlg(_)
        )
    });
    match (is_keyed, read_config(id, message)) {
        (false, _) => XfrmState::Larval(id),
        (true, Some(config)) => XfrmState::Sa(Box::new(report(config, message))),
        (true, None) => XfrmState::Other,
    }
}

fn read_config(id: SaId, message: &ModifyMessage) -> Option<SaConfig> {
    let info = &message.user_sa_info;
    let source = read_address(&info.saddr, info.family);
    let has = |flag: u8| info.flags & flag != 0;
    let mut config = SaConfig::new(id, source, read_suite(&message.nlas)?);
    config.mode = match info.mode {
        XFRM_MODE_TRANSPORT => Mode::Transport,
        XFRM_MODE_TUNNEL => Mode::Tunnel,
        _ => return None,
    };
    config.reqid = Reqid(info.reqid);
    config.replay_window = u32::from(info.replay_window);
    config.esn = has(XFRM_STATE_ESN);
    config.ecn = !has(XFRM_STATE_NOECN);
    if has(XFRM_STATE_NOPMTUDISC) {
        config.df = DontFragment::Clear;
    }
    config.ah_align8 =
        id.protocol == Protocol::Ah && id.destination.is_ipv4() && !has(XFRM_STATE_ALIGN4);
    config.lifetimes = read_lifetimes(&info.lifetime_cfg);
    for attribute in &message.nlas {
        match attribute {
            XfrmAttrs::ReplayStateEsn(state) => config.replay_window = state.replay_window,
            XfrmAttrs::EncapsulationTemplate(udp) => {
                config.encapsulation = Some(read_encapsulation(udp)?);
            }
            XfrmAttrs::ExtraFlags(flags) if flags & XFRM_SA_XFLAG_DONT_ENCAP_DSCP != 0 => {
                config.dscp = Dscp::Set(0);
            }
            XfrmAttrs::TfcPadding(len) => config.tfc = u16::try_from(*len).unwrap_or(u16::MAX),
            _ => {}
        }
    }
    Some(config)
}

fn read_encapsulation(udp: &EncapTmpl) -> Option<UdpEncapsulation> {
    (udp.encap_type == ESP_IN_UDP).then_some(UdpEncapsulation {
        source_port: udp.encap_sport,
        destination_port: udp.encap_dport,
    })
}

fn read_lifetimes(config: &LifetimeConfig) -> Lifetimes {
    let or_none = |limit: u64| if limit == XFRM_INF { 0 } else { limit };
    Lifetimes {
        soft: LifetimeLimits {
            bytes: or_none(config.soft_byte_limit),
            packets: or_none(config.soft_packet_limit),
            age: config.soft_add_expires_seconds,
            first_use: config.soft_use_expires_seconds,
        },
        hard: LifetimeLimits {
            bytes: or_none(config.hard_byte_limit),
            packets: or_none(config.hard_packet_limit),
            age: config.hard_add_expires_seconds,
            first_use: config.hard_use_expires_seconds,
        },
    }
}

fn read_suite(attributes: &[XfrmAttrs]) -> Option<Suite> {
    let (mut encryption, mut integrity, mut icv_len) = (None, None, None);
    for attribute in attributes {
        match attribute {
            XfrmAttrs::EncryptionAlg(algorithm) => {
                let row = cipher(&algorithm.alg_name, 0)?;
                encryption = Some((row, Secret::new(algorithm.alg_key.clone())));
            }
            XfrmAttrs::EncryptionAlgAead(algorithm) => {
                let row = cipher(&algorithm.alg_name, algorithm.alg_icv_len as usize / 8)?;
                encryption = Some((row, Secret::new(algorithm.alg_key.clone())));
            }
            XfrmAttrs::AuthenticationAlgTrunc(algorithm) => {
                let row = mac(&algorithm.alg_name)?;
                integrity = Some((row, Secret::new(algorithm.alg_key.clone())));
                icv_len = Some(algorithm.alg_trunc_len as usize / 8);
            }
            XfrmAttrs::CompressionAlg(algorithm) => {
                let is_known = text(&algorithm.alg_name)? == CompressionAlgorithm::Deflate.name();
                return is_known.then(|| Suite::of_compression(CompressionAlgorithm::Deflate));
            }
            _ => {}
        }
    }
    Suite::new(encryption, integrity, icv_len).ok()
}

fn cipher(name: &[u8], icv_len: usize) -> Option<Encryption> {
    let name = text(name)?;
    Encryption::all().find(|row| row.xfrm == name && row.icv_len == icv_len)
}

fn mac(name: &[u8]) -> Option<Integrity> {
    let name = text(name)?;
    Integrity::all().find(|row| row.xfrm == name && !row.xfrm.is_empty())
}

fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&field[..end]).ok()
}

fn report(config: SaConfig, message: &ModifyMessage) -> SaReport {
    let info = &message.user_sa_info;
    let used = &info.lifetime_cur;
    let last_used = message.nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::LastUsed(time) => Some(*time),
        _ => None,
    });
    SaReport {
        sequence: sequence(&message.nlas),
        created: used.add_time,
        first_used: used.use_time,
        last_used: last_used.unwrap_or(used.use_time),
        bytes: used.bytes,
        packets: used.packets,
        phase: phase(&config.lifetimes, used),
        drops: drops(&info.stats),
        config: Arc::new(config),
    }
}

/// The kernel does not record the direction of an association; one of the two counters stays 0.
fn sequence(attributes: &[XfrmAttrs]) -> u64 {
    let join = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let numbers = attributes.iter().map(|attribute| match attribute {
        XfrmAttrs::ReplayState(state) => u64::from(state.oseq.max(state.seq)),
        XfrmAttrs::ReplayStateEsn(state) => {
            join(state.oseq_hi, state.oseq).max(join(state.seq_hi, state.seq))
        }
        _ => 0,
    });
    numbers.max().unwrap_or(0)
}

/// The kernel reports no phase: it is derived from lifetimes and counters. The kernel deletes dead associations.
fn phase(lifetimes: &Lifetimes, used: &Lifetime) -> Phase {
    let reached = |limit: u64, count: u64| limit > 0 && count >= limit;
    let soft = &lifetimes.soft;
    if reached(soft.bytes, used.bytes) || reached(soft.packets, used.packets) {
        Phase::Dying
    } else {
        Phase::Mature
    }
}

fn drops(stats: &Stats) -> Vec<(Dropped, u64)> {
    let counted = [
        (Dropped::TooOld, stats.replay_window),
        (Dropped::Replayed, stats.replay),
        (Dropped::BadIcv, stats.integrity_failed),
    ];
    let counted = counted.into_iter().filter(|(_, count)| *count > 0);
    counted
        .map(|(reason, count)| (reason, u64::from(count)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::emit::name;
    use super::*;

    #[test]
    fn every_name_of_the_table_fits_the_kernels_field_and_leads_back_to_its_row() {
        for row in Encryption::all().filter(|row| !row.xfrm.is_empty()) {
            assert!(row.xfrm.len() < XFRM_ALG_NAME_LEN);
            assert_eq!(cipher(&name(row.xfrm), row.icv_len), Some(row));
        }
        for row in Integrity::all().filter(|row| !row.xfrm.is_empty()) {
            assert_eq!(mac(&name(row.xfrm)), Some(row));
        }
        assert_eq!(
            cipher(&name("ecb(cipher_null)"), 0),
            Encryption::named("null")
        );
    }
}
