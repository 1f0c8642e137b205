//! A third party that sees every datagram and sends some of its own: replays, changed copies, forged requests and
//! unprotected notifications. It knows no key.

use crate::{network::Packet, random::SeededRandom};
use ikev2::message::{
    Body, ExchangeType, Flags, HEADER_LEN, Header, IkeSpi, Message,
    payload::{Delete, Notify, NotifyType},
};

/// What it has seen.
#[derive(Default)]
pub struct Hostile {
    seen: Vec<Packet>,
}

const MAX_SEEN_PACKETS: usize = 400;

impl Hostile {
    /// Sees a datagram, and perhaps sends others.
    pub fn sees(&mut self, packet: &Packet, random: &mut SeededRandom) -> Vec<Packet> {
        if self.seen.len() < MAX_SEEN_PACKETS {
            self.seen.push(packet.clone());
        }
        if !random.chance(300) {
            return Vec::new();
        }
        vec![match random.below(5) {
            0 | 1 => self.replay(random),
            2 => changed(packet, random),
            3 => forged_request(packet, random),
            _ => unprotected(packet, random),
        }]
    }

    fn replay(&self, random: &mut SeededRandom) -> Packet {
        self.seen[random.below(self.seen.len() as u64) as usize].clone()
    }
}

fn changed(packet: &Packet, random: &mut SeededRandom) -> Packet {
    let mut packet = packet.clone();
    let at = random.below(packet.bytes.len() as u64) as usize;
    packet.bytes[at] ^= 1 << random.below(8);
    packet
}

/// An IKE_SA_INIT request that is none, from the peer's address.
fn forged_request(packet: &Packet, random: &mut SeededRandom) -> Packet {
    let mut spi = [1; 8];
    random.fill(&mut spi[1..]);
    let header = Header {
        initiator_spi: IkeSpi(spi),
        responder_spi: IkeSpi::ZERO,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags {
            initiator: true,
            ..Flags::default()
        },
        message_id: 0,
    };
    printed(packet, header, Vec::new())
}

/// A response or request of the right SPIs, in clear: an error, or a Delete.
fn unprotected(packet: &Packet, random: &mut SeededRandom) -> Packet {
    let Ok((mut header, _)) = Header::parse(&packet.bytes) else {
        return packet.clone();
    };
    header.flags.response = random.chance(500);
    header.message_id = random.below(6) as u32;
    let errors = [
        NotifyType::InvalidIkeSpi,
        NotifyType::InvalidMajorVersion,
        NotifyType::InvalidSyntax,
        NotifyType::AuthenticationFailed,
        NotifyType::NoProposalChosen,
    ];
    let body = if random.chance(300) {
        Body::Delete(Delete::IKE_SA)
    } else {
        Body::Notify(Notify::new(errors[random.below(5) as usize], &[]))
    };
    // A forged refusal of IKE_SA_INIT is accepted after a while at most (RFC 7296 2.21.1): not part of these tests.
    if header.exchange == ExchangeType::IKE_SA_INIT {
        header.exchange = ExchangeType::INFORMATIONAL;
    }
    printed(packet, header, vec![body.into()])
}

fn printed(packet: &Packet, header: Header, payloads: Vec<ikev2::message::Payload<'_>>) -> Packet {
    let message = Message { header, payloads };
    let bytes = message.print().unwrap_or_else(|_| vec![0; HEADER_LEN]);
    Packet {
        bytes,
        ..packet.clone()
    }
}
