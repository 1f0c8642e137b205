//! An association as the kernel is told it, and as the kernel tells it.

use ipsec::algorithm::{Encryption, Integrity};
use ipsec::command::{Phase, SaReport};
use ipsec::dropped::Dropped;
use ipsec::sa::lifetime::{Lifetimes, Limits};
use ipsec::sa::{DontFragment, Dscp, Mode, Protocol, Reqid, SaConfig, SaId, Spi, UdpEncapsulation};
use ipsec::suite::{Secret, Suite};
use netlink_packet_xfrm::state::{
    AllocSpiMessage, DelGetMessage, FlushMessage, GetDumpMessage, ModifyMessage,
};
use netlink_packet_xfrm::*;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// UDP_ENCAP_ESPINUDP: RFC 3948.
const ESP_IN_UDP: u16 = 2;
/// The kernel keeps a bitmap of this many packets beside an association by itself; larger windows come with their own.
const LEGACY_WINDOW: u32 = 32;
const EVERY_PROTOCOL: u8 = 255;

/// What makes an association of this configuration.
pub(super) fn write(config: &SaConfig) -> ModifyMessage {
    let mut info = UserSaInfo::default();
    info.source(&config.source);
    info.destination(&config.id.destination);
    info.id.spi = config.id.spi.get();
    info.id.proto = config.id.protocol.number();
    info.reqid = config.reqid.0;
    info.mode = mode_number(config.mode);
    info.lifetime_cfg = lifetimes(&config.lifetimes);
    info.flags = flags(config);
    let mut attributes = algorithms(config);
    attributes.extend(config.encapsulation.map(encapsulation));
    if config.esn || config.replay_window > LEGACY_WINDOW {
        attributes.push(XfrmAttrs::ReplayStateEsn(window(config.replay_window)));
    } else {
        info.replay_window = config.replay_window as u8;
    }
    if config.dscp == Dscp::Set(0) {
        attributes.push(XfrmAttrs::ExtraFlags(XFRM_SA_XFLAG_DONT_ENCAP_DSCP));
    }
    if config.tfc > 0 {
        attributes.push(XfrmAttrs::TfcPadding(u32::from(config.tfc)));
    }
    ModifyMessage {
        user_sa_info: info,
        nlas: attributes,
    }
}

/// As setkey does it on Linux: `any` is transport.
fn mode_number(mode: Mode) -> u8 {
    match mode {
        Mode::Tunnel => XFRM_MODE_TUNNEL,
        Mode::Transport | Mode::Any => XFRM_MODE_TRANSPORT,
    }
}

fn flags(config: &SaConfig) -> u8 {
    let mut flags = 0;
    if config.mode == Mode::Tunnel {
        // Either family may travel inside.
        flags |= XFRM_STATE_AF_UNSPEC;
    }
    if config.esn {
        flags |= XFRM_STATE_ESN;
    }
    if !config.ecn {
        flags |= XFRM_STATE_NOECN;
    }
    if config.df == DontFragment::Clear {
        flags |= XFRM_STATE_NOPMTUDISC;
    }
    flags
}

fn lifetimes(lifetimes: &Lifetimes) -> LifetimeConfig {
    let or_never = |limit: u64| if limit == 0 { XFRM_INF } else { limit };
    let Lifetimes { soft, hard } = lifetimes;
    LifetimeConfig {
        soft_byte_limit: or_never(soft.bytes),
        hard_byte_limit: or_never(hard.bytes),
        soft_packet_limit: or_never(soft.packets),
        hard_packet_limit: or_never(hard.packets),
        soft_add_expires_seconds: soft.age,
        hard_add_expires_seconds: hard.age,
        soft_use_expires_seconds: soft.first_use,
        hard_use_expires_seconds: hard.first_use,
    }
}

fn algorithms(config: &SaConfig) -> Vec<XfrmAttrs> {
    let suite = &config.suite;
    let icv_bits = suite.icv_len() as u32 * 8;
    let mut attributes = Vec::new();
    if let Some((row, secret)) = suite.integrity() {
        attributes.push(XfrmAttrs::AuthenticationAlgTrunc(AlgAuth {
            alg_name: name(row.xfrm),
            alg_key_len: bits(secret),
            alg_trunc_len: icv_bits,
            alg_key: secret.expose().to_vec(),
        }));
    }
    match suite.encryption() {
        Some((row, secret)) if row.icv_len > 0 => {
            attributes.push(XfrmAttrs::EncryptionAlgAead(AlgAead {
                alg_name: name(row.xfrm),
                alg_key_len: bits(secret),
                alg_icv_len: icv_bits,
                alg_key: secret.expose().to_vec(),
            }));
        }
        Some((row, secret)) => attributes.push(XfrmAttrs::EncryptionAlg(Alg {
            alg_name: name(row.xfrm),
            alg_key_len: bits(secret),
            alg_key: secret.expose().to_vec(),
        })),
        None => {}
    }
    attributes
}

/// A name in the kernel's field, which has room for every name of the table.
fn name(name: &str) -> [u8; XFRM_ALG_NAME_LEN] {
    let mut field = [0; XFRM_ALG_NAME_LEN];
    field[..name.len()].copy_from_slice(name.as_bytes());
    field
}

fn bits(secret: &Secret) -> u32 {
    secret.expose().len() as u32 * 8
}

fn encapsulation(udp: UdpEncapsulation) -> XfrmAttrs {
    XfrmAttrs::EncapsulationTemplate(EncapTmpl {
        encap_type: ESP_IN_UDP,
        encap_sport: udp.source_port,
        encap_dport: udp.destination_port,
        encap_oa: Address::default(),
    })
}

fn window(packets: u32) -> ReplayEsn {
    let words = packets.div_ceil(32);
    ReplayEsn {
        bmp_len: words,
        replay_window: packets,
        bmp: vec![0; words as usize],
        ..ReplayEsn::default()
    }
}

/// The question for one association, and the request to take it away.
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

/// What the kernel has under a name.
pub(super) enum Found {
    /// An association that this language can say.
    Sa(Box<SaReport>),
    /// An SPI that waits for its keys.
    Larval(SaId),
    /// Something else: IPComp, an algorithm that is not in the table …
    Other,
}

/// Reads what the kernel tells.
pub(super) fn read(message: &ModifyMessage) -> Found {
    let info = &message.user_sa_info;
    let Some(id) = identity(info) else {
        return Found::Other;
    };
    let is_keyed = message.nlas.iter().any(|attribute| {
        matches!(
            attribute,
            XfrmAttrs::EncryptionAlg(_)
                | XfrmAttrs::EncryptionAlgAead(_)
                | XfrmAttrs::AuthenticationAlg(_)
                | XfrmAttrs::AuthenticationAlgTrunc(_)
        )
    });
    match (is_keyed, read_config(id, message)) {
        (false, _) => Found::Larval(id),
        (true, Some(config)) => Found::Sa(Box::new(report(config, message))),
        (true, None) => Found::Other,
    }
}

pub(super) fn identity(info: &UserSaInfo) -> Option<SaId> {
    Some(SaId {
        destination: read_address(&info.id.daddr, info.family),
        protocol: match info.id.proto {
            IPPROTO_ESP => Protocol::Esp,
            IPPROTO_AH => Protocol::Ah,
            _ => return None,
        },
        spi: Spi::new(info.id.spi)?,
    })
}

pub(super) fn read_address(address: &Address, family: u16) -> IpAddr {
    match family {
        AF_INET => IpAddr::V4(Ipv4Addr::from_octets([
            address.addr[0],
            address.addr[1],
            address.addr[2],
            address.addr[3],
        ])),
        _ => IpAddr::V6(address.to_ipv6()),
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
        soft: Limits {
            bytes: or_none(config.soft_byte_limit),
            packets: or_none(config.soft_packet_limit),
            age: config.soft_add_expires_seconds,
            first_use: config.soft_use_expires_seconds,
        },
        hard: Limits {
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
    Integrity::all().find(|row| row.xfrm == name)
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

/// The kernel does not know which way an association carries; one of the two counters stays 0.
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

/// The kernel tells no phase, but what it goes by; an association that is dead has left its tables.
fn phase(lifetimes: &Lifetimes, used: &Lifetime) -> Phase {
    let reached = |limit: u64, count: u64| limit > 0 && count >= limit;
    let soft = &lifetimes.soft;
    match reached(soft.bytes, used.bytes) || reached(soft.packets, used.packets) {
        true => Phase::Dying,
        false => Phase::Mature,
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

/// What the kernel has no word for, in a sentence.
pub(super) fn can_be_said(config: &SaConfig) -> Result<(), String> {
    if let Some((row, _)) = config.suite.encryption()
        && row.xfrm.is_empty()
    {
        let name = row.name;
        return Err(format!(
            "the kernel does not know {name}; use another algorithm, or let `esplanade run` carry the traffic"
        ));
    }
    if config.replay_window > XFRMA_REPLAY_ESN_MAX as u32 {
        return Err(format!(
            "the kernel's replay windows end at {XFRMA_REPLAY_ESN_MAX} packets; make `-r` smaller"
        ));
    }
    if config.df == DontFragment::Set {
        return Err(
            "the kernel copies the DF bit or clears it; `df=set` needs Esplanade's own data plane"
                .to_owned(),
        );
    }
    if matches!(config.dscp, Dscp::Set(1..)) {
        return Err("the kernel copies the DSCP or leaves it 0; other values need Esplanade's own data plane".to_owned());
    }
    if config.interface.is_some() {
        return Err("associations with a device of their own need Esplanade's own data plane; the kernel has `ip link … type xfrm`".to_owned());
    }
    if config.dummy > 0 {
        return Err(
            "`-o dummy` needs Esplanade's own data plane; the kernel sends no dummy packets"
                .to_owned(),
        );
    }
    if config.keepalive > 0 {
        return Err("`-o keepalive` needs Esplanade's own data plane; beside the kernel an IKE daemon sends keepalives".to_owned());
    }
    if config.aggfrag.is_some() {
        return Err("`-o aggfrag` needs Esplanade's own data plane: kernels before 6.14 do not know the mode".to_owned());
    }
    if config.tfc > 0 && config.mode != Mode::Tunnel {
        return Err("the kernel pads for traffic-flow confidentiality in tunnel mode alone; add `-m tunnel`".to_owned());
    }
    Ok(())
}

/// What the kernel cannot change while an association lives, in a sentence.
pub(super) fn can_become(old: &SaConfig, new: &SaConfig) -> Result<(), String> {
    let mut same = old.clone();
    same.lifetimes = new.lifetimes;
    if old.encapsulation.is_some() && new.encapsulation.is_some() {
        same.encapsulation = new.encapsulation;
    }
    if new.mode == Mode::Any {
        same.mode = Mode::Any;
    }
    match same == *new {
        true => Ok(()),
        false => Err(
            "the kernel updates the lifetimes and ports of a living association and nothing else; `delete` and \
             `add` it again"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_table_fits_the_kernels_field_and_leads_back_to_its_row() {
        for row in Encryption::all().filter(|row| !row.xfrm.is_empty()) {
            assert!(row.xfrm.len() < XFRM_ALG_NAME_LEN);
            assert_eq!(cipher(&name(row.xfrm), row.icv_len), Some(row));
        }
        for row in Integrity::all() {
            assert_eq!(mac(&name(row.xfrm)), Some(row));
        }
        assert_eq!(
            cipher(&name("ecb(cipher_null)"), 0),
            Encryption::named("null")
        );
    }
}
