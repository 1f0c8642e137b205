//! `esplanade reload` and SIGHUP: the running gateway reads its file again and applies only the difference.
//!
//! ```text
//!   text ──► commands ──► what a new start would have ─┐
//!                                                      ├──► difference ──► plane: all of it, or nothing
//!            what the gateway has ─────────────────────┘
//! ```
//!
//! Associations that are unchanged in the file are not touched. Those with other options keep their sequence numbers;
//! with other keys an association is replaced.

use crate::apply::{blame, parse, warnings};
use crate::control::SetkeyText;
use crate::failure::Failure;
use crate::plane::{Plane, Recorder};
use ipsec::command::{Answer, Command, Refused};
use ipsec::policy::Policy;
use ipsec::sa::{SaConfig, SaId};
use ipsec::setkey::Lowered;
use std::collections::HashMap;
use std::sync::Arc;

/// What a reload has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Changes {
    /// Associations that are new.
    pub added: usize,
    /// Associations with other options.
    pub updated: usize,
    /// Associations that are no longer in the file, or that have other keys there.
    pub deleted: usize,
    /// Policies that were added or deleted.
    pub policies: usize,
}

impl std::fmt::Display for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} associations added, {} changed, {} deleted; {} policies changed",
            self.added, self.updated, self.deleted, self.policies
        )
    }
}

/// Replaces the plane's configuration by that of the text. On any mistake nothing has changed and all mistakes are in
/// the message.
pub(crate) fn reload(
    plane: &mut dyn Plane,
    request: &SetkeyText,
) -> Result<(Changes, Vec<String>), Failure> {
    let Comparison {
        lowered,
        wanted,
        present,
    } = compare(plane, request)?;
    let (commands, changes) = difference(&present, &wanted);
    if !commands.is_empty() {
        plane.apply(&commands).map_err(|refused| {
            let index = origin(&lowered, commands.get(refused.index));
            Failure::new(blame(&Refused { index, ..refused }, &lowered, request))
        })?;
    }
    Ok((changes, warnings(&lowered, request)))
}

/// A text, the databases that a new start with it would have, and those of a plane.
pub(crate) struct Comparison {
    pub lowered: Lowered,
    pub wanted: Databases,
    pub present: Databases,
}

/// Reads a text and applies it in memory; changes nothing. On any mistake all mistakes are in the message.
pub(crate) fn compare(plane: &mut dyn Plane, request: &SetkeyText) -> Result<Comparison, Failure> {
    let lowered = parse(request)?;
    let mut target = Recorder::default();
    target
        .apply(&lowered.commands)
        .map_err(|refused| Failure::new(blame(&refused, &lowered, request)))?;
    let failed = |refused: Refused| Failure::new(refused.reason);
    Ok(Comparison {
        wanted: Databases::of(&mut target).map_err(failed)?,
        present: Databases::of(plane).map_err(failed)?,
        lowered,
    })
}

/// The associations and policies of a plane that setkey texts are about, in the order in which they were added: those
/// of IKE's peers are not among them.
#[derive(Default)]
pub(crate) struct Databases {
    pub sas: Vec<Arc<SaConfig>>,
    pub policies: Vec<Arc<Policy>>,
}

impl Databases {
    pub(crate) fn of(plane: &mut dyn Plane) -> Result<Self, Refused> {
        let mut all = Self::default();
        for answer in plane.apply(&[Command::DumpSas(None), Command::DumpPolicies])? {
            match answer {
                Answer::Sas(list) => {
                    let configs = list.into_iter().map(|told| told.config);
                    all.sas
                        .extend(configs.filter(|config| !config.is_negotiated));
                }
                Answer::Policies(list) => {
                    let policies = list.into_iter().map(|told| told.policy);
                    all.policies
                        .extend(policies.filter(|policy| !policy.is_negotiated));
                }
                Answer::Done | Answer::Spi(_) => {}
            }
        }
        Ok(all)
    }
}

fn difference(present: &Databases, wanted: &Databases) -> (Vec<Command>, Changes) {
    let mut changes = Changes::default();
    let (gone, mut commands) = associations(present, wanted, &mut changes);
    changes.deleted = gone.len();
    let policies = policies(&present.policies, &wanted.policies);
    changes.policies = policies.len();
    // A policy is never without its association if the file has one: associations that are no longer in the file are
    // deleted last.
    let late = gone.iter().filter(|id| !wanted.has(id));
    let early = gone.iter().filter(|id| wanted.has(id));
    let delete = |config: &&Arc<SaConfig>| Command::DeleteSa {
        id: config.id,
        source: config.source,
    };
    let mut all: Vec<_> = early.map(delete).collect();
    all.append(&mut commands);
    all.extend(policies);
    all.extend(late.map(delete));
    (all, changes)
}

impl Databases {
    /// Whether there is an association of this name.
    pub(crate) fn has(&self, config: &Arc<SaConfig>) -> bool {
        self.sas.iter().any(|wanted| wanted.id == config.id)
    }
}

/// The associations to delete, and the commands that add or change the others.
fn associations<'a>(
    present: &'a Databases,
    wanted: &Databases,
    changes: &mut Changes,
) -> (Vec<&'a Arc<SaConfig>>, Vec<Command>) {
    let mut known: HashMap<SaId, &Arc<SaConfig>> = present
        .sas
        .iter()
        .map(|config| (config.id, config))
        .collect();
    let (mut gone, mut commands) = (Vec::new(), Vec::new());
    for config in &wanted.sas {
        match known.remove(&config.id) {
            Some(old) if is_same(old, config) => {}
            Some(old) if old.source == config.source && old.suite == config.suite => {
                changes.updated += 1;
                commands.push(Command::UpdateSa(Arc::clone(config)));
            }
            old => {
                gone.extend(old);
                changes.added += 1;
                commands.push(Command::AddSa(Arc::clone(config)));
            }
        }
    }
    let left = present.sas.iter();
    gone.extend(left.filter(|config| known.contains_key(&config.id)));
    (gone, commands)
}

/// Whether two configurations are equal, without regard to whether their keys were marked as fresh.
pub(crate) fn is_same(old: &SaConfig, new: &SaConfig) -> bool {
    let key_is_fresh = old.key_is_fresh;
    let new = SaConfig {
        key_is_fresh,
        ..new.clone()
    };
    *old == new
}

/// Unchanged policies keep their place. If the order differs, all of them are deleted and added again in one step.
pub(crate) fn policies(present: &[Arc<Policy>], wanted: &[Arc<Policy>]) -> Vec<Command> {
    let stay: Vec<_> = present
        .iter()
        .filter(|policy| wanted.contains(policy))
        .collect();
    let in_order = wanted.iter().zip(&stay).all(|(a, b)| a == *b);
    if !in_order {
        let add = wanted.iter().cloned().map(Command::AddPolicy);
        return std::iter::once(Command::FlushPolicies).chain(add).collect();
    }
    let gone = present.iter().filter(|policy| !wanted.contains(policy));
    let delete = gone.map(|policy| Command::DeletePolicy {
        selector: policy.selector,
        direction: policy.direction,
    });
    let new = wanted[stay.len()..].iter().cloned();
    delete.chain(new.map(Command::AddPolicy)).collect()
}

/// Where in the text a command of the difference comes from.
pub(crate) fn origin(lowered: &Lowered, command: Option<&Command>) -> usize {
    let same = |other: &Command| match (command, other) {
        (
            Some(Command::AddSa(new) | Command::UpdateSa(new)),
            Command::AddSa(old) | Command::UpdateSa(old),
        ) => new.id == old.id,
        (Some(Command::AddPolicy(new)), Command::AddPolicy(old) | Command::UpdatePolicy(old)) => {
            (new.selector, new.direction) == (old.selector, old.direction)
        }
        _ => false,
    };
    let place = lowered.commands.iter().rposition(same);
    place.unwrap_or(lowered.commands.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeroize::Zeroizing;

    fn request(text: &str) -> SetkeyText {
        SetkeyText {
            name: "tunnel.conf".to_owned(),
            text: Zeroizing::new(text.as_bytes().to_vec()),
            ..SetkeyText::default()
        }
    }

    fn sa(spi: u32, key: u8, options: &str) -> String {
        let key = format!("{key:02x}").repeat(20);
        format!("add 192.0.2.1 192.0.2.2 esp {spi} -m tunnel {options} -E aes-gcm-16 0x{key};\n")
    }

    fn policy(net: u8) -> String {
        format!(
            "spdadd 10.1.0.0/24 10.{net}.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;\n"
        )
    }

    fn plane(text: &str) -> Recorder {
        let mut plane = Recorder::default();
        plane
            .apply(&parse(&request(text)).ok().unwrap().commands)
            .unwrap();
        plane
    }

    fn changes(plane: &mut Recorder, text: &str) -> [usize; 4] {
        let (changes, _) = reload(plane, &request(text)).ok().unwrap();
        [
            changes.added,
            changes.updated,
            changes.deleted,
            changes.policies,
        ]
    }

    #[test]
    fn the_same_text_changes_nothing_at_all() {
        let text = format!(
            "flush; spdflush;\n{}{}{}",
            sa(300, 1, "-r 64"),
            sa(301, 2, ""),
            policy(2)
        );
        let mut plane = plane(&text);
        let before = (plane.snapshot(), plane.applied().len());
        assert_eq!(changes(&mut plane, &text), [0; 4]);
        assert_eq!(
            changes(&mut plane, &text.replace("-r 64", "-r 64 -o key=fresh")),
            [0; 4]
        );
        let told: Vec<_> = before.0.sas().map(Arc::as_ptr).collect();
        let now = plane.snapshot();
        assert_eq!(told, now.sas().map(Arc::as_ptr).collect::<Vec<_>>());
    }

    #[test]
    fn what_stays_keeps_its_numbers_and_what_has_other_keys_begins_anew() {
        let mut plane = plane(&(sa(300, 1, "-r 64") + &sa(301, 2, "-r 64") + &sa(302, 3, "-r 64")));
        for sa in plane.snapshot().sas() {
            sa.state.reserve(&sa.config, 5, 1, 1).unwrap();
        }
        let text = sa(300, 1, "-r 128") + &sa(301, 9, "-r 64") + &sa(303, 4, "-r 64");
        assert_eq!(changes(&mut plane, &text), [2, 1, 2, 0]);
        let sent = |spi: u32| {
            let snapshot = plane.snapshot();
            let sa = snapshot.sas().find(|sa| sa.config.id.spi.get() == spi);
            sa.map(|sa| sa.state.usage().sequence)
        };
        assert_eq!(
            [sent(300), sent(301), sent(302), sent(303)],
            [Some(5), Some(0), None, Some(0)]
        );
    }

    #[test]
    fn policies_that_stay_are_not_touched_unless_their_order_changes() {
        let mut plane = plane(&(policy(2) + &policy(3) + &policy(4)));
        assert_eq!(
            changes(&mut plane, &(policy(2) + &policy(4) + &policy(5))),
            [0, 0, 0, 2]
        );
        assert!(
            plane
                .applied()
                .iter()
                .all(|command| *command != Command::FlushPolicies)
        );
        assert_eq!(changes(&mut plane, &(policy(5) + &policy(2))), [0, 0, 0, 3]);
        assert!(plane.applied().contains(&Command::FlushPolicies));
        assert_eq!(changes(&mut plane, &(policy(5) + &policy(2))), [0; 4]);
        assert_eq!(changes(&mut plane, ""), [0, 0, 0, 2]);
    }

    #[test]
    fn a_mistake_changes_nothing_and_is_named_with_its_place() {
        let mut plane = plane(&sa(300, 1, ""));
        for (text, place) in [
            (sa(301, 2, "") + "nonsense;", "tunnel.conf:2:1"),
            (sa(301, 2, "") + &sa(301, 2, ""), "tunnel.conf:2:1"),
        ] {
            let why = reload(&mut plane, &request(&text)).err().unwrap();
            let why = why.to_string();
            assert!(why.contains(place) && !why.contains("0202"), "{why}");
        }
        assert_eq!(changes(&mut plane, &sa(300, 1, "")), [0; 4]);
    }

    #[test]
    fn a_refusal_of_the_plane_is_named_with_its_place() {
        let first = sa(300, 1, "");
        let mut plane = plane(&first);
        // Two hosts behind one NAT: the recorder's databases refuse the second.
        let behind = |port: u16, spi: u32| {
            format!(
                "add 192.0.2.9[{port}] 192.0.2.1[4500] esp-udp {spi} -m transport -E aes-gcm-16 0x{};\n",
                "07".repeat(20)
            )
        };
        let text = first + &behind(1000, 400) + &behind(2000, 401);
        let why = reload(&mut plane, &request(&text)).err().unwrap();
        let why = why.to_string();
        assert!(why.contains("tunnel.conf:3:1"), "{why}");
    }
}
