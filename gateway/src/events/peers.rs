//! Events of IKE's peers as text.

use super::What;
use std::fmt;

impl What {
    /// The events of IKE, as text.
    pub(super) fn of_peers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerUp {
                name,
                identity,
                remote,
                suite,
                proof,
            } => write!(
                f,
                "peer {name} is up: {identity} at {remote}, {suite}, {proof}"
            ),
            Self::PeerDown { name, reason } => write!(f, "peer {name} is down: {reason}"),
            Self::PeerFailed {
                name,
                remote,
                reason,
                next_attempt_seconds,
            } => {
                write!(
                    f,
                    "peer {name} at {remote} could not be brought up: {reason}"
                )?;
                match next_attempt_seconds {
                    Some(seconds) => write!(f, " (next attempt in {seconds} s)"),
                    None => Ok(()),
                }
            }
            Self::PeerRefused { from, name, reason } => {
                let name = name.as_deref().unwrap_or("unknown");
                write!(f, "peer {name} at {from} was refused: {reason}")
            }
            Self::ChildUp { name, child, suite } => {
                write!(f, "peer {name}: child SA {child} is up: {suite}")
            }
            Self::ChildDown {
                name,
                child,
                reason,
            } => write!(f, "peer {name}: child SA {child} is down: {reason}"),
            Self::Rekeyed { name, child } => match child {
                Some(child) => write!(f, "peer {name}: child SA {child} is rekeyed"),
                None => write!(f, "peer {name}: the IKE SA is rekeyed"),
            },
            Self::PeerMoved { name, from, to } => {
                write!(f, "peer {name} moved from {from} to {to}")
            }
            Self::IkeLost { reason } => write!(f, "key exchange has ended: {reason}"),
            Self::HookEnded {
                name,
                hook,
                program,
                result,
                ..
            } => write!(f, "peer {name}: {hook} {program}: {result}"),
            Self::HooksLost { reason } => f.write_str(reason),
            _ => Ok(()),
        }
    }
}
