//! ring, which has AEADs alone that IPsec uses, and HMACs without truncation.

use multibuffer::Cipher;
use ring::aead;

use crate::{AAD, Rival, suites::Suite};

struct Ring {
    key: aead::LessSafeKey,
    salt: Vec<u8>,
}

pub fn rival(suite: &Suite) -> Option<Box<dyn Rival>> {
    let algorithm = match (suite.cipher, suite.key_len) {
        (Cipher::AesGcm { .. }, 20) => &aead::AES_128_GCM,
        (Cipher::AesGcm { .. }, 36) => &aead::AES_256_GCM,
        (Cipher::ChaCha20Poly1305, _) => &aead::CHACHA20_POLY1305,
        _ => return None,
    };
    let (key, salt) = suite.split_key();
    let key = aead::UnboundKey::new(algorithm, &key).expect("a legal key");
    Some(Box::new(Ring {
        key: aead::LessSafeKey::new(key),
        salt,
    }))
}

impl Ring {
    fn nonce(&self, packet: &[u8]) -> aead::Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&packet[AAD..AAD + 8]);
        aead::Nonce::assume_unique_for_key(nonce)
    }
}

impl Rival for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn seal(&mut self, packets: &mut [Vec<u8>], len: usize) {
        for packet in packets {
            let nonce = self.nonce(packet);
            let (header, text) = packet.split_at_mut(AAD + 8);
            let (text, icv) = text.split_at_mut(len);
            let aad = aead::Aad::from(&header[..AAD]);
            let tag = self
                .key
                .seal_in_place_separate_tag(nonce, aad, text)
                .expect("short");
            icv.copy_from_slice(tag.as_ref());
        }
    }

    fn open(&mut self, packets: &mut [Vec<u8>], _len: usize) -> bool {
        packets.iter_mut().all(|packet| {
            let nonce = self.nonce(packet);
            let (header, text) = packet.split_at_mut(AAD + 8);
            self.key
                .open_in_place(nonce, aead::Aad::from(&header[..AAD]), text)
                .is_ok()
        })
    }
}
