//! Child SAs that the gateway before has passed on.

use super::super::Gateway;
use super::Asked;
use crate::run::ike::KeyExchange;
use ikev2::endpoint::ChildId;

impl Gateway {
    /// Takes over the child SAs of the gateway before, while no packet is read yet. The kernel carries those of its own
    /// plane all the while: of these only the ones that it has as they were passed on.
    pub(in crate::run::main_loop) fn adopt_children(&mut self) {
        let passed = self.ike.as_mut().map(KeyExchange::take_inherited);
        let asked = passed.unwrap_or_default().into_iter();
        let asked: Vec<_> = asked.map(|one| Asked::Adopt(Box::new(one))).collect();
        self.change_as_asked(&asked);
        if self.chosen_plane.by_kernel && !asked.is_empty() {
            self.let_go_what_the_kernel_lacks();
        }
    }

    /// A pair of which one association is not there, or differs, would carry nothing, or numbers that were used before.
    fn let_go_what_the_kernel_lacks(&mut self) {
        let mut lacking = Vec::new();
        let read = self.plane.kernel().read_leftovers();
        let unreadable = read.err().map(|error| error.to_string());
        for (name, id) in self.adopted() {
            if let Some(why) = unreadable.clone().or_else(|| self.why_the_kernel_lacks(id)) {
                (self.warnings.warn())(&format!(
                    "peer {name}: a child SA of the gateway before cannot be taken over, and is negotiated again: {why}"
                ));
                if let Some(ike) = &mut self.ike {
                    ike.hooks.give_reason(&name, &why);
                }
                lacking.push(id);
            }
        }
        self.remove_children(&lacking);
    }

    fn adopted(&self) -> Vec<(String, ChildId)> {
        let children = self.ike.iter().flat_map(|ike| ike.peers.children());
        children
            .map(|(name, id, _)| (name.to_owned(), id))
            .collect()
    }

    fn why_the_kernel_lacks(&mut self, id: ChildId) -> Option<String> {
        let child = self.ike.as_ref()?.peers.child(id)?;
        let names = child.associations.both().map(|config| config.id);
        let snapshot = self.snapshot();
        for name in names {
            let Some(place) = snapshot.find(&name) else {
                continue;
            };
            let why = match self.plane.kernel().why_not_passed_on(snapshot.sa(place)) {
                Ok(why) => why.map(str::to_owned),
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = why {
                return Some(format!("SPI {}: {why}", name.spi));
            }
        }
        None
    }
}
