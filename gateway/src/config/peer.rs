//! Reads a peer's table.
//!
//! ```text
//!   [peer.NAME] ─┬─► name      device, mode
//!                ├─► proofs    PSK, or certificate and key; CAs ──► credential, trust
//!                ├─► identity  local_id, remote_id
//!                ├─► child     networks, suites, lifetimes; [peer.NAME.child.NAME]
//!                └─► settings  addresses, suites and times of the IKE SA
//! ```

mod child;
mod identity;
mod name;
mod proofs;
mod settings;
mod suite;

use super::checked::{ConfiguredPeer, Mode};
use super::hooks::{self, ConfiguredHooks};
use super::keys;
use super::profile::Profile;
use super::surroundings::Surroundings;
use super::table::{Table, Text};
use ikev2::connection::{Connection, LocalProof, RemoteProof};
use ikev2::identity::{Identity, Pattern};

/// Reads one peer. What it needs and lacks is a problem, and `None`. `standard_hooks`: those of a peer without its own.
pub(super) fn read(
    (title, table): (Text<'_>, Table<'_>),
    number: u32,
    around: &Surroundings<'_>,
    standard_hooks: &ConfiguredHooks,
) -> Option<ConfiguredPeer> {
    table.only(&keys::PEER, "a peer");
    let findings = table.findings();
    findings.keep(name::check(title, "peer"));
    let profile = Profile::of(table);
    let mode = name::mode(title, table);
    let addresses = settings::addresses(table, around);
    let proofs = proofs::read(table, number, around);
    let local_id = identity::local(table, addresses.as_ref(), proofs.as_ref());
    let remote_id = identity::remote(table, proofs.as_ref());
    let child_settings = child::Settings {
        peer: table,
        profile,
        is_transport: mode == Some(Mode::Transport),
        addresses: addresses.as_ref(),
        aes_is_fast: around.aes_is_fast,
    };
    let children = child::read_all(title, &child_settings);
    // What is missing is a problem already; the rest is read all the same, for the mistakes in it.
    let own_proof = proofs.as_ref().map(|proofs| proofs.local.clone());
    let peers_proof = proofs.as_ref().map(|proofs| proofs.remote.clone());
    let missing = Identity::KeyId(Vec::new());
    let mut connection = Connection::new(
        title.text,
        (
            local_id.clone().unwrap_or(missing),
            own_proof.unwrap_or(LocalProof::SharedSecret(number)),
        ),
        (
            remote_id.clone().unwrap_or(Pattern::Any),
            peers_proof.unwrap_or(RemoteProof::SharedSecret(number)),
        ),
        around.aes_is_fast,
    );
    if let Some(addresses) = addresses.as_ref() {
        connection.local.clone_from(&addresses.local);
        connection.remote.clone_from(&addresses.remote);
    }
    settings::apply(table, profile, addresses.is_some(), &mut connection);
    let hooks = hooks::read(table, &around.files, standard_hooks);
    if addresses.is_none() || local_id.is_none() || remote_id.is_none() {
        return None;
    }
    connection.children = children?;
    findings.keep(identity::check_any(table, &connection))?;
    let proofs = proofs?;
    Some(ConfiguredPeer {
        connection,
        credential: proofs.credential,
        trust: proofs.trust,
        mode: mode?,
        hooks,
    })
}
