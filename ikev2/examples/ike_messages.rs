//! IKE messages for comparison with an independent implementation (`tests/scapy/ike.py`).
//!
//! ```text
//!   ike_messages            prints messages of every payload: name, space, bytes in hexadecimal digits
//!   ike_messages read       reads such bytes from standard input, a message a line, and prints each again, or why not
//! ```

use ikev2::{
    encrypted::{MessageKey, Sealer},
    message::{
        Body, ExchangeType, Flags, Header, IkeSpi, Message, Payload,
        payload::{
            AuthMethod, Authentication, CertificateEncoding, CertificatePayload, Configuration,
            ConfigurationAttribute, ConfigurationKind, Delete, Identification, IdentificationType,
            KeyExchange, Notify, NotifyType, Protocol, SecurityAssociation, TrafficSelector,
        },
    },
    negotiation::default_offers,
};
use ipsec::{
    algorithm::Encryption,
    suite::{Secret, Suite},
};
use std::io::{self, BufRead};

fn main() -> io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("read") {
        return read();
    }
    println!(
        "ike-sa-init {}",
        hex(&message(ExchangeType::IKE_SA_INIT, initial()))
    );
    println!(
        "clear-auth {}",
        hex(&message(ExchangeType::IKE_AUTH, auth()))
    );
    println!(
        "clear-informational {}",
        hex(&message(ExchangeType::INFORMATIONAL, informational()))
    );
    let mut random = |bytes: &mut [u8]| bytes.fill(7);
    let sealed = sealer().seal(&header(ExchangeType::IKE_AUTH), &auth(), &mut random);
    println!("sealed {}", hex(&sealed.expect("short")));
    let fragments =
        sealer().seal_in_fragments(&header(ExchangeType::IKE_AUTH), &auth(), 300, &mut random);
    for fragment in fragments.expect("short") {
        println!("fragment {}", hex(&fragment));
    }
    Ok(())
}

fn read() -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let bytes = unhex(&line?);
        match Message::parse(&bytes).map(|message| message.print()) {
            Ok(Ok(printed)) => println!("{}", hex(&printed)),
            Ok(Err(too_long)) => println!("{too_long}"),
            Err(refusal) => println!("{refusal}"),
        }
    }
    Ok(())
}

/// Not a certificate: tshark would read one that is announced as X.509.
const BYTES: [u8; 256] = [0x5a; 256];

fn initial() -> Vec<Payload<'static>> {
    let offers = default_offers(Protocol::IKE, true);
    let proposals = (1..)
        .zip(&offers)
        .map(|(number, offer)| offer.proposal(number, &[]))
        .collect();
    let notify = |kind, data| Body::Notify(Notify::new(kind, data));
    payloads([
        notify(NotifyType::Cookie, &BYTES[..32]),
        Body::SecurityAssociation(SecurityAssociation { proposals }),
        Body::KeyExchange(KeyExchange {
            group: 31,
            public: &BYTES[..32],
        }),
        Body::Nonce(&BYTES[..32]),
        notify(NotifyType::NatDetectionSourceIp, &BYTES[..20]),
        notify(NotifyType::NatDetectionDestinationIp, &BYTES[..20]),
        notify(NotifyType::Ikev2FragmentationSupported, &[]),
        notify(
            NotifyType::SignatureHashAlgorithms,
            &[0, 2, 0, 3, 0, 4, 0, 5],
        ),
        Body::VendorId(b"Esplanade"),
    ])
}

fn auth() -> Vec<Payload<'static>> {
    let identity = |kind, data| Identification {
        kind,
        reserved: [0; 3],
        data,
    };
    let encoding = CertificateEncoding::HASH_AND_URL;
    let offers = default_offers(Protocol::ESP, true);
    let numbered = (1..).zip(&offers);
    let proposals = numbered
        .map(|(number, offer)| offer.proposal(number, &[1, 2, 3, 4]))
        .collect();
    payloads([
        Body::IdentificationInitiator(identity(IdentificationType::FQDN, b"left.example")),
        Body::Certificate(CertificatePayload {
            encoding,
            data: &BYTES,
        }),
        Body::CertificateRequest(CertificatePayload {
            encoding,
            data: &BYTES[..20],
        }),
        Body::IdentificationResponder(identity(IdentificationType::IPV4_ADDRESS, &[192, 0, 2, 2])),
        Body::Authentication(Authentication {
            method: AuthMethod::SHARED_KEY,
            data: &BYTES[..32],
        }),
        Body::Configuration(Configuration {
            kind: ConfigurationKind::REQUEST,
            attributes: vec![(ConfigurationAttribute::INTERNAL_IP4_ADDRESS, &[])],
        }),
        Body::SecurityAssociation(SecurityAssociation { proposals }),
        Body::TrafficSelectorsInitiator(vec![TrafficSelector::ANY_IPV4]),
        Body::TrafficSelectorsResponder(vec![TrafficSelector::ANY_IPV4, TrafficSelector::ANY_IPV6]),
        Body::Notify(Notify::new(NotifyType::InitialContact, &[])),
    ])
}

fn informational() -> Vec<Payload<'static>> {
    let spi = &BYTES[..4];
    let rekey = Notify {
        protocol: Protocol::ESP,
        spi,
        kind: NotifyType::RekeySa,
        data: &[],
    };
    payloads([
        Body::Delete(Delete::children(
            Protocol::ESP,
            &[[1, 2, 3, 4], [5, 6, 7, 8]],
        )),
        Body::Delete(Delete::IKE_SA),
        Body::Notify(rekey),
    ])
}

fn payloads<const N: usize>(bodies: [Body<'static>; N]) -> Vec<Payload<'static>> {
    bodies.into_iter().map(Payload::from).collect()
}

fn header(exchange: ExchangeType) -> Header {
    let is_first = exchange == ExchangeType::IKE_SA_INIT;
    Header {
        initiator_spi: IkeSpi([0xa1; 8]),
        responder_spi: if is_first {
            IkeSpi::ZERO
        } else {
            IkeSpi([0xb2; 8])
        },
        exchange,
        flags: Flags {
            initiator: true,
            ..Flags::default()
        },
        message_id: u32::from(!is_first),
    }
}

fn message(exchange: ExchangeType, payloads: Vec<Payload<'_>>) -> Vec<u8> {
    Message {
        header: header(exchange),
        payloads,
    }
    .print()
    .expect("short")
}

fn sealer() -> Sealer {
    let encryption = Encryption::named("aes-gcm-16").expect("a row of the table");
    let suite = Suite::new(Some((encryption, Secret::new(vec![1; 36]))), None, None);
    Sealer::new(MessageKey::new(&suite.expect("36 bytes fit")).expect("GCM protects messages"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.filter_map(byte).collect()
}
