//! The message that adds an association.

use super::super::extensions::MODE_IPTFS;
use super::identity::ESP_IN_UDP;
use crate::plane::interface_id::of_device;
use ipsec::sa::Lifetimes;
use ipsec::sa::{DontFragment, Dscp, Mode, Protocol, SaConfig, UdpEncapsulation};
use ipsec::suite::Secret;
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::*;

/// The kernel's built-in replay bitmap covers this many packets; larger windows are sent as a separate attribute.
const MAX_INLINE_REPLAY_WINDOW_PACKETS: u32 = 32;

/// The association of this configuration.
pub(crate) fn emit(config: &SaConfig) -> ModifyMessage {
    let mut info = UserSaInfo::default();
    info.source(&config.source);
    info.destination(&config.id.destination);
    info.id.spi = config.id.spi.get();
    info.id.proto = config.id.protocol.number();
    info.reqid = config.reqid.0;
    info.mode = match config.aggfrag {
        Some(_) => MODE_IPTFS,
        None => mode_number(config.mode),
    };
    info.lifetime_cfg = lifetimes(&config.lifetimes);
    info.flags = flags(config);
    let mut attributes = algorithms(config);
    attributes.extend(config.encapsulation.map(encapsulation));
    if config.esn || config.replay_window > MAX_INLINE_REPLAY_WINDOW_PACKETS {
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
    attributes.extend(of_device(config.interface.as_deref()));
    ModifyMessage {
        user_sa_info: info,
        nlas: attributes,
    }
}

/// As in setkey on Linux: `any` is transport.
fn mode_number(mode: Mode) -> u8 {
    match mode {
        Mode::Tunnel => XFRM_MODE_TUNNEL,
        Mode::Transport | Mode::Any => XFRM_MODE_TRANSPORT,
    }
}

fn flags(config: &SaConfig) -> u8 {
    // Packets inside may be of either family: in transport mode those of a tunnel that it goes around.
    let mut flags = XFRM_STATE_AF_UNSPEC;
    if config.esn {
        flags |= XFRM_STATE_ESN;
    }
    if !config.ecn {
        flags |= XFRM_STATE_NOECN;
    }
    if config.df == DontFragment::Clear {
        flags |= XFRM_STATE_NOPMTUDISC;
    }
    // RFC 4302 2.6: AH is padded to 4 bytes over IPv4. Linux pads to 8 unless it is told, and refuses anything else.
    if pads_to_4(config) {
        flags |= XFRM_STATE_ALIGN4;
    }
    flags
}

fn pads_to_4(config: &SaConfig) -> bool {
    config.id.protocol == Protocol::Ah && config.id.destination.is_ipv4() && !config.ah_align8
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
    if let Some(compression) = suite.compression() {
        attributes.push(XfrmAttrs::CompressionAlg(Alg {
            alg_name: name(compression.name()),
            alg_key_len: 0,
            alg_key: Vec::new(),
        }));
    }
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
pub(super) fn name(name: &str) -> [u8; XFRM_ALG_NAME_LEN] {
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
