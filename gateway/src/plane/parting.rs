//! Which of the two planes has an association or an outbound policy, while both carry and pairs of IKE pass over by
//! rekeys.
//!
//! ```text
//!   behind: associations from before ──► the plane that is left, until they are removed
//!   all others, which are negotiated meanwhile ──► the plane that is moved to
//!   an `out` policy ──► where the association is by which its packets leave; without one, the plane that is moved to
//! ```

use ipsec::database::{SaIndex, Snapshot};
use ipsec::policy::{Direction, Policy, Selector};
use ipsec::sa::{Protocol, SaConfig, SaId, Spi};
use std::collections::HashSet;

/// What is on which plane.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parting {
    to_kernel: bool,
    behind: HashSet<Key>,
}

/// What names the keys of an association, also if the address of its peer changes.
type Key = (Protocol, Spi);

impl Parting {
    /// At the beginning of a move: the associations of IKE stay behind until each is rekeyed.
    pub(crate) fn at_the_beginning(to_kernel: bool, snapshot: &Snapshot) -> Self {
        let negotiated = snapshot.sas().filter(|sa| sa.config.is_negotiated);
        Self {
            to_kernel,
            behind: negotiated.map(|sa| key(&sa.config.id)).collect(),
        }
    }

    /// The way back: what the move has brought to the other plane is behind there, also keys set by hand.
    pub(crate) fn turned(&self, snapshot: &Snapshot) -> Self {
        let moved = snapshot.sas().filter(|sa| !self.is_behind(&sa.config.id));
        Self {
            to_kernel: !self.to_kernel,
            behind: moved.map(|sa| key(&sa.config.id)).collect(),
        }
    }

    /// Whether the kernel is moved to.
    pub(crate) fn to_kernel(&self) -> bool {
        self.to_kernel
    }

    /// Whether an association is on the plane that is left.
    pub(crate) fn is_behind(&self, id: &SaId) -> bool {
        self.behind.contains(&key(id))
    }

    /// Whether the kernel has an association, and not the user plane.
    pub(crate) fn is_kernels(&self, id: &SaId) -> bool {
        self.is_behind(id) != self.to_kernel
    }

    /// The associations of a snapshot that are still to pass over by a rekey.
    pub(crate) fn left<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a SaConfig> {
        let sas = snapshot.sas().map(|sa| &sa.config);
        sas.filter(|config| config.is_negotiated && self.is_behind(&config.id))
    }

    /// Whether packets still leave by the plane that is left; `paths` are those of their policy.
    pub(crate) fn leaves_behind(&self, snapshot: &Snapshot, paths: &[&[SaIndex]]) -> bool {
        let mut sas = paths.iter().copied().flatten();
        sas.any(|index| self.is_behind(&snapshot.sa(*index).config.id))
    }

    /// Selectors of the `out` policies whose packets the user plane seals.
    pub(crate) fn sealed_by_user(&self, snapshot: &Snapshot) -> HashSet<Selector> {
        let policies = snapshot.outbound_paths();
        let users = policies.filter_map(|(policy, paths)| {
            let is_behind = self.leaves_behind(snapshot, &paths.collect::<Vec<_>>());
            (is_behind == self.to_kernel).then_some(policy.selector)
        });
        users.collect()
    }

    /// How many `out` policies the kernel is to have.
    pub(crate) fn sealed_by_kernel(&self, snapshot: &Snapshot) -> usize {
        let of_users = self.sealed_by_user(snapshot);
        let policies = snapshot.policies(Direction::Out);
        let is_kernels = |policy: &Policy| !of_users.contains(&policy.selector);
        policies.filter(|(_, policy)| is_kernels(policy)).count()
    }
}

fn key(id: &SaId) -> Key {
    (id.protocol, id.spi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::command::Command;
    use ipsec::database::Database;
    use ipsec::setkey::{Forwarding, NoNames, compile};
    use std::sync::Arc;

    const CBC: &str = "-E aes-cbc 0x000102030405060708090a0b0c0d0e0f -A hmac-sha256 \
                       0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    /// Two networks behind one peer, and one that is down.
    const POLICIES: &str =
        "spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/unique:1;
         spdadd 10.1.0.0/24 10.3.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/unique:2;
         spdadd 10.1.0.0/24 10.4.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.3/unique:3;";

    /// Associations by SPI, number of the policy and whether they are negotiated.
    fn snapshot(sas: &[(u32, u32, bool)]) -> Arc<Snapshot> {
        let mut database = Database::default();
        for (spi, reqid, is_negotiated) in sas {
            let text = format!("add 192.0.2.1 192.0.2.2 esp {spi} -m tunnel -u {reqid} {CBC};");
            let mut commands = commands(&text);
            if let [Command::AddSa(config)] = &mut commands[..] {
                *config = Arc::new(SaConfig {
                    is_negotiated: *is_negotiated,
                    ..(**config).clone()
                });
            }
            database.apply(&commands, 0, &mut || 0).unwrap();
        }
        database.apply(&commands(POLICIES), 0, &mut || 0).unwrap();
        database.snapshot()
    }

    fn commands(text: &str) -> Vec<Command> {
        let compiled = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames);
        compiled.unwrap().commands
    }

    fn of_kernel(parting: &Parting, snapshot: &Snapshot) -> Vec<u32> {
        let sas = snapshot.sas().map(|sa| sa.config.id);
        let mut spis: Vec<_> = sas
            .filter(|id| parting.is_kernels(id))
            .map(|id| id.spi.get())
            .collect();
        spis.sort_unstable();
        spis
    }

    /// The third part of the remote networks of those that the user plane seals.
    fn of_user(parting: &Parting, snapshot: &Snapshot) -> Vec<String> {
        let selectors = parting.sealed_by_user(snapshot).into_iter();
        let mut networks: Vec<_> = selectors
            .map(|selector| selector.destination.address.to_string())
            .collect();
        networks.sort();
        networks
    }

    #[test]
    fn keys_of_ike_stay_until_they_are_replaced_and_those_set_by_hand_pass_at_once() {
        let before = snapshot(&[(0x1001, 1, true), (0x1002, 2, false)]);
        for to_kernel in [true, false] {
            let parting = Parting::at_the_beginning(to_kernel, &before);
            let expected = if to_kernel { 0x1002 } else { 0x1001 };
            assert_eq!(of_kernel(&parting, &before), [expected]);
            let left: Vec<_> = parting.left(&before).map(|one| one.id.spi.get()).collect();
            assert_eq!(left, [0x1001]);
            let expected = if to_kernel {
                vec!["10.2.0.0"]
            } else {
                vec!["10.3.0.0", "10.4.0.0"]
            };
            assert_eq!(of_user(&parting, &before), expected);
            assert_eq!(parting.sealed_by_kernel(&before), 3 - expected.len());
        }
    }

    #[test]
    fn what_is_negotiated_meanwhile_is_on_the_other_plane_and_its_policy_follows_it() {
        let before = snapshot(&[(0x1001, 1, true)]);
        let after = snapshot(&[(0x2001, 1, true)]);
        for to_kernel in [true, false] {
            let parting = Parting::at_the_beginning(to_kernel, &before);
            assert_eq!(of_kernel(&parting, &after).is_empty(), !to_kernel);
            assert_eq!(
                of_user(&parting, &after).len(),
                if to_kernel { 0 } else { 3 }
            );
            assert_eq!(parting.left(&after).count(), 0);
        }
    }

    #[test]
    fn no_association_changes_its_plane_when_the_way_leads_back() {
        let before = snapshot(&[(0x1001, 1, true), (0x1002, 2, false)]);
        let after = snapshot(&[(0x1001, 1, true), (0x1002, 2, false), (0x2001, 1, true)]);
        for to_kernel in [true, false] {
            let parting = Parting::at_the_beginning(to_kernel, &before);
            let turned = parting.turned(&after);
            assert_eq!(turned.to_kernel(), !to_kernel);
            assert_eq!(of_kernel(&turned, &after), of_kernel(&parting, &after));
            // Keys set by hand need no rekey.
            let left: Vec<_> = turned.left(&after).map(|one| one.id.spi.get()).collect();
            assert_eq!(left, [0x2001]);
        }
    }

    #[test]
    fn a_peer_that_moves_to_another_address_takes_its_keys_along_on_their_plane() {
        let before = snapshot(&[(0x1001, 1, true)]);
        let parting = Parting::at_the_beginning(true, &before);
        let mut id = before.sas().next().unwrap().config.id;
        id.destination = "192.0.2.99".parse().unwrap();
        assert!(!parting.is_kernels(&id));
    }
}
