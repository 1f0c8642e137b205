//! What OpenSSL sealed with every cipher, and whole ESP packets of the RFCs: answers in JSON.

use multibuffer::Cipher;
use serde::Deserialize;

use super::Answer;
use crate::harness::{hex, vector_file};

#[derive(Deserialize)]
struct OpensslCase {
    cipher: String,
    key: String,
    iv: String,
    aad: String,
    plain: String,
    sealed: String,
    icv_len: u8,
}

#[test]
fn answers_of_openssl() {
    let cases: Vec<OpensslCase> =
        serde_json::from_slice(&vector_file("openssl.json")).expect("JSON");
    assert_eq!(cases.len(), 276);
    for case in cases {
        let cipher = match &*case.cipher {
            "aes-cbc" => Cipher::AesCbc,
            "aes-ctr" => Cipher::AesCtr,
            "camellia-cbc" => Cipher::CamelliaCbc,
            "des-cbc" => Cipher::DesCbc,
            "3des-cbc" => Cipher::TripleDesCbc,
            "blowfish-cbc" => Cipher::BlowfishCbc,
            "cast128-cbc" => Cipher::Cast128Cbc,
            "aes-ccm" => Cipher::AesCcm {
                icv_len: case.icv_len,
            },
            "aes-gcm" => Cipher::AesGcm {
                icv_len: case.icv_len,
            },
            other => panic!("{other}"),
        };
        let name = format!(
            "{cipher:?}, key {}, {} bytes",
            case.key.len() / 2,
            case.plain.len() / 2
        );
        let [key, iv, aad, plain, sealed] =
            [case.key, case.iv, case.aad, case.plain, case.sealed].map(|text| hex(&text));
        Answer {
            name,
            cipher,
            key,
            iv,
            aad,
            plain,
            sealed,
            icv_len: case.icv_len.into(),
        }
        .judge();
    }
}

#[derive(Deserialize)]
struct Packets {
    vectors: Vec<WholePacket>,
}

#[derive(Deserialize)]
struct WholePacket {
    id: String,
    enc: String,
    enc_key: String,
    #[serde(default)]
    salt: String,
    #[serde(default)]
    aad: String,
    #[serde(default)]
    plaintext_with_trailer: String,
    #[serde(default)]
    payload: String,
    pad_len: Option<usize>,
    next_header: u8,
    esp: String,
}

impl WholePacket {
    /// Payload, padding 1, 2, 3 … and the trailer, where the vector does not give them whole.
    fn plain(&self) -> Vec<u8> {
        if !self.plaintext_with_trailer.is_empty() {
            return hex(&self.plaintext_with_trailer);
        }
        let pad_len = self.pad_len.expect("given with the payload");
        let mut plain = hex(&self.payload);
        plain.extend(1..=pad_len as u8);
        plain.extend([pad_len as u8, self.next_header]);
        plain
    }
}

#[test]
fn whole_esp_packets_of_the_rfcs() {
    let file: Packets = serde_json::from_slice(&vector_file("rfc-esp-packets.json")).expect("JSON");
    assert_eq!(file.vectors.len(), 19);
    for vector in file.vectors {
        let (cipher, iv_len, icv_len) = match &*vector.enc {
            "aes-cbc" => (Cipher::AesCbc, 16, 0),
            "aes-gcm-16" => (Cipher::AesGcm { icv_len: 16 }, 8, 16),
            "chacha20-poly1305" => (Cipher::ChaCha20Poly1305, 8, 16),
            other => panic!("{other}"),
        };
        let esp = hex(&vector.esp);
        let (iv, sealed) = (esp[8..8 + iv_len].to_vec(), esp[8 + iv_len..].to_vec());
        let (plain, name) = (vector.plain(), vector.id.clone());
        let (key, aad) = (hex(&(vector.enc_key + &vector.salt)), hex(&vector.aad));
        Answer {
            name,
            cipher,
            key,
            iv,
            aad,
            plain,
            sealed,
            icv_len,
        }
        .judge();
    }
}
