//! Associations of which our threads still open some numbers while they pass over to the kernel's IPsec.

use ipsec::dropped::Dropped;
use ipsec::sa::{Protocol, Sa};
use std::sync::Arc;

/// Associations by which the same packets arrive, one inside the other, of which our threads open the numbers up to a
/// limit; most often there is one alone.
#[derive(Clone)]
pub(super) struct SharedBundle {
    /// The outermost first.
    sas: Vec<SharedSa>,
    /// ESP in UDP becomes the kernel's with the socket.
    pub(super) is_in_udp: bool,
}

/// One of them.
#[derive(Clone)]
pub(super) struct SharedSa {
    pub(super) sa: Arc<Sa>,
    /// The last number that our threads open.
    pub(super) edge: u64,
    /// What they had left to the kernel before.
    others: u64,
}

impl SharedSa {
    pub(super) fn of(sa: &Arc<Sa>, edge: u64) -> Self {
        Self {
            sa: Arc::clone(sa),
            edge,
            others: of_the_other_plane(sa),
        }
    }

    fn is_over(&self) -> bool {
        self.sa.state.saved().edge >= self.edge || of_the_other_plane(&self.sa) > self.others
    }
}

impl SharedBundle {
    pub(super) fn of(sas: Vec<SharedSa>, is_in_udp: bool) -> Self {
        Self { sas, is_in_udp }
    }

    /// Whether its numbers need not be waited for any more: they have come, or a packet has come that is the kernel's.
    /// Of a bundle the outermost one alone counts such packets.
    pub(super) fn is_over(&self) -> bool {
        self.is_in_udp || self.numbered().any(SharedSa::is_over)
    }

    /// The associations, the outermost first.
    pub(super) fn sas(&self) -> impl Iterator<Item = &Arc<Sa>> {
        self.sas.iter().map(|shared| &shared.sa)
    }

    /// IPComp has no numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = &SharedSa> {
        self.sas.iter().filter(|shared| has_numbers(&shared.sa))
    }
}

/// Whether copies of what the kernel has opened can be told by the window of each that has numbers.
pub(super) fn all_have_windows(bundle: &[Arc<Sa>]) -> bool {
    let mut numbered = bundle.iter().filter(|sa| has_numbers(sa));
    numbered.all(|sa| sa.config.replay_window > 0)
}

/// Packets inside IPComp belong to the plane that has the number of the association around it.
pub(super) fn has_numbers(sa: &Sa) -> bool {
    sa.config.id.protocol != Protocol::IpComp
}

fn of_the_other_plane(sa: &Sa) -> u64 {
    let drops = sa.state.drops().into_iter();
    let mut others = drops.filter(|(reason, _)| *reason == Dropped::OtherPlane);
    others.next().map_or(0, |(_, count)| count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::database::Database;
    use ipsec::setkey::{Forwarding, NoNames, compile};

    /// AH around ESP, of which nothing has come: our threads open up to 100.
    fn shared() -> SharedBundle {
        let text = format!(
            "add 192.0.2.1 192.0.2.2 ah 0x1001 -m transport -r 64 -A hmac-sha1 0x{};
             add 192.0.2.1 192.0.2.2 esp 0x1002 -m tunnel -r 64 -E aes-cbc 0x{} -A hmac-sha1 0x{};",
            "07".repeat(20),
            "08".repeat(16),
            "09".repeat(20)
        );
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames);
        let mut database = Database::default();
        let commands = commands.unwrap().commands;
        database.apply(&commands, 0, &mut || 0).unwrap();
        let snapshot = database.snapshot();
        let sas = snapshot.sas().map(|sa| SharedSa::of(sa, 100));
        SharedBundle::of(sas.collect(), false)
    }

    #[test]
    fn it_is_over_once_the_outermost_association_has_seen_a_packet_of_the_kernels() {
        let bundle = shared();
        assert!(!bundle.is_over());
        bundle.sas[0].sa.state.count_drop(Dropped::Replayed);
        assert!(!bundle.is_over(), "another drop");
        bundle.sas[0].sa.state.count_drop(Dropped::OtherPlane);
        assert!(bundle.is_over(), "the inner one never counts any");
    }
}
