//! The RustCrypto crates: the AEADs, and the block ciphers that are our own fallback.

use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit};
use aes_gcm::aead::{
    AeadInOut,
    consts::{U11, U12, U16},
};
use multibuffer::{Cipher, Integrity};

use crate::{AAD, Rival, suites::Suite};

struct Aead<A> {
    cipher: A,
    salt: Vec<u8>,
}

fn aead<A: AeadInOut + KeyInit + 'static>(suite: &Suite) -> Option<Box<dyn Rival>> {
    let (key, salt) = suite.split_key();
    let cipher = A::new_from_slice(&key).expect("a legal key");
    Some(Box::new(Aead { cipher, salt }))
}

pub fn rival(suite: &Suite) -> Option<Box<dyn Rival>> {
    use aes::{Aes128, Aes192, Aes256};
    match (suite.cipher, suite.key_len) {
        _ if suite.integrity != Integrity::None => None,
        (Cipher::AesGcm { .. }, 20) => aead::<aes_gcm::AesGcm<Aes128, U12>>(suite),
        (Cipher::AesGcm { .. }, 28) => aead::<aes_gcm::AesGcm<Aes192, U12>>(suite),
        (Cipher::AesGcm { .. }, 36) => aead::<aes_gcm::AesGcm<Aes256, U12>>(suite),
        (Cipher::AesCcm { .. }, 19) => aead::<ccm::Ccm<Aes128, U16, U11>>(suite),
        (Cipher::AesCcm { .. }, 35) => aead::<ccm::Ccm<Aes256, U16, U11>>(suite),
        (Cipher::ChaCha20Poly1305, _) => aead::<chacha20poly1305::ChaCha20Poly1305>(suite),
        (Cipher::AesCbc, 16) => chained::<Aes128>(suite),
        (Cipher::AesCbc, 32) => chained::<Aes256>(suite),
        (Cipher::DesCbc, _) => chained::<des::Des>(suite),
        (Cipher::TripleDesCbc, _) => chained::<des::TdesEde3>(suite),
        (Cipher::CamelliaCbc, 16) => chained::<camellia::Camellia128>(suite),
        (Cipher::BlowfishCbc, _) => chained::<blowfish::Blowfish>(suite),
        (Cipher::Cast128Cbc, _) => chained::<cast5::Cast5>(suite),
        _ => None,
    }
}

impl<A: AeadInOut> Rival for Aead<A> {
    fn name(&self) -> &'static str {
        "rustcrypto"
    }

    fn seal(&mut self, packets: &mut [Vec<u8>], len: usize) {
        for packet in packets {
            let (header, text) = packet.split_at_mut(AAD + 8);
            let nonce = [&self.salt, &header[AAD..]].concat();
            let (text, icv) = text.split_at_mut(len);
            let nonce = nonce.as_slice().try_into().expect("a legal nonce");
            let tag = self
                .cipher
                .encrypt_inout_detached(nonce, &header[..AAD], text.into())
                .expect("short");
            icv.copy_from_slice(&tag);
        }
    }

    fn open(&mut self, packets: &mut [Vec<u8>], len: usize) -> bool {
        packets.iter_mut().all(|packet| {
            let (header, text) = packet.split_at_mut(AAD + 8);
            let nonce = [&self.salt, &header[AAD..]].concat();
            let (text, icv) = text.split_at_mut(len);
            let nonce = nonce.as_slice().try_into().expect("a legal nonce");
            let tag = (&*icv).try_into().expect("a tag");
            self.cipher
                .decrypt_inout_detached(nonce, &header[..AAD], text.into(), tag)
                .is_ok()
        })
    }
}

struct Chained<C>(C);

fn chained<C>(suite: &Suite) -> Option<Box<dyn Rival>>
where
    C: KeyInit
        + Clone
        + aes::cipher::BlockCipherEncrypt
        + aes::cipher::BlockCipherDecrypt
        + 'static,
{
    let cipher = C::new_from_slice(&suite.key()).expect("a legal key");
    Some(Box::new(Chained(cipher)))
}

impl<C> Rival for Chained<C>
where
    C: Clone + aes::cipher::BlockCipherEncrypt + aes::cipher::BlockCipherDecrypt,
{
    fn name(&self) -> &'static str {
        "rustcrypto"
    }

    fn seal(&mut self, packets: &mut [Vec<u8>], len: usize) {
        let iv_len = C::block_size();
        for packet in packets {
            let (header, text) = packet.split_at_mut(AAD + iv_len);
            let iv = (&header[AAD..]).try_into().expect("a block");
            let mut mode = cbc::Encryptor::<C>::inner_iv_init(self.0.clone(), iv);
            for block in text[..len].chunks_exact_mut(iv_len) {
                mode.encrypt_block(block.try_into().expect("a block"));
            }
        }
    }

    fn open(&mut self, packets: &mut [Vec<u8>], len: usize) -> bool {
        let iv_len = C::block_size();
        for packet in packets {
            let (header, text) = packet.split_at_mut(AAD + iv_len);
            let iv = (&header[AAD..]).try_into().expect("a block");
            let mode = cbc::Decryptor::<C>::inner_iv_init(self.0.clone(), iv);
            let text: &mut [u8] = &mut text[..len];
            mode.decrypt_padded::<aes::cipher::block_padding::NoPadding>(text)
                .expect("whole blocks");
        }
        true
    }
}
