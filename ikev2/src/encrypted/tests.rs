use super::*;
use crate::message::{ExchangeType, Flags, IkeSpi, payload::Notify, payload::NotifyType};
use ipsec::{algorithm::Integrity, suite::Secret};

fn header() -> Header {
    Header {
        initiator_spi: IkeSpi([1; 8]),
        responder_spi: IkeSpi([2; 8]),
        exchange: ExchangeType::IKE_AUTH,
        flags: Flags {
            initiator: true,
            ..Flags::default()
        },
        message_id: 1,
    }
}

/// Every algorithm that can protect IKE messages, with its longest key.
fn every_key() -> Vec<(Encryption, Option<Integrity>)> {
    let mut keys = Vec::new();
    for encryption in Encryption::all() {
        if matches!(encryption.cipher, Cipher::Null | Cipher::AesGmac) || encryption.iv_len == 0 {
            continue;
        }
        if encryption.icv_len > 0 {
            keys.push((encryption, None));
        } else {
            let macs = Integrity::all().filter(|row| row.iv_len == 0);
            keys.extend(macs.map(|integrity| (encryption, Some(integrity))));
        }
    }
    keys
}

fn key(encryption: Encryption, integrity: Option<Integrity>) -> MessageKey {
    let bytes = |len| Secret::new((0..len).map(|byte| byte as u8).collect());
    let len = *encryption.key_lens.last().unwrap();
    let integrity = integrity.map(|row| (row, bytes(row.key_len)));
    let suite = Suite::new(Some((encryption, bytes(len))), integrity, None).unwrap();
    MessageKey::new(&suite).unwrap()
}

fn counting() -> impl FnMut(&mut [u8]) {
    let mut next = 0u8;
    move |bytes| {
        bytes.iter_mut().for_each(|byte| {
            next = next.wrapping_add(1);
            *byte = next;
        })
    }
}

#[test]
fn what_is_sealed_is_opened_by_every_algorithm_at_every_length() {
    for (encryption, integrity) in every_key() {
        let mut sealer = Sealer::new(key(encryption, integrity));
        for len in 0..40 {
            let data = vec![7; len];
            let payloads = vec![Payload::from(Body::VendorId(&data))];
            let mut sealed = sealer.seal(&header(), &payloads, &mut counting()).unwrap();
            let opened = key(encryption, integrity).open(&mut sealed).unwrap();
            assert_eq!(opened.header, header());
            assert_eq!(opened.content, Content::Payloads(payloads));
        }
    }
}

#[test]
fn a_message_without_payloads_is_a_message() {
    let (encryption, integrity) = every_key()[0];
    let mut sealer = Sealer::new(key(encryption, integrity));
    let mut sealed = sealer.seal(&header(), &[], &mut counting()).unwrap();
    let opened = key(encryption, integrity).open(&mut sealed).unwrap();
    assert_eq!(opened.content, Content::Payloads(Vec::new()));
}

#[test]
fn no_iv_is_used_twice() {
    for (encryption, integrity) in every_key() {
        let mut sealer = Sealer::new(key(encryption, integrity));
        let mut random = counting();
        let mut ivs: Vec<_> = (0..4)
            .map(|_| {
                let sealed = sealer.seal(&header(), &[], &mut random).unwrap();
                sealed[32..32 + encryption.iv_len].to_vec()
            })
            .collect();
        ivs.dedup();
        assert_eq!(ivs.len(), 4, "{}", encryption.name);
    }
}

#[test]
fn fragments_fit_their_datagrams_and_hold_all_bytes() {
    let data = vec![9; 5000];
    let payloads = vec![Payload::from(Body::VendorId(&data))];
    for (encryption, integrity) in every_key() {
        for max in [300, 576, 1252, 4000] {
            let mut sealer = Sealer::new(key(encryption, integrity));
            let sealed = sealer
                .seal_in_fragments(&header(), &payloads, max, &mut counting())
                .unwrap();
            assert!(sealed.iter().all(|datagram| datagram.len() <= max));
            let mut text = Vec::new();
            for (index, mut datagram) in sealed.clone().into_iter().enumerate() {
                let opener = key(encryption, integrity);
                let Content::Fragment(fragment) = opener.open(&mut datagram).unwrap().content
                else {
                    panic!("fragments were asked for")
                };
                assert_eq!(usize::from(fragment.number), index + 1);
                assert_eq!(usize::from(fragment.total), sealed.len());
                text.extend_from_slice(fragment.text);
            }
            let read = payload::parse_decrypted(PayloadType::VENDOR_ID, &text).unwrap();
            assert_eq!(read, payloads);
        }
    }
}

#[test]
fn what_fits_a_datagram_is_not_cut() {
    let data = vec![9; 200];
    let payloads = [Payload::from(Body::VendorId(&data))];
    let (encryption, integrity) = every_key()[0];
    let mut sealer = Sealer::new(key(encryption, integrity));
    let whole = sealer.seal(&header(), &payloads, &mut counting()).unwrap();
    let mut random = counting();
    let mut at_most = |max| {
        sealer
            .seal_in_fragments(&header(), &payloads, max, &mut random)
            .unwrap()
            .len()
    };
    assert_eq!(at_most(whole.len() + 16), 1);
    assert!(at_most(whole.len() - 1) > 1);
}

#[test]
fn a_message_of_more_fragments_than_a_peer_would_join_is_not_sent() {
    let data = vec![9; 60_000];
    let payloads = [Payload::from(Body::VendorId(&data))];
    let (encryption, integrity) = every_key()[0];
    let mut sealer = Sealer::new(key(encryption, integrity));
    let sealed = sealer.seal_in_fragments(&header(), &payloads, 300, &mut counting());
    assert_eq!(sealed, Err(TooLong(PayloadType::ENCRYPTED_FRAGMENT)));
}

#[test]
fn what_is_authentic_but_malformed_is_distinguished_from_what_is_not_authentic() {
    let encryption = Encryption::named("aes-gcm-16").unwrap();
    let mut sealer = Sealer::new(key(encryption, None));
    // A nonce payload of 3 bytes, which printing lets pass.
    let payloads = [Payload::from(Body::Nonce(&[1, 2, 3]))];
    let mut sealed = sealer.seal(&header(), &payloads, &mut counting()).unwrap();
    let opened = key(encryption, None).open(&mut sealed);
    assert!(matches!(
        opened,
        Err(OpenError::Inside(_, Refusal::Malformed(_)))
    ));

    let mut sealed = sealer.seal(&header(), &[], &mut counting()).unwrap();
    *sealed.last_mut().unwrap() ^= 1;
    assert_eq!(
        key(encryption, None).open(&mut sealed),
        Err(OpenError::BadIcv)
    );
}

#[test]
fn padding_that_is_longer_than_the_text_is_malformed() {
    let mut text = [0, 0, 0, 4];
    assert!(without_padding(&mut text).is_err());
    let mut text = [0, 0, 0, 3];
    assert_eq!(without_padding(&mut text), Ok(&[][..]));
    assert!(without_padding(&mut []).is_err());
}

#[test]
fn a_clear_message_is_not_taken_for_an_encrypted_one() {
    let notify = Notify::new(NotifyType::InvalidSyntax, &[]);
    let message = Message {
        header: header(),
        payloads: vec![Body::Notify(notify).into()],
    };
    let (encryption, integrity) = every_key()[0];
    let opened = key(encryption, integrity)
        .open(&mut message.print().unwrap())
        .map(|_| ());
    assert_eq!(opened, Err(OpenError::InClear));
}

#[test]
fn algorithms_that_leave_messages_unprotected_are_refused() {
    let secret = |len| Secret::new(vec![1; len]);
    let named = |name| Encryption::named(name).unwrap();
    let alone = |row, key| Suite::new(Some((row, key)), None, None).unwrap();
    for (name, len) in [("null", 0), ("aes-gmac", 20), ("aes-gcm-16-iiv", 20)] {
        let unfit = MessageKey::new(&alone(named(name), secret(len))).err();
        assert_eq!(unfit, Some(UnfitKey::NotForIke(named(name))));
    }
    let unfit = MessageKey::new(&alone(named("aes-cbc"), secret(16))).err();
    assert_eq!(unfit, Some(UnfitKey::Unauthenticated));
}
