//! Ciphers that only encrypt: block ciphers in CBC mode, and AES in counter mode.

use blowfish::Blowfish;
use camellia::{Camellia128, Camellia192, Camellia256};
use cast5::Cast5;
use cast5::cipher::KeyInit;

use crate::{
    Iv,
    detect::features,
    kernels::{
        at_least::at_least,
        aws_lc::AesKey,
        bitslice::{self, DesKeys},
        lanes::{self, LaneKeys},
        nonce::Nonce,
        scalar,
    },
};

/// AES in CBC mode (RFC 3602): a schedule for each direction.
pub(crate) struct AesCbc {
    encrypting: AesKey,
    decrypting: AesKey,
    /// For encrypting many packets at once and decrypting wide, where the processor can.
    lanes: Option<LaneSchedules>,
}

/// Round keys for this crate's kernels.
struct LaneSchedules {
    encrypting: LaneKeys,
    decrypting: LaneKeys,
}

/// AES in counter mode (RFC 3686).
pub(crate) struct AesCtr {
    aes: AesKey,
    /// For this crate's kernel, where the processor can.
    wide: Option<LaneKeys>,
    nonce: [u8; 4],
}

/// Camellia with each of its key lengths.
pub(crate) enum Camellia {
    Bits128(Camellia128),
    Bits192(Camellia192),
    Bits256(Camellia256),
}

/// An expanded key of a cipher that gives no integrity.
pub(crate) enum CipherKey {
    Null,
    /// DES or Triple DES.
    Des(Box<DesKeys>),
    AesCbc(Box<AesCbc>),
    AesCtr(Box<AesCtr>),
    Camellia(Camellia),
    Blowfish(Box<Blowfish>),
    Cast128(Cast5),
}

/// The fewest texts for which lanes are faster than the library for AES-CBC.
const MIN_AES_CBC_LANE_JOBS: usize = 3;

/// A text to encrypt or decrypt in place.
pub(crate) struct Text<'a> {
    pub(crate) key: &'a CipherKey,
    pub(crate) iv: Iv,
    pub(crate) text: &'a mut [u8],
}

impl<'a> Text<'a> {
    pub(crate) fn encrypt_alone(self) {
        self.key.encrypt(self.iv.as_bytes(), self.text);
    }

    pub(crate) fn decrypt_alone(self) {
        self.key.decrypt(self.iv.as_bytes(), self.text);
    }

    fn into_lane(self) -> lanes::CbcJob<'a> {
        let CipherKey::AesCbc(key) = self.key else {
            unreachable!("all texts have one cipher")
        };
        let keys = key
            .lanes
            .as_ref()
            .expect("all keys were expanded on this processor");
        lanes::CbcJob {
            keys: &keys.encrypting,
            iv: *block(self.iv.as_bytes()),
            text: self.text,
        }
    }

    fn into_des(self) -> bitslice::DesCbcJob<'a> {
        let CipherKey::Des(keys) = self.key else {
            unreachable!("all texts have one cipher")
        };
        bitslice::DesCbcJob {
            keys,
            iv: *block(self.iv.as_bytes()),
            text: self.text,
        }
    }
}

impl CipherKey {
    pub(crate) fn null(key: &[u8]) -> Option<Self> {
        key.is_empty().then_some(Self::Null)
    }

    pub(crate) fn des(key: &[u8]) -> Option<Self> {
        Some(Self::Des(Box::new(DesKeys::single(key.try_into().ok()?))))
    }

    pub(crate) fn triple_des(key: &[u8]) -> Option<Self> {
        Some(Self::Des(Box::new(DesKeys::triple(key.try_into().ok()?))))
    }

    pub(crate) fn aes_cbc(key: &[u8]) -> Option<Self> {
        let (encrypting, decrypting) = (AesKey::encrypting(key)?, AesKey::decrypting(key)?);
        let lanes = lanes::aes_keys(key).map(|encrypting| LaneSchedules {
            decrypting: lanes::inverse(&encrypting),
            encrypting,
        });
        Some(Self::AesCbc(Box::new(AesCbc {
            encrypting,
            decrypting,
            lanes,
        })))
    }

    pub(crate) fn aes_ctr(key: &[u8]) -> Option<Self> {
        let (key, nonce) = key.split_last_chunk()?;
        Some(Self::AesCtr(Box::new(AesCtr {
            aes: AesKey::encrypting(key)?,
            wide: lanes::aes_keys(key),
            nonce: *nonce,
        })))
    }

    pub(crate) fn camellia(key: &[u8]) -> Option<Self> {
        let key = match key.len() {
            16 => Camellia::Bits128(Camellia128::new_from_slice(key).ok()?),
            24 => Camellia::Bits192(Camellia192::new_from_slice(key).ok()?),
            _ => Camellia::Bits256(Camellia256::new_from_slice(key).ok()?),
        };
        Some(Self::Camellia(key))
    }

    /// RFC 2451 2.2: 40 to 448 bits.
    pub(crate) fn blowfish(key: &[u8]) -> Option<Self> {
        let key = Some(key).filter(|key| (5..=56).contains(&key.len()))?;
        Some(Self::Blowfish(Box::new(
            Blowfish::new_from_slice(key).ok()?,
        )))
    }

    /// RFC 2144 2.5: 40 to 128 bits; up to 80 bits run twelve rounds instead of sixteen.
    pub(crate) fn cast128(key: &[u8]) -> Option<Self> {
        let key = Some(key).filter(|key| (5..=16).contains(&key.len()))?;
        Some(Self::Cast128(Cast5::new_from_slice(key).ok()?))
    }

    /// Disables this crate's kernels for single texts, so that the library computes.
    pub(crate) fn use_library_only(&mut self) {
        match self {
            Self::AesCbc(key) => key.lanes = None,
            Self::AesCtr(key) => key.wide = None,
            _ => {}
        }
    }

    /// Encrypts `text`, whole blocks, in place. The IV has the cipher's length.
    pub(crate) fn encrypt(&self, iv: &[u8], text: &mut [u8]) {
        match self {
            Self::Null => {}
            Self::Des(key) => key.cbc_encrypt(block(iv), text),
            Self::AesCbc(key) => key.encrypting.cbc(block(iv), text),
            Self::AesCtr(key) => key.apply(block(iv), text),
            Self::Camellia(Camellia::Bits128(key)) => scalar::cbc_encrypt(key, iv, text),
            Self::Camellia(Camellia::Bits192(key)) => scalar::cbc_encrypt(key, iv, text),
            Self::Camellia(Camellia::Bits256(key)) => scalar::cbc_encrypt(key, iv, text),
            Self::Blowfish(key) => scalar::cbc_encrypt(&**key, iv, text),
            Self::Cast128(key) => scalar::cbc_encrypt(key, iv, text),
        }
    }

    /// Whether it is faster to encrypt a text directly from its ranges, without copying it first.
    pub(crate) fn reads_ranges(&self) -> bool {
        matches!(self, Self::AesCtr(key) if key.wide.is_some() && lanes::ctr_reads_ranges())
    }

    /// Encrypts `input` into `text`, which is as long; only where [`CipherKey::reads_ranges`]. The IV has the cipher's
    /// length.
    pub(crate) fn encrypt_ranges(&self, iv: &[u8], input: [&[u8]; 3], text: &mut [u8]) {
        match self {
            Self::AesCtr(key) if let Some(keys) = &key.wide => {
                lanes::ctr_into(keys, key.nonce(block(iv)), FIRST_COUNTER, input, text);
            }
            _ => unreachable!("all texts have one cipher"),
        }
    }

    /// Encrypts many texts; every key is of the same cipher and length as this one.
    pub(crate) fn encrypt_all<'a>(&self, texts: impl Iterator<Item = Text<'a>>) {
        match self {
            Self::AesCbc(key) if let Some(keys) = &key.lanes => {
                match at_least(MIN_AES_CBC_LANE_JOBS, texts) {
                    Ok(texts) => {
                        lanes::cbc_encrypt(keys.encrypting.rounds(), texts.map(Text::into_lane))
                    }
                    Err(few) => few.for_each(Text::encrypt_alone),
                }
            }
            Self::Des(keys) if features().bitslice => {
                match at_least(bitslice::MIN_LANE_BLOCKS, texts) {
                    Ok(texts) => {
                        lanes::des_cbc_encrypt(keys.is_triple(), texts.map(Text::into_des))
                    }
                    Err(few) => few.for_each(Text::encrypt_alone),
                }
            }
            _ => texts.for_each(Text::encrypt_alone),
        }
    }

    /// Decrypts many texts; every key is of the same cipher and length as this one.
    pub(crate) fn decrypt_all<'a>(&self, texts: impl Iterator<Item = Text<'a>>) {
        match self {
            Self::Des(keys) if features().bitslice => {
                lanes::des_cbc_decrypt(keys.is_triple(), texts.map(Text::into_des));
            }
            _ => texts.for_each(Text::decrypt_alone),
        }
    }

    /// Whether as many texts as possible should go together: a pass of bitsliced DES takes as long for one as for
    /// hundreds.
    pub(crate) fn prefers_many(&self) -> bool {
        matches!(self, Self::Des(_)) && features().bitslice
    }

    /// Decrypts `text`, whole blocks, in place. The IV has the cipher's length.
    pub(crate) fn decrypt(&self, iv: &[u8], text: &mut [u8]) {
        match self {
            Self::Null => {}
            Self::Des(key) => key.cbc_decrypt(block(iv), text),
            Self::AesCbc(key) => match &key.lanes {
                Some(keys) => lanes::cbc_decrypt(&keys.decrypting, block(iv), text),
                None => key.decrypting.cbc(block(iv), text),
            },
            Self::AesCtr(key) => key.apply(block(iv), text),
            Self::Camellia(Camellia::Bits128(key)) => scalar::cbc_decrypt(key, iv, text),
            Self::Camellia(Camellia::Bits192(key)) => scalar::cbc_decrypt(key, iv, text),
            Self::Camellia(Camellia::Bits256(key)) => scalar::cbc_decrypt(key, iv, text),
            Self::Blowfish(key) => scalar::cbc_decrypt(&**key, iv, text),
            Self::Cast128(key) => scalar::cbc_decrypt(key, iv, text),
        }
    }
}

impl AesCtr {
    fn apply(&self, iv: &[u8; 8], text: &mut [u8]) {
        let nonce = self.nonce(iv);
        if let Some(keys) = &self.wide {
            return lanes::ctr(keys, nonce, FIRST_COUNTER, text);
        }
        let mut counter = [0; 16];
        counter[..12].copy_from_slice(&nonce.to_bytes());
        counter[12..].copy_from_slice(&FIRST_COUNTER.to_be_bytes());
        self.aes.ctr(&counter, text);
    }

    /// RFC 3686 4: the counter block is nonce, IV and a 32-bit number.
    fn nonce(&self, iv: &[u8; 8]) -> Nonce {
        Nonce::new(self.nonce, *iv)
    }
}

/// RFC 3686 4: what the blocks of a packet are counted from.
const FIRST_COUNTER: u32 = 1;

fn block<const N: usize>(iv: &[u8]) -> &[u8; N] {
    iv.try_into()
        .expect("the IV's length was checked against the key's")
}
