//! The contract of the interface: which inputs are refused, which never panic, which always panic.

use multibuffer::{Cipher, Integrity, Iv, Key, KeyError, OpenJob, SealJob, SignJob, Verdict};

use crate::harness::{self, Chance, Packet, Suite};

#[test]
fn every_tampered_byte_is_rejected_and_its_neighbours_are_not() {
    let mut chance = Chance::new(10);
    for suite in harness::suites().into_iter().filter(Suite::authenticates) {
        let key = suite.key();
        let packet = Packet::new(&suite, &key, 56, &mut chance);
        let sealed = harness::seal_one(&key, &packet);
        let forgeries = forgeries(&packet, &sealed, &mut chance);
        let mut batch: Vec<(&Key, &Packet, &[u8])> = Vec::new();
        for (packet, sealed) in &forgeries {
            batch.push((&key, packet, sealed));
        }
        batch.insert(batch.len() / 2, (&key, &packet, &sealed));
        let opened = harness::open_all(&batch);
        for (i, plain) in opened.iter().enumerate() {
            let genuine = i == forgeries.len() / 2;
            assert_eq!(
                plain.is_some(),
                genuine,
                "{}, forgery {i} of {}",
                suite.name(),
                forgeries.len()
            );
        }
    }
}

/// The packet with each of its bytes changed in turn: associated data, IV, tail, ciphertext, ICV.
fn forgeries(packet: &Packet, sealed: &[u8], chance: &mut Chance) -> Vec<(Packet, Vec<u8>)> {
    let mut forgeries = Vec::new();
    let mut flip = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1 << chance.below(8);
        bytes
    };
    for at in 0..packet.aad.len() {
        forgeries.push((
            Packet {
                aad: flip(&packet.aad, at),
                ..packet.clone()
            },
            sealed.to_vec(),
        ));
    }
    for at in 0..packet.aad_tail.len() {
        forgeries.push((
            Packet {
                aad_tail: flip(&packet.aad_tail, at),
                ..packet.clone()
            },
            sealed.to_vec(),
        ));
    }
    for at in 0..packet.iv.as_bytes().len() {
        forgeries.push((
            Packet {
                iv: Iv::new(&flip(packet.iv.as_bytes(), at)),
                ..packet.clone()
            },
            sealed.to_vec(),
        ));
    }
    for at in 0..sealed.len() {
        forgeries.push((packet.clone(), flip(sealed, at)));
    }
    forgeries
}

#[test]
fn texts_whose_length_cannot_be_right_are_bad_and_never_panic() {
    for suite in harness::suites() {
        let key = suite.key();
        for len in 0..70_usize {
            let mut text = vec![7; len];
            let iv = Iv::new(&[3; 16][..key.iv_len()]);
            let verdict = open_raw(&key, iv, &[1; 8], &[], &mut text);
            let possible =
                len >= key.icv_len() && (len - key.icv_len()).is_multiple_of(key.block_len());
            let genuine = possible && !suite.authenticates();
            let expected = if genuine {
                Verdict::Genuine
            } else {
                Verdict::BadIcv
            };
            assert_eq!(verdict, expected, "{}, {len} bytes", suite.name());
        }
    }
}

#[test]
fn an_iv_or_a_tail_that_does_not_fit_the_key_is_bad_when_opened() {
    for suite in harness::suites() {
        let key = suite.key();
        let mut text = vec![7; key.block_len() + key.icv_len()];
        let longer = Iv::new(&[3; 16][..(key.iv_len() + 1).min(16)]);
        if longer.as_bytes().len() != key.iv_len() {
            assert_eq!(
                open_raw(&key, longer, &[], &[], &mut text),
                Verdict::BadIcv,
                "{}",
                suite.name()
            );
        }
        if suite.is_aead() {
            let iv = Iv::new(&[3; 16][..key.iv_len()]);
            assert_eq!(
                open_raw(&key, iv, &[], &[1], &mut text),
                Verdict::BadIcv,
                "{}",
                suite.name()
            );
        }
    }
}

fn open_raw(key: &Key, iv: Iv, aad: &[u8], aad_tail: &[u8], text: &mut [u8]) -> Verdict {
    let mut jobs = [OpenJob {
        key,
        aad,
        aad_tail,
        iv,
        text,
        verdict: Verdict::Pending,
    }];
    multibuffer::open(&mut jobs);
    jobs[0].verdict
}

#[test]
fn only_the_legal_key_lengths_are_taken() {
    let aes = |salt: usize| vec![16 + salt, 24 + salt, 32 + salt];
    let ciphers = [
        (Cipher::Null, 0, vec![0]),
        (Cipher::DesCbc, 0, vec![8]),
        (Cipher::TripleDesCbc, 0, vec![24]),
        (Cipher::AesCbc, 0, aes(0)),
        (Cipher::AesCtr, 0, aes(4)),
        (Cipher::AesGcm { icv_len: 8 }, 8, aes(4)),
        (Cipher::AesGcm { icv_len: 16 }, 16, aes(4)),
        (Cipher::AesGmac, 16, aes(4)),
        (Cipher::AesCcm { icv_len: 12 }, 12, aes(3)),
        (Cipher::ChaCha20Poly1305, 16, vec![36]),
        (Cipher::CamelliaCbc, 0, aes(0)),
        (Cipher::BlowfishCbc, 0, (5..=56).collect()),
        (Cipher::Cast128Cbc, 0, (5..=16).collect()),
    ];
    for (cipher, icv_len, legal) in ciphers {
        for len in 0..=130 {
            let made = Key::new(cipher, &vec![1; len], Integrity::None, &[], icv_len).map(|_| ());
            let expected = if legal.contains(&len) {
                Ok(())
            } else {
                Err(KeyError::CipherKeyLength(len))
            };
            assert_eq!(made, expected, "{cipher:?} with {len} bytes");
        }
    }
    let hmac: Vec<usize> = (1..=1024).collect();
    let integrities = [
        (Integrity::None, 0, vec![0]),
        (Integrity::HmacMd5, 12, hmac.clone()),
        (Integrity::HmacSha1, 12, hmac.clone()),
        (Integrity::HmacRipemd160, 12, hmac.clone()),
        (Integrity::HmacSha256, 16, hmac.clone()),
        (Integrity::HmacSha384, 24, hmac.clone()),
        (Integrity::HmacSha512, 32, hmac),
        (Integrity::AesXcbc, 12, vec![16]),
        (Integrity::AesCmac, 12, vec![16, 24, 32]),
        (Integrity::AesGmac, 16, vec![20, 28, 36]),
    ];
    for (integrity, icv_len, legal) in integrities {
        for len in 0..=1030 {
            let made = Key::new(Cipher::Null, &[], integrity, &vec![1; len], icv_len).map(|_| ());
            let expected = if legal.contains(&len) {
                Ok(())
            } else {
                Err(KeyError::IntegrityKeyLength(len))
            };
            assert_eq!(made, expected, "{integrity:?} with {len} bytes");
        }
    }
}

#[test]
fn only_fitting_icv_lengths_are_taken() {
    let outputs = [
        (Integrity::HmacMd5, 16),
        (Integrity::HmacSha1, 20),
        (Integrity::HmacRipemd160, 20),
        (Integrity::HmacSha256, 32),
        (Integrity::HmacSha384, 48),
        (Integrity::HmacSha512, 64),
        (Integrity::AesXcbc, 16),
        (Integrity::AesCmac, 16),
    ];
    for icv_len in (0..=300).chain([256 + 12, 512 + 16]) {
        let refused = Err(KeyError::IcvLength(icv_len));
        for (integrity, output) in outputs {
            let made = Key::new(Cipher::Null, &[], integrity, &[1; 16], icv_len).map(|_| ());
            let expected = if (8..=output).contains(&icv_len) {
                Ok(())
            } else {
                refused
            };
            assert_eq!(made, expected, "{integrity:?} to {icv_len} bytes");
        }
        for named in [8_u8, 12, 16, 4, 13] {
            let legal = icv_len == usize::from(named) && matches!(named, 8 | 12 | 16);
            for (cipher, len) in [
                (Cipher::AesGcm { icv_len: named }, 20),
                (Cipher::AesCcm { icv_len: named }, 19),
            ] {
                let made =
                    Key::new(cipher, &vec![1; len], Integrity::None, &[], icv_len).map(|_| ());
                assert_eq!(
                    made,
                    if legal { Ok(()) } else { refused },
                    "{cipher:?} to {icv_len} bytes"
                );
            }
        }
        for (cipher, len) in [(Cipher::AesGmac, 20), (Cipher::ChaCha20Poly1305, 36)] {
            let made = Key::new(cipher, &vec![1; len], Integrity::None, &[], icv_len).map(|_| ());
            assert_eq!(
                made,
                if icv_len == 16 { Ok(()) } else { refused },
                "{cipher:?} to {icv_len} bytes"
            );
        }
        let made = Key::new(Cipher::AesCbc, &[1; 16], Integrity::None, &[], icv_len).map(|_| ());
        assert_eq!(made, if icv_len == 0 { Ok(()) } else { refused });
    }
}

#[test]
fn an_aead_takes_no_integrity_algorithm_beside_it() {
    let made = Key::new(
        Cipher::AesGcm { icv_len: 16 },
        &[1; 20],
        Integrity::HmacSha1,
        &[1; 20],
        16,
    )
    .map(|_| ());
    assert_eq!(made, Err(KeyError::AeadWithIntegrity));
}

#[test]
fn an_error_about_a_key_names_the_length_and_nothing_of_the_key() {
    let error = Key::new(Cipher::AesCbc, b"secret", Integrity::None, &[], 0)
        .map(|_| ())
        .expect_err("too short");
    assert_eq!(error.to_string(), "the cipher takes no key of 6 bytes");
}

#[test]
fn lengths_and_iv_kinds_are_those_of_the_rfcs() {
    for suite in harness::suites() {
        let key = suite.key();
        let (iv_len, block_len, counter) = match suite.cipher {
            Cipher::Null => (0, 1, false),
            Cipher::AesCbc | Cipher::CamelliaCbc => (16, 16, false),
            Cipher::DesCbc | Cipher::TripleDesCbc | Cipher::BlowfishCbc | Cipher::Cast128Cbc => {
                (8, 8, false)
            }
            _ => (8, 1, true),
        };
        assert_eq!(
            (key.iv_len(), key.block_len(), key.iv_is_counter()),
            (iv_len, block_len, counter),
            "{}",
            suite.name()
        );
        assert_eq!(
            (key.cipher(), key.integrity(), key.icv_len()),
            (suite.cipher, suite.integrity, suite.icv_len)
        );
    }
}

#[test]
fn keys_are_shared_by_threads_and_never_printed() {
    trait Printable<Marker> {
        const CHECKED: bool = true;
    }
    impl<T: ?Sized> Printable<()> for T {}
    struct IsDebug;
    impl<T: ?Sized + std::fmt::Debug> Printable<IsDebug> for T {}
    fn shared<T: Send + Sync>(_: &T) -> bool {
        true
    }
    // Does not compile if `Key` has `Debug`, for then two traits fit.
    assert!(<Key as Printable<_>>::CHECKED && shared(&aes_cbc()));
}

#[test]
fn empty_batches_are_fine() {
    multibuffer::seal(&mut []);
    multibuffer::open(&mut []);
    multibuffer::sign(&mut []);
}

fn aes_cbc() -> Key {
    Key::new(Cipher::AesCbc, &[1; 16], Integrity::HmacSha1, &[2; 20], 12).expect("a legal key")
}

fn seal_raw(key: &Key, iv: &[u8], aad_tail: &[u8], input: &[u8], output_len: usize) {
    let mut output = vec![0; output_len];
    let input = [input, &[], &[]];
    multibuffer::seal(&mut [SealJob {
        key,
        aad: &[],
        aad_tail,
        iv: Iv::new(iv),
        input,
        output: &mut output,
    }]);
}

#[test]
#[should_panic(expected = "output must be the inputs' length and the ICV's together")]
fn sealing_into_a_range_of_another_length_is_the_callers_error() {
    seal_raw(&aes_cbc(), &[0; 16], &[], &[0; 32], 32);
}

#[test]
#[should_panic(expected = "whole blocks")]
fn sealing_part_of_a_block_is_the_callers_error() {
    seal_raw(&aes_cbc(), &[0; 16], &[], &[0; 33], 45);
}

#[test]
#[should_panic(expected = "do not fit the key")]
fn sealing_with_an_iv_of_another_length_is_the_callers_error() {
    seal_raw(&aes_cbc(), &[0; 8], &[], &[0; 32], 44);
}

#[test]
#[should_panic(expected = "do not fit the key")]
fn sealing_an_aead_with_a_tail_is_the_callers_error() {
    let key = Key::new(Cipher::ChaCha20Poly1305, &[1; 36], Integrity::None, &[], 16)
        .expect("a legal key");
    seal_raw(&key, &[0; 8], &[1], &[0; 32], 48);
}

#[test]
#[should_panic(expected = "cannot sign")]
fn signing_without_an_integrity_algorithm_is_the_callers_error() {
    let key = Key::new(Cipher::AesCbc, &[1; 16], Integrity::None, &[], 0).expect("a legal key");
    multibuffer::sign(&mut [SignJob {
        key: &key,
        input: [&[]; 3],
        iv: Iv::default(),
        icv: &mut [],
    }]);
}

#[test]
fn gmac_as_an_integrity_algorithm_is_like_the_cipher_and_goes_with_none() {
    let new = |cipher, cipher_key: &[u8], icv_len| {
        Key::new(cipher, cipher_key, Integrity::AesGmac, &[1; 20], icv_len)
    };
    let key = new(Cipher::Null, &[], 16).expect("a legal key");
    let cipher = Key::new(Cipher::AesGmac, &[1; 20], Integrity::None, &[], 16);
    let cipher = cipher.expect("a legal key");
    assert_eq!((key.iv_len(), key.icv_len(), key.block_len()), (8, 16, 1));
    assert!(key.iv_is_counter());
    let (iv, input) = (Iv::new(&[7; 8]), [&b"some"[..], b"more", b"text"]);
    let icv = harness::sign_one(&key, iv, input);
    assert_eq!(icv, harness::sign_one(&cipher, iv, input));
    for (cipher, cipher_key) in [
        (Cipher::AesCbc, &[1; 16][..]),
        (Cipher::AesGcm { icv_len: 16 }, &[1; 20]),
    ] {
        assert!(new(cipher, cipher_key, 16).is_err());
    }
    assert_eq!(
        new(Cipher::Null, &[1], 16).err(),
        Some(KeyError::GmacWithCipher)
    );
    assert_eq!(
        new(Cipher::Null, &[], 12).err(),
        Some(KeyError::IcvLength(12))
    );
}

#[test]
#[should_panic(expected = "GMAC needs its IV")]
fn signing_with_gmac_without_an_iv_is_the_callers_error() {
    let key = Key::new(Cipher::AesGmac, &[1; 20], Integrity::None, &[], 16).expect("a legal key");
    harness::sign_one(&key, Iv::default(), [&[]; 3]);
}
