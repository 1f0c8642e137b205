//! Every width against both other implementations, over lengths, numbers of packets and mixtures of keys.

use ::cbc::cipher::{BlockModeEncrypt, KeyIvInit};

use super::*;

struct Packet {
    key: [u8; 24],
    keys: DesKeys,
    iv: [u8; 8],
    plain: Vec<u8>,
}

/// Bytes that repeat from run to run.
fn bytes(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u64 ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn packet(triple: bool, seed: usize, key_seed: usize, blocks: usize) -> Packet {
    let key: [u8; 24] = bytes(key_seed, 24).try_into().expect("24 bytes");
    let keys = if triple {
        DesKeys::triple(&key)
    } else {
        DesKeys::single(key.first_chunk().expect("8 bytes"))
    };
    Packet {
        key,
        keys,
        iv: bytes(seed + 1, 8).try_into().expect("8 bytes"),
        plain: bytes(seed, 8 * blocks),
    }
}

fn library(packet: &Packet) -> Vec<u8> {
    let mut text = packet.plain.clone();
    packet.keys.cbc_encrypt(&packet.iv, &mut text);
    text
}

fn rust_crypto(triple: bool, packet: &Packet) -> Vec<u8> {
    let mut text = packet.plain.clone();
    macro_rules! encrypt {
        ($cipher:ty, $key:expr) => {{
            let mut cipher = ::cbc::Encryptor::<$cipher>::new_from_slices($key, &packet.iv)
                .expect("legal lengths");
            let (blocks, _) = text.as_chunks_mut::<8>();
            blocks
                .iter_mut()
                .for_each(|block| cipher.encrypt_block(block.into()));
        }};
    }
    if triple {
        encrypt!(::des::TdesEde3, &packet.key);
    } else {
        encrypt!(::des::Des, &packet.key[..8]);
    }
    text
}

fn assert_agrees(triple: bool, packets: &[Packet]) {
    let expected: Vec<Vec<u8>> = packets.iter().map(library).collect();
    for (packet, expected) in packets.iter().zip(&expected) {
        assert_eq!(
            rust_crypto(triple, packet),
            *expected,
            "the two oracles differ"
        );
    }
    for width in PlaneWidth::all() {
        let mut texts: Vec<Vec<u8>> = packets.iter().map(|packet| packet.plain.clone()).collect();
        encrypt(width, triple, jobs(packets, &mut texts));
        assert_eq!(
            texts,
            expected,
            "{width:?}, {} packets, encrypting",
            packets.len()
        );
        decrypt(width, triple, jobs(packets, &mut texts));
        let plain: Vec<Vec<u8>> = packets.iter().map(|packet| packet.plain.clone()).collect();
        assert_eq!(
            texts,
            plain,
            "{width:?}, {} packets, decrypting",
            packets.len()
        );
    }
}

fn jobs<'a>(
    packets: &'a [Packet],
    texts: &'a mut [Vec<u8>],
) -> impl Iterator<Item = DesCbcJob<'a>> {
    packets.iter().zip(texts).map(|(packet, text)| DesCbcJob {
        keys: &packet.keys,
        iv: packet.iv,
        text,
    })
}

#[test]
fn every_number_of_packets_and_unequal_lengths_agree_with_both_oracles() {
    for triple in [false, true] {
        for count in (0..=33).chain([63, 64, 65, 255, 256, 257, 511, 512, 513, 700]) {
            let packets: Vec<Packet> = (0..count)
                .map(|at| packet(triple, at, at % 3, (at * 7 + count) % 19))
                .collect();
            assert_agrees(triple, &packets);
        }
    }
}

#[test]
fn every_length_of_one_packet_agrees_with_both_oracles() {
    for triple in [false, true] {
        for blocks in (0..=300 / 8).chain([255, 256, 257, 511, 512, 513, 1125]) {
            assert_agrees(triple, &[packet(triple, blocks, 1, blocks)]);
        }
    }
}

#[test]
fn the_circuits_are_the_s_boxes_of_the_standard() {
    use super::super::sboxes;

    let inputs: [u64; 6] = std::array::from_fn(|bit| {
        (0..64).fold(0, |plane, input: u64| {
            plane | (input >> (5 - bit) & 1) << input
        })
    });
    macro_rules! outputs {
        ($($circuit:ident)*) => { [$(sboxes::$circuit(inputs)),*] };
    }
    let outputs = outputs!(s1 s2 s3 s4 s5 s6 s7 s8);
    for (output, table) in outputs.iter().zip(TABLES) {
        for input in 0..64_usize {
            let (row, column) = ((input >> 5) * 2 + (input & 1), input >> 1 & 15);
            let value = output
                .iter()
                .fold(0, |value, plane| value << 1 | (plane >> input & 1));
            let expected =
                u64::from_str_radix(&table[16 * row + column..][..1], 16).expect("a digit");
            assert_eq!(value, expected);
        }
    }
}

/// The S-boxes of FIPS 46-3, row by row, a hexadecimal digit for each entry.
const TABLES: [&str; 8] = [
    "e4d12fb83a6c59070f74e2d1a6cb953841e8d62bfc973a50fc8249175b3ea06d",
    "f18e6b34972dc05a3d47f28ec01a69b50e7ba4d158c6932fd8a13f42b67c05e9",
    "a09e63f51dc7b428d709346a285ecbf1d6498f30b12c5ae71ad069874fe3b52c",
    "7de3069a1285bc4fd8b56f03472c1ae9a690cb7df13e52843f06a1d8945bc72e",
    "2c417ab6853fd0e9eb2c47d150fa3986421bad78f9c5630eb8c71e2d6f09a453",
    "c1af92680d34e75baf427c9561de0b389ef528c3704a1db6432c95fabe17608d",
    "4b2ef08d3c975a61d0b7491ae35c2f8614bdc37eaf6805926bd814a7950fe23c",
    "d2846fb1a93e50c71fd8a374c56b0e927b419ce206adf35821e74a8dfc90356b",
];
