//! The expected packets, computed by other implementations: the RustCrypto crates, combined in the simplest way.

use aes::cipher::{Array, BlockCipherEncrypt, BlockModeEncrypt, KeyInit, KeyIvInit, StreamCipher};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::AeadInOut;
use aes_gcm::aead::consts::{U8, U11, U12, U16};
use hmac::{Hmac, Mac};
use multibuffer::{Cipher, Integrity};

use crate::harness::{Packet, Suite};

/// Ciphertext and ICV of `packet`.
pub fn sealed(suite: &Suite, packet: &Packet) -> Vec<u8> {
    if suite.is_aead() {
        return aead(suite, packet);
    }
    let mut sealed = encrypted(
        suite.cipher,
        &suite.cipher_key,
        packet.iv.as_bytes(),
        &packet.plain,
    );
    let message = [&packet.aad, packet.iv.as_bytes(), &sealed, &packet.aad_tail].concat();
    sealed.extend(mac(
        suite.integrity,
        &suite.integrity_key,
        &message,
        suite.icv_len,
    ));
    sealed
}

fn encrypted(cipher: Cipher, key: &[u8], iv: &[u8], plain: &[u8]) -> Vec<u8> {
    match (cipher, key.len()) {
        (Cipher::Null, _) => plain.to_vec(),
        (Cipher::DesCbc, _) => cbc::<des::Des>(key, iv, plain),
        (Cipher::TripleDesCbc, _) => cbc::<des::TdesEde3>(key, iv, plain),
        (Cipher::AesCbc, 16) => cbc::<Aes128>(key, iv, plain),
        (Cipher::AesCbc, 24) => cbc::<Aes192>(key, iv, plain),
        (Cipher::AesCbc, 32) => cbc::<Aes256>(key, iv, plain),
        (Cipher::CamelliaCbc, 16) => cbc::<camellia::Camellia128>(key, iv, plain),
        (Cipher::CamelliaCbc, 24) => cbc::<camellia::Camellia192>(key, iv, plain),
        (Cipher::CamelliaCbc, 32) => cbc::<camellia::Camellia256>(key, iv, plain),
        (Cipher::BlowfishCbc, _) => cbc::<blowfish::Blowfish>(key, iv, plain),
        (Cipher::Cast128Cbc, _) => cbc::<cast5::Cast5>(key, iv, plain),
        (Cipher::AesCtr, 20) => ctr::<ctr::Ctr32BE<Aes128>>(key, iv, plain),
        (Cipher::AesCtr, 28) => ctr::<ctr::Ctr32BE<Aes192>>(key, iv, plain),
        (Cipher::AesCtr, 36) => ctr::<ctr::Ctr32BE<Aes256>>(key, iv, plain),
        other => panic!("no oracle for {other:?}"),
    }
}

fn cbc<C: BlockCipherEncrypt + KeyInit>(key: &[u8], iv: &[u8], plain: &[u8]) -> Vec<u8> {
    let cipher = C::new_from_slice(key).expect("a legal key");
    let mut encryptor = <cbc::Encryptor<C> as aes::cipher::InnerIvInit>::inner_iv_init(
        cipher,
        iv.try_into().expect("a block"),
    );
    let mut text = plain.to_vec();
    for block in text.chunks_exact_mut(iv.len()) {
        encryptor.encrypt_block(block.try_into().expect("a block"));
    }
    text
}

fn ctr<S: KeyIvInit + StreamCipher>(key: &[u8], iv: &[u8], plain: &[u8]) -> Vec<u8> {
    let (key, nonce) = key.split_at(key.len() - 4);
    let counter = [nonce, iv, &[0, 0, 0, 1]].concat();
    let mut text = plain.to_vec();
    S::new_from_slices(key, &counter)
        .expect("legal lengths")
        .apply_keystream(&mut text);
    text
}

fn aead(suite: &Suite, packet: &Packet) -> Vec<u8> {
    let key = suite.cipher_key.as_slice();
    match (suite.cipher, key.len()) {
        (Cipher::AesGcm { .. }, 20) => with::<aes_gcm::AesGcm<Aes128, U12>>(4, suite, packet),
        (Cipher::AesGcm { .. }, 28) => with::<aes_gcm::AesGcm<Aes192, U12>>(4, suite, packet),
        (Cipher::AesGcm { .. }, 36) => with::<aes_gcm::AesGcm<Aes256, U12>>(4, suite, packet),
        (Cipher::AesGmac, 20) => gmac::<Aes128>(suite, packet),
        (Cipher::AesGmac, 28) => gmac::<Aes192>(suite, packet),
        (Cipher::AesGmac, 36) => gmac::<Aes256>(suite, packet),
        (Cipher::ChaCha20Poly1305, 36) => {
            with::<chacha20poly1305::ChaCha20Poly1305>(4, suite, packet)
        }
        (Cipher::AesCcm { icv_len: 8 }, 19) => with::<ccm::Ccm<Aes128, U8, U11>>(3, suite, packet),
        (Cipher::AesCcm { icv_len: 8 }, 27) => with::<ccm::Ccm<Aes192, U8, U11>>(3, suite, packet),
        (Cipher::AesCcm { icv_len: 8 }, 35) => with::<ccm::Ccm<Aes256, U8, U11>>(3, suite, packet),
        (Cipher::AesCcm { icv_len: 12 }, 19) => {
            with::<ccm::Ccm<Aes128, U12, U11>>(3, suite, packet)
        }
        (Cipher::AesCcm { icv_len: 12 }, 27) => {
            with::<ccm::Ccm<Aes192, U12, U11>>(3, suite, packet)
        }
        (Cipher::AesCcm { icv_len: 12 }, 35) => {
            with::<ccm::Ccm<Aes256, U12, U11>>(3, suite, packet)
        }
        (Cipher::AesCcm { icv_len: 16 }, 19) => {
            with::<ccm::Ccm<Aes128, U16, U11>>(3, suite, packet)
        }
        (Cipher::AesCcm { icv_len: 16 }, 27) => {
            with::<ccm::Ccm<Aes192, U16, U11>>(3, suite, packet)
        }
        (Cipher::AesCcm { icv_len: 16 }, 35) => {
            with::<ccm::Ccm<Aes256, U16, U11>>(3, suite, packet)
        }
        other => panic!("no oracle for {other:?}"),
    }
}

fn with<A: AeadInOut + KeyInit>(salt_len: usize, suite: &Suite, packet: &Packet) -> Vec<u8> {
    seal_with::<A>(
        &suite.cipher_key,
        salt_len,
        packet,
        &packet.aad,
        packet.plain.clone(),
        suite.icv_len,
    )
}

/// RFC 4543 2: everything is associated data, and nothing is encrypted.
fn gmac<C>(suite: &Suite, packet: &Packet) -> Vec<u8>
where
    aes_gcm::AesGcm<C, U12>: AeadInOut + KeyInit,
{
    let aad = [&packet.aad, packet.iv.as_bytes(), &packet.plain].concat();
    let icv =
        seal_with::<aes_gcm::AesGcm<C, U12>>(&suite.cipher_key, 4, packet, &aad, Vec::new(), 16);
    [packet.plain.as_slice(), &icv].concat()
}

fn seal_with<A: AeadInOut + KeyInit>(
    key: &[u8],
    salt_len: usize,
    packet: &Packet,
    aad: &[u8],
    mut text: Vec<u8>,
    icv_len: usize,
) -> Vec<u8> {
    let (key, salt) = key.split_at(key.len() - salt_len);
    let nonce = [salt, packet.iv.as_bytes()].concat();
    let cipher = A::new_from_slice(key).expect("a legal key");
    let nonce = nonce.as_slice().try_into().expect("a legal nonce");
    // A shorter GCM tag is a prefix of the long one (SP 800-38D 7.1 step 6); CCM's type has its own length.
    let tag = cipher
        .encrypt_inout_detached(nonce, aad, text.as_mut_slice().into())
        .expect("a short text");
    text.extend(&tag[..icv_len]);
    text
}

/// The truncated MAC over `message`.
pub fn mac(integrity: Integrity, key: &[u8], message: &[u8], icv_len: usize) -> Vec<u8> {
    let full = match (integrity, key.len()) {
        (Integrity::None, _) => Vec::new(),
        (Integrity::HmacMd5, _) => digest::<Hmac<md5::Md5>>(key, message),
        (Integrity::HmacSha1, _) => digest::<Hmac<sha1::Sha1>>(key, message),
        (Integrity::HmacRipemd160, _) => digest::<Hmac<ripemd::Ripemd160>>(key, message),
        (Integrity::HmacSha256, _) => digest::<Hmac<sha2::Sha256>>(key, message),
        (Integrity::HmacSha384, _) => digest::<Hmac<sha2::Sha384>>(key, message),
        (Integrity::HmacSha512, _) => digest::<Hmac<sha2::Sha512>>(key, message),
        (Integrity::AesXcbc, _) => xcbc(key, message),
        (Integrity::AesGmac, _) => unreachable!("it needs an IV: see the cipher"),
        (Integrity::AesCmac, 16) => digest::<cmac::Cmac<Aes128>>(key, message),
        (Integrity::AesCmac, 24) => digest::<cmac::Cmac<Aes192>>(key, message),
        (Integrity::AesCmac, _) => digest::<cmac::Cmac<Aes256>>(key, message),
    };
    full[..icv_len].to_vec()
}

fn digest<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("a legal key");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// RFC 3566 4, written down step by step: no crate has it.
fn xcbc(key: &[u8], message: &[u8]) -> Vec<u8> {
    let encrypt = |key: &[u8], block: [u8; 16]| {
        let mut block = Array::from(block);
        Aes128::new_from_slice(key)
            .expect("16 bytes")
            .encrypt_block(&mut block);
        <[u8; 16]>::from(block)
    };
    let [k1, k2, k3] = [1, 2, 3].map(|constant| encrypt(key, [constant; 16]));
    let mut blocks: Vec<Vec<u8>> = message.chunks(16).map(<[u8]>::to_vec).collect();
    let mut last = blocks.pop().unwrap_or_default();
    let mask = if last.len() == 16 { k2 } else { k3 };
    if last.len() < 16 {
        last.push(0x80);
        last.resize(16, 0);
    }
    let masked = last
        .iter()
        .zip(mask)
        .map(|(byte, mask)| byte ^ mask)
        .collect();
    let chained = blocks
        .into_iter()
        .chain([masked])
        .fold([0; 16], |chain, block| {
            let mixed: Vec<u8> = block
                .iter()
                .zip(chain)
                .map(|(byte, chain)| byte ^ chain)
                .collect();
            encrypt(&k1, mixed.try_into().expect("a block"))
        });
    chained.to_vec()
}
