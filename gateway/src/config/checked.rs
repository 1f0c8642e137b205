//! A file and its peers after all checks: what negotiates with a peer (`ikev2`'s connection), what stays secret, its
//! device.

use super::gateway_options::GatewayOptions;
use super::hooks::ConfiguredHooks;
use ikev2::certificate::Revocation;
use ikev2::connection::Connection;
use ipsec::suite::Secret;
use zeroize::Zeroizing;

/// A file, checked.
pub(crate) struct Config {
    /// `[gateway]`.
    pub(crate) gateway: GatewayOptions,
    /// Every peer, in the order of the file.
    pub(crate) peers: Vec<ConfiguredPeer>,
    /// Rendered warnings.
    pub(crate) warnings: Vec<String>,
}

/// One peer.
#[derive(Clone, PartialEq)]
pub(crate) struct ConfiguredPeer {
    /// What is negotiated. Its keys and roots have the peer's number.
    pub(crate) connection: Connection,
    /// What this side proves its identity by.
    pub(crate) credential: Credential,
    /// What the peer's certificates are checked by, unless it proves itself by the pre-shared key.
    pub(crate) trust: Option<TrustFiles>,
    /// How traffic gets into the tunnel.
    pub(crate) mode: Mode,
    /// What runs when it is up or down.
    pub(crate) hooks: ConfiguredHooks,
}

impl ConfiguredPeer {
    /// The same peer, by policies if its file leaves the mode to the gateway: the default where the kernel's own IPsec
    /// seals and opens packets.
    pub(crate) fn by_policies(mut self) -> Self {
        if let Mode::Route {
            is_default: true, ..
        } = self.mode
        {
            self.mode = Mode::Policy;
        }
        self
    }
}

/// What this side proves its identity by.
#[derive(Clone, PartialEq)]
pub(crate) enum Credential {
    /// The pre-shared key of both sides.
    SharedSecret(Secret),
    /// A private key, as PEM.
    PrivateKey(Zeroizing<Vec<u8>>),
}

/// Roots and revocation lists, as their files have them.
#[derive(Clone, PartialEq)]
pub(crate) struct TrustFiles {
    /// Files of roots.
    pub(crate) roots: Vec<Vec<u8>>,
    /// Files of revocation lists.
    pub(crate) lists: Vec<Vec<u8>>,
    /// How the lists are applied.
    pub(crate) revocation: Revocation,
}

/// How traffic gets into the tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// By routes to a device of the peer's own.
    Route {
        /// The device.
        device: String,
        /// Whether the gateway leads the peer's networks into it; otherwise it adds no route, and only what others
        /// route there goes through the tunnel.
        by_networks: bool,
        /// Whether the file names neither `mode` nor anything about a device.
        is_default: bool,
    },
    /// By policies.
    Policy,
    /// By policies, for traffic between the two gateways themselves.
    Transport,
}
