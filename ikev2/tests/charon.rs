//! Real exchanges of strongSwan's charon: every message is read and printed, opened with the keys that charon logged,
//! and refused when a byte of it is changed. `vectors/README.md` describes where they come from.

use ikev2::{
    encrypted::{Content, MessageKey, OpenError},
    fragments::{Fragments, Offered},
    message::{Body, ExchangeType, Header, Message, Payload, PayloadType, payload::NotifyType},
};
use ipsec::{
    algorithm::{Encryption, Integrity},
    suite::{Secret, Suite},
};
use serde_json::Value;
use std::{fs, path::Path, time::Duration};

/// One captured IKE SA.
struct Exchange {
    name: String,
    messages: Vec<Vec<u8>>,
    /// Of the initiator's messages, and of the responder's.
    keys: [MessageKey; 2],
}

#[test]
fn every_message_is_printed_as_it_was_read() {
    for exchange in exchanges() {
        for message in &exchange.messages {
            let read = Message::parse(message).expect("a message of charon's");
            assert_eq!(&read.print().unwrap(), message, "{}", exchange.name);
        }
    }
}

#[test]
fn initial_messages_hold_what_rfc_7296_requires() {
    for exchange in exchanges() {
        for message in &exchange.messages[..2] {
            let message = Message::parse(message).unwrap();
            assert_eq!(message.header.exchange, ExchangeType::IKE_SA_INIT);
            let kinds: Vec<_> = message
                .payloads
                .iter()
                .map(|payload| payload.body.kind())
                .collect();
            let begin = [
                PayloadType::SECURITY_ASSOCIATION,
                PayloadType::KEY_EXCHANGE,
                PayloadType::NONCE,
            ];
            assert_eq!(kinds[..3], begin);
            assert!(has_notification(
                &message.payloads,
                NotifyType::SignatureHashAlgorithms
            ));
            assert!(has_notification(
                &message.payloads,
                NotifyType::NatDetectionSourceIp
            ));
        }
    }
}

#[test]
fn every_encrypted_message_is_opened_and_its_payloads_printed_as_they_were_read() {
    for exchange in exchanges() {
        let mut fragments = [Fragments::default(), Fragments::default()];
        let mut auth = 0;
        for message in &exchange.messages[2..] {
            let mut bytes = message.clone();
            let opened = exchange.key_of(message).open(&mut bytes);
            let opened = opened.unwrap_or_else(|error| panic!("{}: {error}", exchange.name));
            let side = usize::from(!opened.header.flags.initiator);
            auth += match opened.content {
                Content::Payloads(payloads) => check(&opened.header, &payloads),
                Content::Fragment(fragment) => {
                    match fragments[side].offer(&opened.header, fragment, Duration::ZERO) {
                        Offered::Waiting => 0,
                        Offered::Complete(joined) => {
                            check(&joined.header, &joined.payloads().unwrap())
                        }
                        Offered::Discarded(reason) => panic!("{reason:?}"),
                    }
                }
            };
        }
        assert_eq!(auth, 2, "{}: both sides send AUTH", exchange.name);
    }
}

/// Prints the payloads, reads them again and compares. Returns how many are AUTH.
fn check(header: &Header, payloads: &[Payload<'_>]) -> usize {
    let message = Message {
        header: *header,
        payloads: payloads.to_vec(),
    };
    let printed = message.print().unwrap();
    assert_eq!(Message::parse(&printed).unwrap(), message);
    payloads
        .iter()
        .filter(|payload| matches!(payload.body, Body::Authentication(_)))
        .count()
}

#[test]
fn a_change_of_any_bit_is_noticed_before_anything_inside_is_read() {
    for exchange in exchanges() {
        for message in &exchange.messages[2..6] {
            for bit in 0..8 * message.len() {
                let mut changed = message.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                match exchange.key_of(message).open(&mut changed) {
                    Err(OpenError::BadIcv | OpenError::Outside(_) | OpenError::InClear) => {}
                    other => panic!("{} bit {bit}: {other:?}", exchange.name),
                }
            }
        }
    }
}

#[test]
fn a_message_cut_anywhere_is_refused() {
    let exchange = &exchanges()[0];
    for message in &exchange.messages {
        for len in 0..message.len() {
            assert!(Message::parse(&message[..len]).is_err());
        }
    }
}

impl Exchange {
    fn key_of(&self, message: &[u8]) -> &MessageKey {
        let (header, _) = Header::parse(message).unwrap();
        &self.keys[usize::from(!header.flags.initiator)]
    }
}

fn has_notification(payloads: &[Payload<'_>], kind: NotifyType) -> bool {
    payloads
        .iter()
        .any(|payload| matches!(&payload.body, Body::Notify(notify) if notify.kind == kind))
}

fn exchanges() -> Vec<Exchange> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/charon");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert_eq!(paths.len(), 9);
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Exchange {
    let json: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let messages = json["messages"].as_array().unwrap();
    let suite = json["suite"].as_str().unwrap();
    let key = |side: &str| {
        let (encryption, integrity) = algorithms(suite);
        let integrity = integrity.map(|row| (row, secret(&json[format!("sk_a{side}")])));
        let encryption = (encryption, secret(&json[format!("sk_e{side}")]));
        MessageKey::new(&Suite::new(Some(encryption), integrity, None).unwrap()).unwrap()
    };
    Exchange {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        messages: messages
            .iter()
            .map(|message| hex(message["bytes"].as_str().unwrap()))
            .collect(),
        keys: [key("i"), key("r")],
    }
}

/// By charon's names.
fn algorithms(suite: &str) -> (Encryption, Option<Integrity>) {
    let encryption = [
        ("AES_GCM_16", "aes-gcm-16"),
        ("AES_GCM_8", "aes-gcm-8"),
        ("AES_CCM_16", "aes-ccm-16"),
        ("CHACHA20_POLY1305", "chacha20-poly1305"),
        ("AES_CBC", "aes-cbc"),
        ("AES_CTR", "aes-ctr"),
        ("3DES_CBC", "3des-cbc"),
    ];
    let integrity = [
        ("/HMAC_SHA1_96", "hmac-sha1"),
        ("/HMAC_SHA2_256_128", "hmac-sha2-256"),
        ("/HMAC_SHA2_512_256", "hmac-sha2-512"),
        ("/AES_XCBC_96", "aes-xcbc-mac"),
    ];
    let ours = |names: &[(&str, &'static str)]| {
        names
            .iter()
            .find(|(theirs, _)| suite.contains(theirs))
            .map(|(_, ours)| *ours)
    };
    let encryption = Encryption::named(ours(&encryption).unwrap()).unwrap();
    (
        encryption,
        ours(&integrity).map(|name| Integrity::named(name).unwrap()),
    )
}

fn secret(value: &Value) -> Secret {
    Secret::new(hex(value.as_str().unwrap()))
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
