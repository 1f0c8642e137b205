//! What the IPsec of this kernel has beyond that of Linux 6.1. Older kernels ignore attributes that they do not know,
//! so it is tried: an association is added with the attribute in a network namespace of its own, and read back.

use super::association;
use super::direction::SaDirection;
use super::extensions::{attributes, index_of};
use super::socket::{Refusal, XfrmSocket};
use super::zeroizing::ZeroizingMessage;
use crate::plane::Unsupported;
use crate::plane::own_namespace::in_own_namespace;
use ipsec::aggfrag::Aggfrag;
use ipsec::command::Command;
use ipsec::sa::{DontFragment, Mode, Offload, OffloadKind, SaConfig, Spi};
use ipsec::setkey::{Forwarding, NoNames, compile};
use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::state::ModifyMessage;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, OnceLock};

/// The association that is tried, in the documentation's networks. It never carries a packet.
const TRIED: &str = "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel OPTIONS \
    -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;";

/// Where no policy leads: the other end, and the SPI, of an association that is tried on a network card.
const TRIED_END_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 254);
const TRIED_END_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 0xfffe);
const TRIED_SPI: u32 = 0xe5d1_0001;

/// The processors that this machine may have, as `0-7`.
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";

/// What the kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Features {
    /// It keeps the direction of an association (Linux 6.10).
    pub(super) directions: bool,
    /// It aggregates and fragments (Linux 6.14 with CONFIG_XFRM_IPTFS).
    iptfs: bool,
    /// It has associations for one processor each (Linux 6.13).
    per_cpu: bool,
}

static KNOWN: OnceLock<Features> = OnceLock::new();

/// Finds out what the kernel has, once for this process, before it gives up the right to make network namespaces.
pub(crate) fn find_out() {
    KNOWN.get_or_init(|| in_own_namespace(try_each).unwrap_or_default());
}

/// Puts into a message that adds an association what it has in this direction. Where the kernel keeps no directions, or
/// there is none, it is without, which works on every kernel.
pub(super) fn put_direction(
    config: &SaConfig,
    direction: Option<SaDirection>,
    message: &mut ModifyMessage,
) -> io::Result<()> {
    if let Some(direction) = direction {
        message.nlas.extend(attributes(config, direction));
        if known().directions {
            direction.put_into(message);
        }
    } else if config.aggfrag.is_some() || config.cpu.is_some() || config.offload.is_some() {
        return Err(io::Error::other(format!(
            "the association from {} to {} with SPI {} has `-o aggfrag`, `cpu` or `offload`: one of its ends must be an \
             address of this host, and the other one not",
            config.source, config.id.destination, config.id.spi
        )));
    }
    Ok(())
}

/// What was found out. Nothing where it was not, or could not be: associations without it work on every kernel.
pub(super) fn known() -> Features {
    KNOWN.get().copied().unwrap_or_default()
}

fn try_each() -> Features {
    Features {
        directions: is_kept(""),
        iptfs: is_kept("-o aggfrag"),
        per_cpu: is_kept("-o cpu=0"),
    }
}

/// Whether the kernel keeps what an outbound association with these options has.
fn is_kept(options: &str) -> bool {
    let Some(config) = tried(options) else {
        return false;
    };
    let outbound = SaDirection::Outbound;
    let mut message = association::emit(&config);
    message.nlas.extend(attributes(&config, outbound));
    outbound.put_into(&mut message);
    read_back(&config, message).is_ok_and(|found| {
        let mut wanted = attributes(&config, outbound).into_iter();
        SaDirection::read(&found) == Some(outbound)
            && wanted.all(|attribute| found.nlas.contains(&attribute))
    })
}

/// What the kernel of this thread's network namespace keeps of an association, which does not stay.
fn read_back(config: &SaConfig, message: ModifyMessage) -> Result<ModifyMessage, Refusal> {
    let mut kernel = XfrmSocket::open()?;
    kernel.create(&ZeroizingMessage::new(XfrmMessage::AddSa(message)))?;
    let name = association::named(&config.id);
    let answer = kernel.ask(&ZeroizingMessage::new(XfrmMessage::GetSa(name.clone())));
    kernel.change(&ZeroizingMessage::new(XfrmMessage::DeleteSa(name)))?;
    match &*answer? {
        XfrmMessage::AddSa(found) => Ok(found.clone()),
        _ => Err(Refusal::of(libc::EBADMSG)),
    }
}

fn tried(options: &str) -> Option<Arc<SaConfig>> {
    let text = TRIED.replace("OPTIONS", options);
    let lowered = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames).ok()?;
    match lowered.commands.into_iter().next() {
        Some(Command::AddSa(config)) => Some(config),
        _ => None,
    }
}

/// Refuses what this kernel, this machine or a network card lacks, by name.
pub(super) fn check(config: &SaConfig) -> Result<(), Unsupported> {
    if let Some(aggfrag) = &config.aggfrag {
        check_aggfrag(config, aggfrag)?;
    }
    if let Some(cpu) = config.cpu {
        check_cpu(cpu)?;
    }
    match &config.offload {
        Some(offload) => check_offload(config, offload),
        None => Ok(()),
    }
}

fn check_aggfrag(config: &SaConfig, aggfrag: &Aggfrag) -> Result<(), Unsupported> {
    let refusals = [
        (
            !known().iptfs,
            "`-o aggfrag`: this kernel has no IPTFS (Linux 6.14 or later with CONFIG_XFRM_IPTFS, module xfrm_iptfs); \
             use `esplanade run --plane user`",
        ),
        (
            aggfrag.rate > 0,
            "`-o aggfrag-rate` needs Esplanade's own data plane: the kernel's IPTFS sends when there are packets",
        ),
        (
            config.df == DontFragment::Clear,
            "`-o df=clear` beside `-o aggfrag` needs Esplanade's own data plane: the kernel's IPTFS always sets DF",
        ),
    ];
    match refusals.iter().find(|(applies, _)| *applies) {
        Some((_, sentence)) => Err(Unsupported::new(*sentence)),
        None => Ok(()),
    }
}

fn check_cpu(cpu: u16) -> Result<(), Unsupported> {
    if !known().per_cpu {
        return Err(Unsupported::new(
            "`-o cpu`: this kernel has no associations for one processor each (Linux 6.13 or later); remove it",
        ));
    }
    let possible = fs::read_to_string(PROCESSORS).unwrap_or_default();
    match last_of(&possible) {
        Some(last) if cpu > last => Err(Unsupported(format!(
            "`-o cpu={cpu}`: the last processor of this machine is {last}"
        ))),
        _ => Ok(()),
    }
}

/// The last number of a list such as `0-3,8-11`.
fn last_of(list: &str) -> Option<u16> {
    list.trim().rsplit(['-', ',']).next()?.parse().ok()
}

/// Tries the association on the network card, with another name. For that moment the card has it.
fn check_offload(config: &SaConfig, offload: &Offload) -> Result<(), Unsupported> {
    let Offload { kind, device } = offload;
    let word = match kind {
        OffloadKind::Crypto => "crypto",
        OffloadKind::Packet => "packet",
    };
    let refused = |why: String| Unsupported(format!("`-o offload={word}:{device}`: {why}"));
    if index_of(device).is_none() {
        return Err(refused("there is no such device".to_owned()));
    }
    if *kind == OffloadKind::Packet && config.mode != Mode::Tunnel {
        return Err(refused("it needs `-m tunnel`".to_owned()));
    }
    let advice = format!("see esp-hw-offload of `ethtool -k {device}`, or remove the option");
    let mut apart = config.clone();
    apart.id.destination = match config.id.destination {
        IpAddr::V4(_) => TRIED_END_V4.into(),
        IpAddr::V6(_) => TRIED_END_V6.into(),
    };
    apart.id.spi = Spi::new(TRIED_SPI).unwrap_or(apart.id.spi);
    for direction in [SaDirection::Outbound, SaDirection::Inbound] {
        let mut message = association::emit(&apart);
        put_direction(&apart, Some(direction), &mut message)
            .map_err(|error| refused(error.to_string()))?;
        let found = read_back(&apart, message).map_err(|refusal| {
            refused(format!("the device does not take it: {refusal}; {advice}"))
        })?;
        let wanted = attributes(&apart, direction);
        if !wanted
            .iter()
            .all(|attribute| found.nlas.contains(attribute))
        {
            return Err(refused(format!("the device cannot do it: {advice}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: &str) -> String {
        check(&tried(options).unwrap()).unwrap_err().0
    }

    #[test]
    fn what_was_not_found_out_is_refused_by_name() {
        let why = refusal("-o aggfrag");
        assert!(
            why.contains("aggfrag") && why.contains("xfrm_iptfs"),
            "{why}"
        );
        let why = refusal("-o cpu=0");
        assert!(why.contains("cpu") && why.contains("6.13"), "{why}");
    }

    #[test]
    fn a_device_that_is_not_there_takes_nothing_over() {
        assert_eq!(index_of("no-such-device"), None);
        for kind in ["crypto", "packet"] {
            let why = refusal(&format!("-o offload={kind}:no-such-device"));
            assert!(
                why.contains(kind) && why.contains("no-such-device"),
                "{why}"
            );
        }
    }

    #[test]
    fn the_last_processor_is_the_last_number_of_the_list() {
        let last = ["0", "0-7\n", "0-3,8-11\n", "0,2\n", ""].map(last_of);
        assert_eq!(last, [Some(0), Some(7), Some(11), Some(2), None]);
    }
}
