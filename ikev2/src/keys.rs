//! The key schedule: from a shared secret and two nonces to the keys of an IKE SA and of its child SAs.
//!
//! ```text
//!   g^ir, Ni, Nr ──► SKEYSEED ──► SK_d ┬ SK_ai SK_ar SK_ei SK_er ┬ SK_pi SK_pr       RFC 7296 2.14, 2.18
//!                                 │    └ they protect messages   └ they go into AUTH
//!                                 ├──► KEYMAT of each child SA                       RFC 7296 2.17
//!                                 └──► SKEYSEED of the IKE SA that replaces this one RFC 7296 2.18
//! ```

use ipsec::{
    algorithm::{Encryption, Integrity},
    suite::{Secret, Suite, SuiteError},
};
use multibuffer::{Prf, PrfKey};
use zeroize::Zeroizing;

use crate::prf::{key_len, prf_plus};

/// Bytes of each nonce that the key of SKEYSEED takes where the function is made of AES (RFC 7296 2.14).
const NONCE_BYTES_OF_AES_KEY: usize = 8;

/// What protects messages or packets, as it was negotiated: no keys yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection {
    /// The encryption algorithm with the length of its key, salt included; none for AH.
    pub encryption: Option<(Encryption, usize)>,
    /// The integrity algorithm; none beside an AEAD cipher.
    pub integrity: Option<Integrity>,
}

/// The nonces of the exchange that made the keys, without payload headers.
#[derive(Clone, Copy)]
pub struct Nonces<'a> {
    /// Ni: who began the exchange.
    pub initiator: &'a [u8],
    /// Nr.
    pub responder: &'a [u8],
}

/// The SPIs of an IKE SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct IkeSpis {
    /// SPIi.
    pub initiator: [u8; 8],
    /// SPIr.
    pub responder: [u8; 8],
}

/// SK_d, ready to derive more: all that is kept of an IKE SA's keys once its messages have theirs.
pub struct DerivationKey(PrfKey);

/// The keys of an IKE SA: zeroed when dropped, never printed.
pub struct IkeKeys {
    prf: Prf,
    /// SK_d.
    pub d: DerivationKey,
    /// SK_ei and SK_ai: what the initiator sends.
    pub initiator: Suite,
    /// SK_er and SK_ar: what the responder sends.
    pub responder: Suite,
    /// SK_pi.
    pub pi: Secret,
    /// SK_pr.
    pub pr: Secret,
}

/// The keys of a pair of child SAs: zeroed when dropped.
pub struct ChildKeys {
    /// For packets from the initiator of the exchange to its responder.
    pub initiator: Suite,
    /// For packets from its responder to its initiator.
    pub responder: Suite,
}

impl IkeKeys {
    /// Of the first exchange (RFC 7296 2.14): SKEYSEED = prf(Ni | Nr, g^ir).
    ///
    /// Fails where the suite fits no algorithm, which negotiation rules out.
    pub fn initial(
        prf: Prf,
        protection: Protection,
        shared: &[u8],
        nonces: Nonces<'_>,
        spis: IkeSpis,
    ) -> Result<Self, SuiteError> {
        let key = PrfKey::new(prf, &key_of_skeyseed(prf, nonces));
        Self::expand(prf, protection, &key.compute(&[shared]), nonces, spis)
    }

    /// The negotiated function.
    pub fn prf(&self) -> Prf {
        self.prf
    }

    /// RFC 7296 2.14: {SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr} = prf+(SKEYSEED, Ni | Nr | SPIi | SPIr).
    fn expand(
        prf: Prf,
        protection: Protection,
        skeyseed: &[u8],
        nonces: Nonces<'_>,
        spis: IkeSpis,
    ) -> Result<Self, SuiteError> {
        let seed: [&[u8]; 4] = [
            nonces.initiator,
            nonces.responder,
            &spis.initiator,
            &spis.responder,
        ];
        let len = 3 * key_len(prf) + 2 * protection.keys_len();
        let material = prf_plus(&PrfKey::new(prf, skeyseed), &seed, len);
        let mut material = Material(&material);
        let d = PrfKey::new(prf, material.take(key_len(prf)));
        // All integrity keys, then all encryption keys; with an AEAD cipher there are none of the first (RFC 5282 7.1),
        // and the salt is the end of the second.
        let (ai, ar) = (
            material.integrity_key(protection),
            material.integrity_key(protection),
        );
        let (ei, er) = (
            material.encryption_key(protection),
            material.encryption_key(protection),
        );
        Ok(Self {
            prf,
            d: DerivationKey(d),
            initiator: Suite::new(ei, ai, None)?,
            responder: Suite::new(er, ar, None)?,
            pi: Secret::new(material.take(key_len(prf)).to_vec()),
            pr: Secret::new(material.take(key_len(prf)).to_vec()),
        })
    }
}

impl DerivationKey {
    /// The keys of an IKE SA that replaces this one (RFC 7296 2.18): SKEYSEED = prf(SK_d (old), g^ir (new) | Ni | Nr),
    /// computed by the old SA's function; all else by the new one's.
    pub fn rekeyed(
        &self,
        prf: Prf,
        protection: Protection,
        shared: &[u8],
        nonces: Nonces<'_>,
        spis: IkeSpis,
    ) -> Result<IkeKeys, SuiteError> {
        let skeyseed = self
            .0
            .compute(&[shared, nonces.initiator, nonces.responder]);
        IkeKeys::expand(prf, protection, &skeyseed, nonces, spis)
    }

    /// The keys of a pair of child SAs (RFC 7296 2.17): KEYMAT = prf+(SK_d, [g^ir (new) |] Ni | Nr). `shared` is there
    /// where the exchange had a key exchange of its own.
    pub fn child(
        &self,
        protection: Protection,
        shared: Option<&[u8]>,
        nonces: Nonces<'_>,
    ) -> Result<ChildKeys, SuiteError> {
        let seed = [shared.unwrap_or(&[]), nonces.initiator, nonces.responder];
        let material = prf_plus(&self.0, &seed, 2 * protection.keys_len());
        let mut material = Material(&material);
        Ok(ChildKeys {
            initiator: material.suite(protection)?,
            responder: material.suite(protection)?,
        })
    }
}

impl Protection {
    /// Bytes of all keys for one direction.
    fn keys_len(self) -> usize {
        let encryption = self.encryption.map_or(0, |(_, len)| len);
        encryption + self.integrity.map_or(0, |row| row.key_len)
    }
}

/// RFC 7296 2.14: Ni | Nr, but only 64 bits of each where the function is AES-XCBC or AES-CMAC.
fn key_of_skeyseed(prf: Prf, nonces: Nonces<'_>) -> Zeroizing<Vec<u8>> {
    let taken = |nonce: &'_ [u8]| match prf {
        Prf::AesXcbc | Prf::AesCmac => nonce.len().min(NONCE_BYTES_OF_AES_KEY),
        _ => nonce.len(),
    };
    let (initiator, responder) = (nonces.initiator, nonces.responder);
    let parts = [
        &initiator[..taken(initiator)],
        &responder[..taken(responder)],
    ];
    Zeroizing::new(parts.concat())
}

/// Keying material that has not been given out yet.
struct Material<'a>(&'a [u8]);

impl<'a> Material<'a> {
    /// The next bytes.
    fn take(&mut self, len: usize) -> &'a [u8] {
        // INVARIANT: the caller has derived as many bytes as it takes.
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn encryption_key(&mut self, protection: Protection) -> Option<(Encryption, Secret)> {
        let (algorithm, len) = protection.encryption?;
        Some((algorithm, Secret::new(self.take(len).to_vec())))
    }

    fn integrity_key(&mut self, protection: Protection) -> Option<(Integrity, Secret)> {
        let algorithm = protection.integrity?;
        let key = self.take(algorithm.key_len).to_vec();
        Some((algorithm, Secret::new(key)))
    }

    /// The keys of one direction: RFC 7296 2.17, the encryption key comes before the integrity key.
    fn suite(&mut self, protection: Protection) -> Result<Suite, SuiteError> {
        let encryption = self.encryption_key(protection);
        Suite::new(encryption, self.integrity_key(protection), None)
    }
}

#[cfg(test)]
mod tests;
