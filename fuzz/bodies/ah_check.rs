//! Any bytes as a packet with AH from the network: once as they are, and once as a packet that AH is put into, because
//! a fuzzer cannot guess a valid ICV over options and extension headers.

use ipsec::Dropped;
use ipsec::ah::{InboundAh, OutboundAh, icv_input};
use ipsec::algorithm::Integrity;
use ipsec::packet::{FragmentKind, Outline};
use ipsec::sa::{Protocol, Sa, SaConfig, SaId, SequenceNumber, Spi};
use ipsec::suite::{Secret, Suite};
use ipsec::transport::UnprotectedHeaders;
use ipsec::tunnel::Outer;
use ipsec::wire::ah::FIXED_LEN;
use ipsec::wire::ip::number;
use multibuffer::Verdict;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One for each length of the ICV, and one with an IV.
const ALGORITHMS: [&str; 6] = [
    "hmac-sha1",
    "hmac-sha2-256",
    "hmac-sha2-384",
    "hmac-sha2-512",
    "aes-xcbc-mac",
    "aes-256-gmac",
];

/// Room for AH below the largest IP packet.
const MAX_PACKET_BYTES: usize = 60_000;

/// Checks `data` behind its first byte, which chooses the association.
///
/// # Panics
///
/// If a packet that was signed here is refused, if any other is accepted, or if the association's counters move.
pub fn check(data: &[u8]) {
    let Some((&choice, packet)) = data.split_first() else {
        return;
    };
    let Some(sa) = association(choice) else {
        panic!("the names do not fit the table of algorithms");
    };
    assert!(verify(&sa, packet).is_err());
    if let Some(mut signed) = signed(&sa, packet) {
        assert_eq!(verify(&sa, &signed), Ok(()));
        let last = signed.len() - 1;
        signed[last] ^= 1;
        assert!(verify(&sa, &signed).is_err());
    }
    assert_eq!(sa.state.usage().packets, 0);
}

fn association(choice: u8) -> Option<Sa> {
    let row = Integrity::named(ALGORITHMS[usize::from(choice >> 3) % ALGORITHMS.len()])?;
    let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 2), Ipv6Addr::LOCALHOST);
    let destination = match choice & 1 {
        0 => IpAddr::V4(v4),
        _ => IpAddr::V6(v6),
    };
    let id = SaId {
        destination,
        protocol: Protocol::Ah,
        spi: Spi::new(0x1001)?,
    };
    let key = Secret::new(vec![0x5a; row.key_len]);
    let suite = Suite::new(None, Some((row, key)), None).ok()?;
    let config = SaConfig {
        replay_window: 64,
        esn: choice & 2 != 0,
        ah_align8: choice & 4 != 0,
        ..SaConfig::new(id, destination, suite)
    };
    Some(Sa::new(config, 0, 7))
}

/// The packet with AH in transport mode, if AH can be put into it.
fn signed(sa: &Sa, packet: &[u8]) -> Option<Vec<u8>> {
    let outline = Outline::read(packet).ok()?;
    if outline.fragment != FragmentKind::Whole || outline.total_len > MAX_PACKET_BYTES {
        return None;
    }
    let outside = UnprotectedHeaders::of(packet).ok()?;
    let (headers, payload) = packet.get(..outline.total_len)?.split_at(outside.len);
    let iv = sa.iv_for(SequenceNumber(1), &mut |bytes| bytes.fill(0));
    let stamp = OutboundAh::new(&sa.config, SequenceNumber(1), iv, outside.next);
    let front = headers.len() + stamp.header_len();
    let mut signed = headers.to_vec();
    signed.resize(front, 0xff);
    signed.extend_from_slice(payload);
    let total_len = signed.len();
    outside.rename(&mut signed[..outside.len], number::AH, total_len, 1);
    stamp.write(&mut signed[outside.len..front]);
    let mut covered = vec![0; front];
    icv_input(
        &sa.config,
        &signed[..front],
        stamp.header_len(),
        &mut covered,
    )
    .ok()?;
    let data = &mut signed[outside.len + FIXED_LEN..front];
    multibuffer::sign(&mut [stamp.job(sa, &covered, payload, data)]);
    Some(signed)
}

fn verify(sa: &Sa, packet: &[u8]) -> Result<(), Dropped> {
    let (outer, range) = Outer::payload(packet)?;
    if outer.protocol != number::AH {
        return Err(Dropped::Unsupported);
    }
    let packet = &packet[..range.end];
    let received = InboundAh::parse(sa, &packet[range.start..])?;
    let ah_len = received.header_len();
    let headers = &packet[..range.start + ah_len];
    let mut covered = vec![0; headers.len()];
    icv_input(&sa.config, headers, ah_len, &mut covered)?;
    let mut jobs = [received.job(sa, &covered, &packet[range.start..])];
    multibuffer::verify(&mut jobs);
    match jobs[0].verdict {
        Verdict::Genuine => Ok(()),
        Verdict::Pending | Verdict::BadIcv => Err(Dropped::BadIcv),
    }
}
