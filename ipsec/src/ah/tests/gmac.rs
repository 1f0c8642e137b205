//! AES-GMAC (RFC 4543 4): an IV before the ICV. The vectors are from `tests/scapy/gmac.py`.

use super::*;
use serde::Deserialize;
use std::collections::HashSet;

#[derive(Deserialize)]
struct Vector {
    algorithm: String,
    key: String,
    spi: u32,
    iv: String,
    high: Option<u32>,
    sequence: u32,
    payload: String,
    packet: String,
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn vectors() -> Vec<Vector> {
    let text = include_str!("../../../tests/vectors/ah-gmac.json");
    serde_json::from_str(text).unwrap()
}

impl Vector {
    fn number(&self) -> SequenceNumber {
        SequenceNumber(u64::from(self.high.unwrap_or(0)) << 32 | u64::from(self.sequence))
    }

    fn sa(&self) -> Sa {
        let is_v6 = self.packet.starts_with('6');
        let destination = if is_v6 { "2001:db8::2" } else { "10.0.0.2" };
        let mut config = config(&self.algorithm, destination);
        config.id.spi = Spi::new(self.spi).unwrap();
        config.esn = self.high.is_some();
        let row = Integrity::named(&self.algorithm).unwrap();
        let key = Secret::new(bytes(&self.key));
        config.suite = Suite::new(None, Some((row, key)), None).unwrap();
        Sa::new(config, 0, 0)
    }
}

#[test]
fn a_packet_is_signed_as_by_another_implementation() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 18);
    for vector in vectors {
        let (sa, packet, payload) = (vector.sa(), bytes(&vector.packet), bytes(&vector.payload));
        let iv = Iv::new(&bytes(&vector.iv));
        let stamp = OutboundAh::new(&sa.config, vector.number(), iv, 6);
        let ip_len = packet.len() - payload.len() - stamp.header_len();
        let mut headers = packet[..ip_len + stamp.header_len()].to_vec();
        stamp.write(&mut headers[ip_len..]);
        let mut covered = vec![0; headers.len()];
        icv_input(&sa.config, &headers, stamp.header_len(), &mut covered).unwrap();
        let data = &mut headers[ip_len + FIXED_LEN..];
        multibuffer::sign(&mut [stamp.job(&sa, &covered, &payload, data)]);
        assert_eq!([headers, payload].concat(), packet, "{}", vector.packet);
    }
}

#[test]
fn a_packet_of_another_implementation_is_verified() {
    for vector in vectors() {
        let (sa, packet) = (vector.sa(), bytes(&vector.packet));
        if vector.high.is_some() {
            let before = SequenceNumber(vector.number().0 - 1);
            sa.state.admit(&sa.config, before, 1, 0).unwrap();
        }
        assert_eq!(open(&sa, &packet).unwrap(), bytes(&vector.payload));
        assert_eq!(open(&sa, &packet), Err(Dropped::Replayed));
    }
}

/// RFC 4302 2.6; RFC 4543 4 says that no padding is needed, which holds for IPv4 alone.
#[test]
fn the_header_has_room_for_the_iv() {
    for name in ["aes-128-gmac", "aes-192-gmac", "aes-256-gmac"] {
        assert_eq!(header_len(&config(name, "192.0.2.2")), 36);
        assert_eq!(header_len(&config(name, "2001:db8::2")), 40);
    }
}

#[test]
fn a_peer_that_leaves_out_the_padding_over_ipv6_is_understood() {
    let config = config("aes-128-gmac", "2001:db8::2");
    let sa = Sa::new(config.clone(), 0, 0);
    let mut stamp = OutboundAh::new(
        &config,
        SequenceNumber(1),
        sa.derived_iv(SequenceNumber(1)),
        6,
    );
    stamp.header_len = 36;
    let packet = sealed_by(&sa, &stamp, b"payload");
    assert_eq!(open(&sa, &packet).unwrap(), b"payload");
}

#[test]
fn ivs_are_counted_from_a_random_start_and_never_come_twice() {
    let sa = Sa::new(config("aes-256-gmac", "192.0.2.2"), 0, u64::MAX - 3);
    assert!(sa.config.nonce_is_counter() && !sa.has_random_ivs());
    let ivs: HashSet<_> = (1..=100)
        .map(|number| sealed(&sa, number, b"payload")[20 + FIXED_LEN..][..8].to_vec())
        .collect();
    assert_eq!(ivs.len(), 100);
}

#[test]
fn a_header_too_short_for_iv_and_icv_is_malformed() {
    let sa = Sa::new(config("aes-128-gmac", "192.0.2.2"), 0, 0);
    let packet = sealed(&sa, 1, &[0; 64]);
    for words in (0..=255).filter(|words| ![7, 8].contains(words)) {
        let mut changed = packet[20..].to_vec();
        changed[1] = words;
        let outcome = InboundAh::parse(&sa, &changed).map(|_| ());
        assert_eq!(outcome, Err(Dropped::Malformed), "{words}");
    }
}
