//! Any bytes as an ESP packet from the network: once as they are, and once sealed with a valid ICV, because a fuzzer
//! cannot guess one and would never get to the padding and the inner packet behind it.

use ipsec::Dropped;
use ipsec::algorithm::{Encryption, Integrity};
use ipsec::esp::InboundEsp;
use ipsec::packet::Outline;
use ipsec::sa::{Protocol, Sa, SaConfig, SaId, SequenceNumber, Spi};
use ipsec::suite::{Secret, Suite};
use multibuffer::{SealJob, Verdict};
use std::net::{IpAddr, Ipv4Addr};

/// Pad length and next header.
const TRAILER_LEN: usize = 2;

/// Names and key lengths of a cipher and, perhaps, an integrity algorithm.
type Layout = (&'static str, usize, Option<(&'static str, usize)>);

/// One suite for each way in which a packet is laid out.
const LAYOUTS: [Layout; 6] = [
    ("aes-gcm-16", 20, None),
    ("aes-gcm-16-iiv", 20, None),
    ("aes-cbc", 16, Some(("hmac-sha1", 20))),
    ("3des-cbc", 24, Some(("hmac-sha2-256", 32))),
    ("null", 0, Some(("hmac-md5", 16))),
    ("aes-ctr", 20, None),
];

/// Opens `data` behind its first byte, which chooses the association.
///
/// # Panics
///
/// If the association's counters move without a genuine packet, or a length is reported that lies outside the packet.
pub fn check(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let Some(sa) = association(choice) else {
        panic!("the table of layouts does not fit the table of algorithms");
    };
    open_as_received(&sa, rest);
    open_sealed(&sa, rest);
}

fn association(choice: u8) -> Option<Sa> {
    let (cipher, key_len, mac) = LAYOUTS[usize::from(choice >> 1) % LAYOUTS.len()];
    let encryption = (Encryption::named(cipher)?, Secret::new(key(key_len)));
    let integrity = match mac {
        Some((name, len)) => Some((Integrity::named(name)?, Secret::new(key(len)))),
        None => None,
    };
    let id = SaId {
        destination: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
        protocol: Protocol::Esp,
        spi: Spi::new(0x1001)?,
    };
    let suite = Suite::new(Some(encryption), integrity, None).ok()?;
    let config = SaConfig {
        replay_window: 64,
        esn: choice & 1 == 1,
        ..SaConfig::new(id, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), suite)
    };
    Some(Sa::new(config, 0, 7))
}

/// Bytes that differ, so that Triple-DES does not refuse them as one key three times.
fn key(len: usize) -> Vec<u8> {
    (1u8..).step_by(3).take(len).collect()
}

fn open_as_received(sa: &Sa, packet: &[u8]) {
    let before = sa.state.usage();
    let mut packet = packet.to_vec();
    let outcome = open(sa, &mut packet);
    assert!(outcome.is_err() || sa.config.suite.icv_len() == 0);
    assert_eq!(sa.state.usage().packets, before.packets);
}

fn open_sealed(sa: &Sa, data: &[u8]) {
    let (suite, sequence) = (&sa.config.suite, SequenceNumber(1));
    let len = data.len().max(TRAILER_LEN);
    let mut text = data.to_vec();
    text.resize(len.next_multiple_of(suite.align()), 0);
    let spi = sa.config.id.spi.get().to_be_bytes();
    let (high, low) = (sequence.high().to_be_bytes(), sequence.low().to_be_bytes());
    let is_aead = suite.encryption().is_some_and(|(row, _)| row.icv_len > 0);
    // RFC 4106 5: an AEAD cipher takes the high half inside; RFC 4303 2.2.1: others behind the text.
    let (aad, aad_tail) = match (sa.config.esn, is_aead) {
        (false, _) => ([spi, low].concat(), Vec::new()),
        (true, true) => ([spi, high, low].concat(), Vec::new()),
        (true, false) => ([spi, low].concat(), high.to_vec()),
    };
    let iv = sa.iv_for(sequence, &mut |bytes| bytes.fill(0x33));
    let mut packet = [spi, low].concat();
    packet.extend_from_slice(&iv.as_bytes()[..suite.iv_len()]);
    let ciphertext_at = packet.len();
    packet.resize(ciphertext_at + text.len() + suite.icv_len(), 0);
    multibuffer::seal(&mut [SealJob {
        key: &sa.key,
        aad: &aad,
        aad_tail: &aad_tail,
        iv,
        input: [&text, &[], &[]],
        output: &mut packet[ciphertext_at..],
    }]);
    match open(sa, &mut packet) {
        Ok(plaintext) => drop(Outline::read(&plaintext)),
        Err(reason) => assert_eq!(reason, Dropped::BadPadding),
    }
}

fn open(sa: &Sa, packet: &mut [u8]) -> Result<Vec<u8>, Dropped> {
    let received = InboundEsp::parse(sa, packet)?;
    let mut jobs = [received.job(sa, packet)];
    multibuffer::open(&mut jobs);
    if jobs[0].verdict != Verdict::Genuine {
        return Err(Dropped::BadIcv);
    }
    let (plaintext, _) = received.strip(sa, packet)?;
    Ok(packet[plaintext].to_vec())
}
