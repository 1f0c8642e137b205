//! Events of the ike process as those of `esplanade events`.

use crate::events::What;
use ikev2::endpoint::Event;

/// The same event in the words of the control socket.
pub(crate) fn what(event: Event) -> What {
    match event {
        Event::Up { peer, suite, proof } => What::PeerUp {
            name: peer.connection,
            identity: peer.identity,
            remote: peer.remote,
            suite,
            proof,
        },
        Event::Down { peer, reason } => What::PeerDown {
            name: peer.connection,
            reason,
        },
        Event::Failed {
            connection,
            remote,
            reason,
            next_in_ms,
        } => What::PeerFailed {
            name: connection,
            remote,
            reason,
            next_attempt_seconds: next_in_ms.map(|ms| ms.div_ceil(1000)),
        },
        Event::Refused {
            from,
            connection,
            reason,
        } => What::PeerRefused {
            from,
            name: connection,
            reason,
        },
        Event::ChildUp {
            peer, child, suite, ..
        } => What::ChildUp {
            name: peer.connection,
            child,
            suite,
        },
        Event::ChildDown {
            peer,
            child,
            reason,
            ..
        } => What::ChildDown {
            name: peer.connection,
            child,
            reason,
        },
        Event::ChildRekeyed { peer, child, .. } => What::Rekeyed {
            name: peer.connection,
            child: Some(child),
        },
        Event::IkeRekeyed { peer } => What::Rekeyed {
            name: peer.connection,
            child: None,
        },
        Event::Moved { peer, from, .. } => What::PeerMoved {
            name: peer.connection,
            from,
            to: peer.remote,
        },
    }
}
