//! The keys of the IKE SA: the initiator goes on with IKE_AUTH, the responder answers IKE_SA_INIT.

use super::responder;
use crate::{
    encrypted::{MessageKey, Sealer},
    exchange::{Context, auth, forget_handles},
    ike_sa::{IkeSa, Initiating, SaKeys, State},
    work::{IkeKeyParts, Output, WorkError},
};

/// The keys are there, or not.
pub(crate) fn made(sa: &mut IkeSa, cx: &mut Context<'_>, result: Result<Output, WorkError>) {
    let parts = match result {
        Ok(Output::IkeKeys(parts)) => parts,
        Ok(other) => {
            forget_handles(cx, sa.own_spi(), &other);
            return sa.fail(cx, "no keys came out of the key exchange");
        }
        Err(error) => return sa.fail(cx, &format!("key exchange: {error}")),
    };
    let state = std::mem::replace(&mut sa.state, State::Authenticating);
    cx.log_keys(sa.spis, &parts);
    let public = match take_keys(sa, *parts) {
        Ok(public) => public,
        Err(why) => return sa.fail(cx, &why),
    };
    match state {
        State::Initiating(initiating) => {
            let Initiating {
                handshake,
                first_child,
                ..
            } = *initiating;
            auth::initiator::begin(sa, cx, handshake, first_child);
        }
        State::Responding(responding) => responder::answer(sa, cx, *responding, &public),
        other => sa.state = other,
    }
}

/// Keys for sending and receiving; the own public value comes back.
fn take_keys(sa: &mut IkeSa, parts: IkeKeyParts) -> Result<Vec<u8>, String> {
    let (own, peer) = if sa.is_initiator {
        (&parts.initiator, &parts.responder)
    } else {
        (&parts.responder, &parts.initiator)
    };
    let sealer = MessageKey::new(own).map_err(|error| error.to_string())?;
    let opener = MessageKey::new(peer).map_err(|error| error.to_string())?;
    sa.keys = Some(SaKeys {
        sealer: Sealer::new(sealer),
        opener,
        sk_d: parts.sk_d,
        authentication: Some((parts.pi, parts.pr)),
    });
    Ok(parts.public)
}
