//! What a move to the other plane cannot take along, by name.

use crate::plane::{carries, enforces};
use dataplane::io::udp::MAX_DIVIDED_SPIS;
use ipsec::database::Snapshot;
use ipsec::policy::Direction;
use ipsec::sa::{Protocol, SaConfig};
use std::net::IpAddr;

/// Which way, and whether keys with counter nonces may be used by both planes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MoveWish {
    /// To the kernel's IPsec, or to the gateway's own data plane.
    pub to_kernel: bool,
    /// `--same-keys`.
    pub same_keys: bool,
}

const DIRECTIONS: [Direction; 3] = [Direction::Out, Direction::In, Direction::Fwd];

/// Why these databases cannot move, if they cannot; `local` are this host's addresses.
pub(crate) fn refusal(snapshot: &Snapshot, wish: MoveWish, local: &[IpAddr]) -> Option<String> {
    let mut sas = snapshot.sas().map(|sa| &sa.config);
    sas.find_map(|config| {
        let why = of_association(config, wish).or_else(|| of_ends(config, local));
        why.map(|why| format!("{}: {why}", association_name(config)))
    })
    .or_else(|| of_policies(snapshot, wish))
    .or_else(|| too_many_in_udp(snapshot))
}

/// Each plane gets its part of ESP in UDP by a program that holds all SPIs of one of them.
fn too_many_in_udp(snapshot: &Snapshot) -> Option<String> {
    let mut sas = snapshot.sas().map(|sa| &sa.config);
    let is_divided = sas.any(|config| config.is_negotiated && config.encapsulation.is_some());
    let in_udp = snapshot
        .sas()
        .filter(|sa| sa.config.encapsulation.is_some());
    // Half of them are outbound.
    let inbound = in_udp.count() / 2;
    (is_divided && inbound > MAX_DIVIDED_SPIS).then(|| {
        format!(
            "{inbound} pairs of associations in UDP are more than the {MAX_DIVIDED_SPIS} that can be told apart on one \
             port while both planes carry: restart the gateway with the other --plane"
        )
    })
}

fn of_policies(snapshot: &Snapshot, wish: MoveWish) -> Option<String> {
    let mut policies = DIRECTIONS
        .iter()
        .flat_map(|direction| snapshot.policies(*direction));
    let refused = |policy| enforces(policy).err().map(|why| why.0);
    if wish.to_kernel {
        policies.find_map(|(_, policy)| refused(policy))
    } else {
        None
    }
}

/// The numbers that are sent and those that are received pass over one after the other.
fn of_ends(config: &SaConfig, local: &[IpAddr]) -> Option<String> {
    let ends = [&config.source, &config.id.destination];
    let is_both =
        config.id.protocol != Protocol::IpComp && ends.iter().all(|end| local.contains(end));
    is_both.then(|| {
        "both its ends are addresses of this host, so that packets leave and arrive by it: its numbers cannot be divided \
         between the planes"
            .to_owned()
    })
}

fn of_association(config: &SaConfig, wish: MoveWish) -> Option<String> {
    if wish.to_kernel
        && let Err(why) = carries(config)
    {
        return Some(why.0);
    }
    if let Some(device) = &config.interface {
        return Some(format!(
            "its device {device} cannot change its kind while routes lead there: restart the gateway with the other \
             --plane, after `esplanade down`"
        ));
    }
    if config.is_negotiated {
        return None;
    }
    (config.nonce_is_counter() && !wish.same_keys).then(|| {
        "its suite must not use a nonce twice under one key. Our own data plane numbers nonces from a random 64-bit \
         start, the kernel XORs the sequence number with a random number of its own, so they meet with a chance of \
         about the number of packets in 2^63: rekey both sides after the move, or accept that with --same-keys"
            .to_owned()
    })
}

/// Its ends and SPI, for a sentence.
pub(crate) fn association_name(config: &SaConfig) -> String {
    format!(
        "the association from {} to {} with SPI {}",
        config.source, config.id.destination, config.id.spi
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::command::Command;
    use ipsec::database::Database;
    use ipsec::sa::{Spi, UdpEncapsulation};
    use ipsec::setkey::{Forwarding, NoNames, compile};
    use std::sync::Arc;

    fn told(text: &str, to_kernel: bool, same_keys: bool) -> Option<String> {
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames);
        let mut database = Database::default();
        let mut random = || 0;
        database
            .apply(&commands.unwrap().commands, 0, &mut random)
            .unwrap();
        let wish = MoveWish {
            to_kernel,
            same_keys,
        };
        refusal(&database.snapshot(), wish, &["192.0.2.1".parse().unwrap()])
    }

    fn esp(more: &str, suite: &str) -> String {
        format!("add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel {more} -E {suite};")
    }

    const CBC: &str = "aes-cbc 0x000102030405060708090a0b0c0d0e0f -A hmac-sha256 \
                       0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const GCM: &str = "aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213";

    #[test]
    fn keys_without_a_counter_nonce_move_both_ways() {
        for to_kernel in [true, false] {
            assert_eq!(told(&esp("-r 1024", CBC), to_kernel, false), None);
        }
    }

    #[test]
    fn a_counter_nonce_moves_by_the_administrators_word_alone() {
        let chacha = format!("chacha20-poly1305 0x{}", "07".repeat(36));
        for suite in [GCM, &chacha] {
            for to_kernel in [true, false] {
                let why = told(&esp("", suite), to_kernel, false).unwrap();
                assert!(why.contains("--same-keys") && why.contains("2^63"), "{why}");
                assert!(why.contains("0x00001001"), "{why}");
                assert_eq!(told(&esp("", suite), to_kernel, true), None);
            }
        }
    }

    #[test]
    fn what_the_kernel_lacks_is_refused_by_name_whatever_was_said() {
        let iiv = GCM.replace("16", "16-iiv");
        let cases = [
            (esp("-r 8192", CBC), "4096"),
            (esp("-o aggfrag", CBC), "aggfrag"),
            (esp("-o dummy=5", CBC), "dummy"),
            (esp("-o key=fresh", &iiv), "iiv"),
            (esp("-o interface=vpn0", CBC), "vpn0"),
        ];
        for (text, word) in cases {
            let why = told(&text, true, true).unwrap_or_default();
            assert!(why.contains(word), "{word}: {why}");
        }
    }

    #[test]
    fn keys_of_ike_need_no_permission_nor_in_udp_unless_they_are_too_many() {
        let text = esp("-r 1024", GCM);
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames);
        let Command::AddSa(config) = &commands.unwrap().commands[0] else {
            panic!("not an association");
        };
        let mut config = SaConfig {
            is_negotiated: true,
            ..(**config).clone()
        };
        for to_kernel in [true, false] {
            let wish = MoveWish {
                to_kernel,
                same_keys: false,
            };
            config.encapsulation = None;
            assert_eq!(of_association(&config, wish), None);
            config.encapsulation = Some(UdpEncapsulation {
                source_port: 4500,
                destination_port: 4500,
            });
            assert_eq!(of_association(&config, wish), None);
            for (pairs, is_refused) in [(MAX_DIVIDED_SPIS, false), (MAX_DIVIDED_SPIS + 1, true)] {
                let why = refusal(&many(&config, pairs), wish, &[]);
                let says = |why: &String| why.contains("1001 pairs of associations in UDP");
                assert_eq!(why.as_ref().is_some_and(says), is_refused, "{why:?}");
            }
        }
    }

    /// Databases with so many pairs of associations like this one.
    fn many(config: &SaConfig, pairs: usize) -> Arc<Snapshot> {
        let one = |number| {
            let mut config = config.clone();
            config.id.spi = Spi::new(0x1_0000 + number as u32).unwrap();
            Command::AddSa(Arc::new(config))
        };
        let commands: Vec<_> = (0..2 * pairs).map(one).collect();
        let mut database = Database::default();
        database.apply(&commands, 0, &mut || 0).unwrap();
        database.snapshot()
    }

    #[test]
    fn an_association_within_this_host_stays() {
        let text = esp("", CBC).replace("192.0.2.2", "192.0.2.1");
        for to_kernel in [true, false] {
            let why = told(&text, to_kernel, false).unwrap_or_default();
            assert!(why.contains("both its ends"), "{why}");
        }
    }

    #[test]
    fn bundles_move() {
        let text = format!(
            "{}add 192.0.2.1 192.0.2.2 ah 0x1002 -m transport -A hmac-sha1 0x{};
             spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require
             ah/transport//require;",
            esp("", CBC),
            "07".repeat(20)
        );
        for to_kernel in [true, false] {
            assert_eq!(told(&text, to_kernel, false), None);
        }
    }
}
