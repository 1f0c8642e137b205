use super::*;
use crate::algorithm::{Encryption, Integrity};
use crate::sa::{Protocol, SaId, Spi};
use crate::suite::{Secret, Suite};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};

fn suite(encryption: Option<(&str, &[u8])>, integrity: Option<(&str, &[u8])>) -> Suite {
    Suite::new(
        encryption.map(|(name, key)| (Encryption::named(name).unwrap(), Secret::new(key.to_vec()))),
        integrity.map(|(name, key)| (Integrity::named(name).unwrap(), Secret::new(key.to_vec()))),
        None,
    )
    .unwrap()
}

fn config(suite: Suite, spi: u32) -> SaConfig {
    let destination = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    let id = SaId {
        destination,
        protocol: Protocol::Esp,
        spi: Spi::new(spi).unwrap_or(Spi::NONE),
    };
    SaConfig {
        replay_window: 64,
        ..SaConfig::new(id, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), suite)
    }
}

fn seal(sa: &Sa, sequence: SequenceNumber, iv: Iv, next_header: u8, plaintext: &[u8]) -> Vec<u8> {
    let stamp = OutboundEsp::new(sa, sequence, iv, next_header, plaintext.len());
    let mut packet = vec![0; stamp.packet_len()];
    let (head, payload) = plaintext.split_at(plaintext.len() / 3);
    multibuffer::seal(&mut [stamp.job(sa, head, payload, &mut packet)]);
    packet
}

fn open(sa: &Sa, packet: &[u8]) -> Result<(Vec<u8>, u8), Dropped> {
    let mut packet = packet.to_vec();
    let received = InboundEsp::parse(sa, &packet)?;
    let mut jobs = [received.job(sa, &mut packet)];
    multibuffer::open(&mut jobs);
    if jobs[0].verdict != Verdict::Genuine {
        return Err(Dropped::BadIcv);
    }
    sa.state
        .admit(&sa.config, received.sequence(), packet.len() as u64, 0)?;
    let (range, next_header) = received.strip(sa, &packet)?;
    Ok((packet[range].to_vec(), next_header))
}

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    enc: String,
    enc_key: String,
    #[serde(default)]
    salt: String,
    #[serde(default)]
    esn: bool,
    #[serde(default)]
    seq_hi: u64,
    esp: String,
    #[serde(default)]
    payload: String,
    #[serde(default)]
    plaintext_with_trailer: String,
    next_header: u8,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Vector {
    fn sa(&self, esp: &[u8]) -> Sa {
        let key = [unhex(&self.enc_key), unhex(&self.salt)].concat();
        let config = SaConfig {
            esn: self.esn,
            ..config(suite(Some((&self.enc, &key)), None), word(esp, 0))
        };
        Sa::new(config, 0, 7)
    }

    fn plaintext(&self) -> Vec<u8> {
        let text = unhex(&self.plaintext_with_trailer);
        match text.len() {
            0 => unhex(&self.payload),
            len => text[..len - 2 - usize::from(text[len - 2])].to_vec(),
        }
    }
}

#[test]
fn packets_printed_in_rfcs_open_and_seal_to_the_same_bytes() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../../tests/vectors/rfc-esp-packets.json")).unwrap();
    assert_eq!(vectors.vectors.len(), 19);
    for vector in &vectors.vectors {
        let esp = unhex(&vector.esp);
        let sa = vector.sa(&esp);
        let sequence = SequenceNumber(vector.seq_hi << 32 | u64::from(word(&esp, 4)));
        let iv = Iv::new(&esp[8..8 + sa.config.suite.iv_len()]);
        let plaintext = vector.plaintext();
        assert_eq!(
            seal(&sa, sequence, iv, vector.next_header, &plaintext),
            esp,
            "{} sealed",
            vector.id
        );
        if sequence.0 > 0 {
            sa.state
                .admit(&sa.config, SequenceNumber(sequence.0 - 1), 0, 0)
                .unwrap();
            assert_eq!(
                open(&sa, &esp),
                Ok((plaintext, vector.next_header)),
                "{} opened",
                vector.id
            );
        }
    }
}

/// One suite for each way in which a packet can be laid out.
fn layouts() -> Vec<Suite> {
    let key = [0x5a; 64];
    vec![
        suite(Some(("aes-gcm-16", &key[..20])), None),
        suite(Some(("aes-gcm-16-iiv", &key[..20])), None),
        suite(Some(("chacha20-poly1305", &key[..36])), None),
        suite(
            Some(("aes-cbc", &key[..16])),
            Some(("hmac-sha1", &key[..20])),
        ),
        suite(
            Some(("3des-cbc", &key[..24])),
            Some(("hmac-sha2-256", &key[..32])),
        ),
        suite(Some(("null", &key[..0])), Some(("hmac-md5", &key[..16]))),
        suite(
            Some(("aes-ctr", &key[..20])),
            Some(("aes-xcbc-mac", &key[..16])),
        ),
    ]
}

#[test]
fn every_layout_carries_every_length_with_and_without_extended_numbers() {
    let mut random = |bytes: &mut [u8]| bytes.fill(0xa7);
    for (suite, esn) in layouts()
        .into_iter()
        .flat_map(|suite| [(suite.clone(), false), (suite, true)])
    {
        let sa = Sa::new(
            SaConfig {
                esn,
                ..config(suite, 0x1234)
            },
            0,
            99,
        );
        let far = if esn { 0x2_ffff_ffff } else { 0 };
        sa.state
            .admit(&sa.config, SequenceNumber(far), 0, 0)
            .unwrap_or_default();
        for len in 0..200usize {
            let plaintext: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let sequence = SequenceNumber(far + 1 + len as u64);
            let packet = seal(
                &sa,
                sequence,
                sa.iv_for(sequence, &mut random),
                4,
                &plaintext,
            );
            assert_eq!(packet.len(), sealed_len(&sa.config, len));
            assert!(max_plaintext_len(&sa.config, packet.len()) >= len);
            assert_eq!(
                open(&sa, &packet),
                Ok((plaintext, 4)),
                "{:?} esn {esn} length {len}",
                sa.config.suite
            );
            assert_eq!(open(&sa, &packet), Err(Dropped::Replayed));
        }
    }
}

#[test]
fn the_limit_is_the_longest_plaintext_that_fits() {
    for suite in layouts() {
        let config = config(suite, 0x1234);
        for room in 0..400 {
            let limit = max_plaintext_len(&config, room);
            assert!(limit == 0 || sealed_len(&config, limit) <= room);
            assert!(
                sealed_len(&config, limit + 1) > room,
                "{config:?} room {room}"
            );
        }
    }
}

#[test]
fn a_change_anywhere_in_a_packet_is_refused_and_moves_no_window() {
    let mut random = |bytes: &mut [u8]| bytes.fill(0xa7);
    for (suite, esn) in layouts()
        .into_iter()
        .flat_map(|suite| [(suite.clone(), false), (suite, true)])
    {
        let sa = Sa::new(
            SaConfig {
                esn,
                ..config(suite, 0x1234)
            },
            0,
            99,
        );
        let packet = seal(
            &sa,
            SequenceNumber(3),
            sa.iv_for(SequenceNumber(3), &mut random),
            4,
            &[0x45; 61],
        );
        // The SPI chose the association, so a changed one never gets here; it is authenticated all the same.
        for at in 4..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 0x10;
            assert!(open(&sa, &changed).is_err(), "byte {at}");
            assert_eq!(sa.state.usage().sequence, 0);
        }
        for len in 0..packet.len() {
            assert!(open(&sa, &packet[..len]).is_err(), "cut to {len}");
        }
        assert!(open(&sa, &packet).is_ok());
    }
}

#[test]
fn a_genuine_packet_with_lying_padding_is_dropped() {
    let sa = Sa::new(
        config(
            suite(Some(("null", &[])), Some(("hmac-sha1", &[7; 20]))),
            0x1234,
        ),
        0,
        0,
    );
    let forge = |text: &[u8], sequence: u32| {
        let mut packet = [&0x1234u32.to_be_bytes()[..], &sequence.to_be_bytes(), text].concat();
        let mut icv = [0; 12];
        let key = sa.config.suite.expand();
        multibuffer::sign(&mut [multibuffer::SignJob {
            key: &key,
            input: [&packet, &[], &[]],
            iv: Iv::default(),
            icv: &mut icv,
        }]);
        packet.extend(icv);
        packet
    };
    assert_eq!(open(&sa, &forge(&[9, 9, 0, 4], 1)), Ok((vec![9, 9], 4)));
    assert_eq!(
        open(&sa, &forge(&[9, 9, 200, 4], 2)),
        Err(Dropped::BadPadding),
        "longer than the payload"
    );
    assert_eq!(
        open(&sa, &forge(&[9, 1, 2, 3, 0xff, 0xff, 255, 4], 3)),
        Err(Dropped::BadPadding)
    );
    assert_eq!(
        open(&sa, &forge(&[9, 1, 3, 2, 4, 4, 2, 4], 4)),
        Err(Dropped::BadPadding),
        "not 1, 2"
    );
    assert_eq!(
        open(&sa, &forge(&[9, 9, 9, 9, 1, 1, 59], 5)),
        Err(Dropped::Malformed),
        "not aligned"
    );
}

#[test]
fn confidentiality_padding_hides_the_length_in_tunnel_mode_alone() {
    let hiding = SaConfig {
        tfc: 500,
        mode: Mode::Tunnel,
        ..config(layouts().remove(3), 0x1234)
    };
    assert_eq!(sealed_len(&hiding, 1), sealed_len(&hiding, 499));
    assert!(sealed_len(&hiding, 501) >= sealed_len(&hiding, 500));
    let open_about_it = SaConfig {
        mode: Mode::Transport,
        ..hiding.clone()
    };
    assert!(sealed_len(&open_about_it, 1) < 80);
    let sa = Sa::new(hiding, 0, 0);
    let packet = seal(&sa, SequenceNumber(1), Iv::new(&[1; 16]), 4, &[0x45; 20]);
    let (text, next_header) = open(&sa, &packet).unwrap();
    assert_eq!((&text[..20], next_header), (&[0x45; 20][..], 4));
    assert!(
        text[20..].iter().all(|byte| *byte == 0),
        "the inner header says where it ends"
    );
}

#[test]
fn counter_ivs_never_repeat_and_cbc_ivs_are_drawn() {
    let sa = Sa::new(config(layouts().remove(0), 0x1234), 0, u64::MAX);
    let mut random = |_: &mut [u8]| panic!("a counter suite draws nothing");
    let ivs = [1, 2, 3].map(|number| {
        sa.iv_for(SequenceNumber(number), &mut random)
            .as_bytes()
            .to_vec()
    });
    assert_eq!(ivs[0], [0; 8], "the counter starts anywhere and wraps");
    assert_ne!(ivs[1], ivs[2]);
    let cbc = Sa::new(config(layouts().remove(3), 0x1234), 0, 0);
    let mut next = 0;
    let mut random = |bytes: &mut [u8]| {
        next += 1;
        bytes.fill(next);
    };
    assert_eq!(
        cbc.iv_for(SequenceNumber(1), &mut random).as_bytes(),
        [1; 16]
    );
    assert_eq!(
        cbc.iv_for(SequenceNumber(1), &mut random).as_bytes(),
        [2; 16]
    );
}

/// RFC 4303 2.2.1: the receiver infers the high half of the number; only a correct ICV confirms it.
#[test]
fn the_half_of_an_extended_number_that_does_not_travel_is_authenticated() {
    let mut random = |bytes: &mut [u8]| bytes.fill(0xa7);
    let sequence = SequenceNumber(0x1_0000_0005);
    for suite in layouts() {
        let config = SaConfig {
            esn: true,
            ..config(suite, 0x1234)
        };
        let [sender, behind, level] = [99; 3].map(|start| Sa::new(config.clone(), 0, start));
        let iv = sender.iv_for(sequence, &mut random);
        let packet = seal(&sender, sequence, iv, 4, &[0x45; 61]);
        assert_eq!(
            open(&behind, &packet),
            Err(Dropped::BadIcv),
            "{:?}",
            config.suite
        );
        let before = SequenceNumber(0x1_0000_0004);
        level.state.admit(&level.config, before, 0, 0).unwrap();
        assert!(open(&level, &packet).is_ok(), "{:?}", config.suite);
    }
}

/// RFC 4303 2: the ciphertext is whole blocks and holds at least pad length and next header; checked before decryption.
#[test]
fn what_has_no_trailer_or_no_whole_blocks_is_malformed_at_the_first_look() {
    for suite in layouts() {
        let sa = Sa::new(config(suite, 0x1234), 0, 0);
        let around = ciphertext_at(&sa.config) + sa.config.suite.icv_len();
        let look = |len| InboundEsp::parse(&sa, &vec![1; len]).err();
        for len in 0..around {
            assert_eq!(look(len), Some(Dropped::Malformed), "{len}");
        }
        for text_len in 0..64_usize {
            let is_whole = text_len >= 2 && text_len.is_multiple_of(sa.config.suite.align());
            let expected = (!is_whole).then_some(Dropped::Malformed);
            assert_eq!(look(around + text_len), expected, "text of {text_len}");
        }
    }
}
