//! Packets signed and checked here; tests with scapy and the kernel show that other implementations accept them.

use super::*;
use crate::algorithm::Integrity;
use crate::sa::{Protocol, SaId, Spi};
use crate::suite::{Secret, Suite};
use std::net::IpAddr;

mod gmac;

fn config(integrity: &str, destination: &str) -> SaConfig {
    let row = Integrity::named(integrity).unwrap();
    let key = Secret::new(vec![7; row.key_len]);
    let id = SaId {
        destination: destination.parse().unwrap(),
        protocol: Protocol::Ah,
        spi: Spi::new(0x1234).unwrap(),
    };
    let source: IpAddr = destination.parse().unwrap();
    let suite = Suite::new(None, Some((row, key)), None).unwrap();
    SaConfig {
        replay_window: 64,
        ..SaConfig::new(id, source, suite)
    }
}

fn ipv4(len: usize) -> Vec<u8> {
    let mut header = vec![
        0x45, 0xb9, 0, 0, 1, 2, 0x40, 0, 63, 51, 0xab, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    header[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    header
}

fn ipv6(len: usize) -> Vec<u8> {
    let mut header = vec![0x6b, 0x91, 0x23, 0x45, 0, 0, 51, 63];
    header[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    header.extend([0xfd; 31]);
    header.push(1);
    header
}

/// A whole packet around `payload`.
fn sealed(sa: &Sa, sequence: u64, payload: &[u8]) -> Vec<u8> {
    let sequence = SequenceNumber(sequence);
    let iv = sa.iv_for(sequence, &mut |bytes| bytes.fill(0));
    sealed_by(sa, &OutboundAh::new(&sa.config, sequence, iv, 6), payload)
}

fn sealed_by(sa: &Sa, stamp: &OutboundAh, payload: &[u8]) -> Vec<u8> {
    let (len, v6) = (
        stamp.header_len() + payload.len(),
        sa.config.id.destination.is_ipv6(),
    );
    let mut packet = if v6 { ipv6(40 + len) } else { ipv4(20 + len) };
    let ip_len = packet.len();
    packet.resize(ip_len + stamp.header_len(), 0xff);
    stamp.write(&mut packet[ip_len..]);
    let mut covered = vec![0; packet.len()];
    icv_input(&sa.config, &packet, stamp.header_len(), &mut covered).unwrap();
    let data = &mut packet[ip_len + FIXED_LEN..];
    multibuffer::sign(&mut [stamp.job(sa, &covered, payload, data)]);
    packet.extend(payload);
    packet
}

fn open(sa: &Sa, packet: &[u8]) -> Result<Vec<u8>, Dropped> {
    let ip_len = if packet[0] >> 4 == 6 { 40 } else { 20 };
    let received = InboundAh::parse(sa, &packet[ip_len..])?;
    let ah_len = received.header_len();
    let mut covered = vec![0; ip_len + ah_len];
    icv_input(&sa.config, &packet[..ip_len + ah_len], ah_len, &mut covered)?;
    let mut jobs = [received.job(sa, &covered, &packet[ip_len..])];
    multibuffer::verify(&mut jobs);
    if jobs[0].verdict != Verdict::Genuine {
        return Err(Dropped::BadIcv);
    }
    sa.state.admit(&sa.config, received.sequence(), 1, 0)?;
    assert_eq!(received.next_header(), 6);
    Ok(packet[ip_len + ah_len..].to_vec())
}

#[test]
fn every_algorithm_signs_what_it_then_verifies_over_both_versions() {
    for row in Integrity::all() {
        for destination in ["192.0.2.2", "2001:db8::2"] {
            for esn in [false, true] {
                let config = SaConfig {
                    esn,
                    ..config(row.name, destination)
                };
                let sa = Sa::new(config, 0, 0);
                let packet = sealed(&sa, 5, b"seventeen bytes..");
                assert_eq!(open(&sa, &packet).unwrap(), b"seventeen bytes..");
                assert_eq!(open(&sa, &packet), Err(Dropped::Replayed));
            }
        }
    }
}

#[test]
fn the_header_is_aligned_to_its_version_and_to_linux_on_demand() {
    let len = |integrity, destination, ah_align8| {
        header_len(&SaConfig {
            ah_align8,
            ..config(integrity, destination)
        })
    };
    // RFC 4302 2.6: 12 bytes and an ICV of 12, 16, 24, 32.
    let v4 = [
        "hmac-sha1",
        "hmac-sha2-256",
        "hmac-sha2-384",
        "hmac-sha2-512",
    ];
    assert_eq!(
        v4.map(|name| len(name, "192.0.2.2", false)),
        [24, 28, 36, 44]
    );
    assert_eq!(
        v4.map(|name| len(name, "192.0.2.2", true)),
        [24, 32, 40, 48]
    );
    assert_eq!(
        v4.map(|name| len(name, "2001:db8::2", false)),
        [24, 32, 40, 48]
    );
}

#[test]
fn a_peer_that_pads_to_eight_bytes_over_ipv4_is_understood() {
    let plain = config("hmac-sha2-256", "192.0.2.2");
    let padding = SaConfig {
        ah_align8: true,
        ..plain.clone()
    };
    let packet = sealed(&Sa::new(padding, 0, 0), 1, b"payload");
    assert_eq!(open(&Sa::new(plain, 0, 0), &packet).unwrap(), b"payload");
}

#[test]
fn a_change_of_any_byte_is_found_but_for_what_routers_change() {
    let cases = [
        ("hmac-sha2-256", "192.0.2.2"),
        ("hmac-sha2-256", "2001:db8::2"),
        ("aes-128-gmac", "192.0.2.2"),
        ("aes-128-gmac", "2001:db8::2"),
    ];
    for (algorithm, destination) in cases {
        let sa = Sa::new(config(algorithm, destination), 0, 0);
        let packet = sealed(&sa, 3, b"payload");
        let mutable: &[usize] = match packet[0] >> 4 {
            4 => &[1, 6, 7, 8, 10, 11],
            _ => &[1, 2, 3, 7],
        };
        for at in 1..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 0x10;
            let fresh = Sa::new(config(algorithm, destination), 0, 0);
            let outcome = open(&fresh, &changed);
            if mutable.contains(&at) {
                // RFC 4302 3.3.4: the offset is not covered, but a fragment is not for AH.
                assert!(
                    matches!(outcome, Ok(_) | Err(Dropped::Fragment)),
                    "byte {at}"
                );
                continue;
            }
            assert!(outcome.is_err(), "byte {at}");
            assert_eq!(fresh.state.usage().sequence, 0, "byte {at}");
        }
    }
}

#[test]
fn the_identification_is_never_zero() {
    assert_eq!(identification(SequenceNumber(0)), 1);
    assert_eq!(identification(SequenceNumber(0xfffe)), 0xffff);
    assert_eq!(identification(SequenceNumber(0xffff)), 1);
}

/// RFC 4302 3.3.3.3: the high half is covered, so a receiver whose window has another high half refuses the packet.
#[test]
fn the_half_of_an_extended_number_that_does_not_travel_is_authenticated() {
    for destination in ["192.0.2.2", "2001:db8::2"] {
        let config = SaConfig {
            esn: true,
            ..config("hmac-sha2-256", destination)
        };
        let [sender, behind, level] = [0; 3].map(|start| Sa::new(config.clone(), 0, start));
        let packet = sealed(&sender, 0x1_0000_0005, b"payload");
        assert_eq!(open(&behind, &packet), Err(Dropped::BadIcv));
        let before = SequenceNumber(0x1_0000_0004);
        level.state.admit(&level.config, before, 1, 0).unwrap();
        assert_eq!(open(&level, &packet).unwrap(), b"payload");
    }
}
