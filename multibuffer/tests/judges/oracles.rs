//! Every suite against the oracle, over lengths, alignments, splits, batch sizes and mixtures of keys.

use multibuffer::{Cipher, Integrity, Iv, Key};

use crate::harness::{self, Chance, Packet, Suite};
use crate::oracle;

/// Seals the packets in one batch, compares each with the oracle, and opens the batch again.
fn assert_agrees(packets: &[(&Suite, &Key, Packet)]) {
    let batch: Vec<(&Key, &Packet)> = packets
        .iter()
        .map(|(_, key, packet)| (*key, packet))
        .collect();
    let sealed = harness::seal_all(&batch);
    for ((suite, _, packet), sealed) in packets.iter().zip(&sealed) {
        let expected = oracle::sealed(suite, packet);
        assert_eq!(
            *sealed,
            expected,
            "{}, {} bytes, cut at {:?}",
            suite.name(),
            packet.plain.len(),
            packet.cuts
        );
    }
    let batch: Vec<(&Key, &Packet, &[u8])> = packets
        .iter()
        .zip(&sealed)
        .map(|((_, key, packet), sealed)| (*key, packet, sealed.as_slice()))
        .collect();
    for ((suite, _, packet), plain) in packets.iter().zip(harness::open_all(&batch)) {
        let len = packet.plain.len();
        assert_eq!(
            plain.as_deref(),
            Some(packet.plain.as_slice()),
            "{}, {len} bytes, opened",
            suite.name()
        );
    }
}

#[test]
fn every_length_to_300_agrees_with_the_oracle_alone_and_in_batches() {
    let mut chance = Chance::new(2);
    for suite in harness::suites() {
        let key = suite.key();
        let lengths = (0..=300).filter(|len| len % key.block_len() == 0);
        let packets: Vec<_> = lengths
            .map(|len| (&suite, &key, Packet::new(&suite, &key, len, &mut chance)))
            .collect();
        for (i, size) in (1..=33).cycle().take(40).enumerate() {
            let from = i * 7 % packets.len();
            assert_agrees(&packets[from..(from + size).min(packets.len())]);
        }
        assert_agrees(&packets);
    }
}

#[test]
fn random_lengths_to_9000_agree_with_the_oracle_in_batches_of_every_size() {
    let mut chance = Chance::new(3);
    for suite in harness::suites() {
        let rekeyed: Vec<Suite> = (0..5).map(|_| suite.rekeyed(&mut chance)).collect();
        let keys: Vec<Key> = rekeyed.iter().map(Suite::key).collect();
        for size in [1, 2, 3, 8, 9, 16, 17, 31, 33] {
            let longest = if chance.below(4) == 0 { 9000 } else { 700 };
            let packet = |_| {
                let pick = chance.below(keys.len());
                let len = chance.below(longest + 1);
                (
                    &rekeyed[pick],
                    &keys[pick],
                    Packet::new(&rekeyed[pick], &keys[pick], len, &mut chance),
                )
            };
            assert_agrees(&(0..size).map(packet).collect::<Vec<_>>());
        }
    }
}

#[test]
fn batches_that_mix_every_suite_agree_with_the_oracle() {
    let mut chance = Chance::new(4);
    let suites = harness::suites();
    let keys: Vec<Key> = suites.iter().map(Suite::key).collect();
    for round in 0..60 {
        let packet = |_| {
            let pick = chance.below(keys.len());
            let len = chance.below(400);
            (
                &suites[pick],
                &keys[pick],
                Packet::new(&suites[pick], &keys[pick], len, &mut chance),
            )
        };
        assert_agrees(&(0..1 + round * 5 % 150).map(packet).collect::<Vec<_>>());
    }
}

#[test]
fn keys_for_the_libraries_alone_agree_with_the_oracle() {
    let mut chance = Chance::new(8);
    for suite in harness::suites() {
        let key = suite.key_by_library();
        let packets: Vec<_> = [0, 16, 64, 496, 1408]
            .map(|len| (&suite, &key, Packet::new(&suite, &key, len, &mut chance)))
            .into();
        assert_agrees(&packets);
    }
}

#[test]
fn chacha20_poly1305_agrees_with_two_oracles_in_batches_of_every_size_under_mixed_keys() {
    let mut chance = Chance::new(9);
    let chacha = |suite: &Suite| suite.cipher == Cipher::ChaCha20Poly1305;
    let suite = harness::suites().into_iter().find(chacha);
    let suite = suite.expect("it is one of the suites");
    let rekeyed: Vec<Suite> = (0..3).map(|_| suite.rekeyed(&mut chance)).collect();
    let keys: Vec<Key> = rekeyed.iter().map(Suite::key).collect();
    let libraries: Vec<Key> = rekeyed.iter().map(Suite::key_by_library).collect();
    let mut lengths = (0..=300).cycle();
    for size in (1..=40).cycle().take(80) {
        let packet = |_| {
            let (pick, jumbo) = (chance.below(keys.len()), chance.below(30) == 0);
            let len = if jumbo {
                chance.below(9001)
            } else {
                lengths.next().unwrap_or_default()
            };
            let mut packet = Packet::new(&rekeyed[pick], &keys[pick], len, &mut chance);
            let aad_len = chance.below(70);
            packet.aad = chance.bytes(aad_len);
            (pick, packet)
        };
        let picked: Vec<(usize, Packet)> = (0..size).map(packet).collect();
        let sealed_by = |keys: &[Key]| {
            let batch = picked.iter().map(|(pick, packet)| (&keys[*pick], packet));
            harness::seal_all(&batch.collect::<Vec<_>>())
        };
        assert_eq!(sealed_by(&keys), sealed_by(&libraries), "{size} packets");
        let packets: Vec<_> = picked
            .iter()
            .map(|(pick, packet)| (&rekeyed[*pick], &keys[*pick], packet.clone()))
            .collect();
        assert_agrees(&packets);
    }
}

#[test]
fn signing_agrees_with_the_oracle_however_the_message_is_cut() {
    let mut chance = Chance::new(5);
    for (integrity, icv_len) in harness::integrities() {
        let bytes = chance.bytes(harness::integrity_key_len(integrity));
        let key = Key::new(Cipher::Null, &[], integrity, &bytes, icv_len).expect("a legal key");
        for len in (0..=300).chain([1408, 4095, 9000]) {
            let message = chance.bytes(len);
            let mut cuts = [chance.below(len + 1), chance.below(len + 1)];
            cuts.sort_unstable();
            let input = [
                &message[..cuts[0]],
                &message[cuts[0]..cuts[1]],
                &message[cuts[1]..],
            ];
            let icv = harness::sign_one(&key, Iv::default(), input);
            assert_eq!(
                icv,
                oracle::mac(integrity, &bytes, &message, icv_len),
                "{integrity:?}, {len} bytes, {cuts:?}"
            );
        }
    }
}

#[test]
fn hmac_keys_longer_than_a_block_are_hashed_first() {
    let mut chance = Chance::new(6);
    for (integrity, icv_len) in harness::integrities() {
        if matches!(integrity, Integrity::AesXcbc | Integrity::AesCmac) {
            continue;
        }
        for key_len in [1, 63, 64, 65, 127, 128, 129, 1024] {
            let (bytes, message) = (chance.bytes(key_len), chance.bytes(100));
            let key = Key::new(Cipher::Null, &[], integrity, &bytes, icv_len).expect("a legal key");
            let icv = harness::sign_one(&key, Iv::default(), [&message, &[], &[]]);
            assert_eq!(
                icv,
                oracle::mac(integrity, &bytes, &message, icv_len),
                "{integrity:?}, key of {key_len}"
            );
        }
    }
}

#[test]
fn cmac_takes_each_size_of_aes() {
    let mut chance = Chance::new(7);
    for key_len in [16, 24, 32] {
        let (bytes, message) = (chance.bytes(key_len), chance.bytes(77));
        let key = Key::new(Cipher::Null, &[], Integrity::AesCmac, &bytes, 16).expect("a legal key");
        let icv = harness::sign_one(&key, Iv::default(), [&message[..5], &message[5..], &[]]);
        assert_eq!(icv, oracle::mac(Integrity::AesCmac, &bytes, &message, 16));
    }
}
