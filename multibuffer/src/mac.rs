//! The integrity algorithms behind one type.

#[cfg(target_arch = "x86_64")]
mod in_lanes;

use crate::{
    Integrity,
    hmac::HmacKey,
    kernels::aws_lc::{Md5, Ripemd160, Sha1, Sha256, Sha384, Sha512},
    xcbc::CbcMacKey,
};

/// The longest HMAC key that is accepted; a longer one is more likely a mistake than a secret.
const MAX_HMAC_KEY_BYTES: usize = 1024;

/// An expanded key of an integrity algorithm.
pub(crate) enum MacKey {
    None,
    HmacMd5(HmacKey<Md5>),
    HmacSha1(HmacKey<Sha1>),
    HmacRipemd160(HmacKey<Ripemd160>),
    HmacSha256(HmacKey<Sha256>),
    HmacSha384(HmacKey<Sha384>),
    HmacSha512(HmacKey<Sha512>),
    CbcMac(Box<CbcMacKey>),
}

impl MacKey {
    /// Expands `key`; `None` if the algorithm takes none of this length.
    pub(crate) fn new(integrity: Integrity, key: &[u8]) -> Option<Self> {
        match integrity {
            Integrity::None => key.is_empty().then_some(Self::None),
            Integrity::AesXcbc => CbcMacKey::xcbc(key).map(|key| Self::CbcMac(Box::new(key))),
            // It needs an IV: a transform of its own.
            Integrity::AesGmac => None,
            Integrity::AesCmac => CbcMacKey::cmac(key).map(|key| Self::CbcMac(Box::new(key))),
            _ if key.is_empty() || key.len() > MAX_HMAC_KEY_BYTES => None,
            Integrity::HmacMd5 => Some(Self::HmacMd5(HmacKey::new(key))),
            Integrity::HmacSha1 => Some(Self::HmacSha1(HmacKey::new(key))),
            Integrity::HmacRipemd160 => Some(Self::HmacRipemd160(HmacKey::new(key))),
            Integrity::HmacSha256 => Some(Self::HmacSha256(HmacKey::new(key))),
            Integrity::HmacSha384 => Some(Self::HmacSha384(HmacKey::new(key))),
            Integrity::HmacSha512 => Some(Self::HmacSha512(HmacKey::new(key))),
        }
    }

    /// Writes the MAC over `message` in order, truncated to the length of `icv`.
    pub(crate) fn sign(&self, message: &[&[u8]], icv: &mut [u8]) {
        match self {
            Self::None => {}
            Self::HmacMd5(key) => truncate(&key.sign(message), icv),
            Self::HmacSha1(key) => truncate(&key.sign(message), icv),
            Self::HmacRipemd160(key) => truncate(&key.sign(message), icv),
            Self::HmacSha256(key) => truncate(&key.sign(message), icv),
            Self::HmacSha384(key) => truncate(&key.sign(message), icv),
            Self::HmacSha512(key) => truncate(&key.sign(message), icv),
            Self::CbcMac(key) => truncate(&key.sign(message), icv),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl MacKey {
    /// Signs every job, one after the other.
    pub(crate) fn sign_all<'a>(&self, jobs: impl Iterator<Item = MacJob<'a>>) {
        jobs.for_each(MacJob::alone);
    }
}

/// A message to sign.
pub(crate) struct MacJob<'a> {
    pub(crate) key: &'a MacKey,
    /// The parts of the message in order.
    pub(crate) message: [&'a [u8]; 4],
    /// Receives the MAC, truncated to its length.
    pub(crate) icv: &'a mut [u8],
}

impl<'a> MacJob<'a> {
    /// Signs it by the library.
    pub(crate) fn alone(self) {
        self.key.sign(&self.message, self.icv);
    }
}

fn truncate(mac: &[u8], icv: &mut [u8]) {
    icv.copy_from_slice(&mac[..icv.len()]);
}
