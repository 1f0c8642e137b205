//! What the IPsec of this kernel has beyond that of Linux 6.1. Older kernels ignore attributes that they do not know,
//! so it is tried: an association is added with the attribute in a network namespace of its own, and read back.

use super::association;
use super::direction::SaDirection;
use super::socket::{Refusal, XfrmSocket};
use super::zeroizing::ZeroizingMessage;
use crate::plane::own_namespace::in_own_namespace;
use ipsec::command::Command;
use ipsec::sa::SaConfig;
use ipsec::setkey::{Forwarding, NoNames, compile};
use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::state::ModifyMessage;
use std::sync::{Arc, OnceLock};

/// The association that is tried. It never carries a packet.
const TRIED: &[u8] = b"add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel \
    -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;";

/// What the kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Features {
    /// It keeps the direction of an association (Linux 6.10).
    pub(super) directions: bool,
}

static KNOWN: OnceLock<Features> = OnceLock::new();

/// Finds out what the kernel has, once for this process, before it gives up the right to make network namespaces.
pub(crate) fn find_out() {
    KNOWN.get_or_init(|| in_own_namespace(try_each).unwrap_or_default());
}

/// What was found out. Nothing where it was not, or could not be: associations without it work on every kernel.
pub(super) fn known() -> Features {
    KNOWN.get().copied().unwrap_or_default()
}

fn try_each() -> Features {
    let outbound = SaDirection::Outbound;
    let directed = read_back(|message| outbound.put_into(message));
    Features {
        directions: directed.is_ok_and(|found| SaDirection::read(&found) == Some(outbound)),
    }
}

/// What the kernel of this thread's network namespace keeps of the tried association, after `change`.
fn read_back(change: impl FnOnce(&mut ModifyMessage)) -> Result<ModifyMessage, Refusal> {
    let config = tried().ok_or(Refusal::of(libc::EINVAL))?;
    let mut message = association::emit(&config);
    change(&mut message);
    let mut kernel = XfrmSocket::open()?;
    kernel.create(&ZeroizingMessage::new(XfrmMessage::AddSa(message)))?;
    let question = XfrmMessage::GetSa(association::named(&config.id));
    match &*kernel.ask(&ZeroizingMessage::new(question))? {
        XfrmMessage::AddSa(found) => Ok(found.clone()),
        _ => Err(Refusal::of(libc::EBADMSG)),
    }
}

fn tried() -> Option<Arc<SaConfig>> {
    let lowered = compile(TRIED, Forwarding::AsWritten, &mut NoNames).ok()?;
    match lowered.commands.into_iter().next() {
        Some(Command::AddSa(config)) => Some(config),
        _ => None,
    }
}
