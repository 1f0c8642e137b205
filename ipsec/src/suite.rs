//! An encryption and an integrity algorithm with keys that fit them.

use crate::algorithm::{Encryption, Integrity};
use multibuffer::{Cipher, Integrity as Mac, Key};
use std::fmt;
use zeroize::Zeroizing;

mod named;

pub use named::{NAMED_SUITES, NamedSuite};

/// Key bytes: zeroed when dropped, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes over `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The key itself; the caller must not leave copies behind.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} secret bytes>", self.0.len())
    }
}

/// An encryption and an integrity algorithm with keys that fit them, proven by [`Suite::new`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suite {
    encryption: Option<(Encryption, Secret)>,
    integrity: Option<(Integrity, Secret)>,
    icv_len: usize,
    compression: Option<CompressionAlgorithm>,
}

/// How payloads are compressed (RFC 3173): without a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionAlgorithm {
    /// RFC 2394.
    Deflate,
}

impl CompressionAlgorithm {
    /// Its name in setkey and in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deflate => "deflate",
        }
    }
}

/// Why algorithms and keys do not make a suite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SuiteError {
    /// The encryption key has a length that the algorithm does not know.
    EncryptionKeyLength {
        /// The algorithm.
        algorithm: Encryption,
        /// Bytes given.
        given: usize,
    },
    /// The integrity key has not the one length of the algorithm.
    IntegrityKeyLength {
        /// The algorithm.
        algorithm: Integrity,
        /// Bytes given.
        given: usize,
    },
    /// An integrity algorithm was given with an AEAD algorithm, which needs none.
    AeadWithIntegrity(Encryption),
    /// AES-GMAC as an integrity algorithm was given with an encryption algorithm: it is for AH (RFC 4543 5.3).
    OnlyForAh(Integrity),
    /// Neither encryption nor integrity.
    Nothing,
    /// The algorithm does not have this ICV length.
    IcvLength(usize),
}

impl Suite {
    /// Joins algorithms and keys if they fit. `icv_len` overrides the ICV's length on the wire (older Linux peers
    /// truncate HMAC-SHA-256 to 12 bytes instead of RFC 4868's 16).
    pub fn new(
        encryption: Option<(Encryption, Secret)>,
        integrity: Option<(Integrity, Secret)>,
        icv_len: Option<usize>,
    ) -> Result<Self, SuiteError> {
        if let Some((algorithm, key)) = &encryption {
            let given = key.expose().len();
            if !algorithm.key_lens.contains(&given) {
                return Err(SuiteError::EncryptionKeyLength {
                    algorithm: *algorithm,
                    given,
                });
            }
            if algorithm.icv_len > 0 && integrity.is_some() {
                return Err(SuiteError::AeadWithIntegrity(*algorithm));
            }
        }
        if let Some((algorithm, key)) = &integrity {
            let given = key.expose().len();
            if algorithm.key_len != given {
                return Err(SuiteError::IntegrityKeyLength {
                    algorithm: *algorithm,
                    given,
                });
            }
            if algorithm.iv_len > 0 && encryption.is_some() {
                return Err(SuiteError::OnlyForAh(*algorithm));
            }
        }
        let icv_len = Self::fitting_icv_len(&encryption, &integrity, icv_len)?;
        Ok(Self {
            encryption,
            integrity,
            icv_len,
            compression: None,
        })
    }

    /// A compression algorithm alone, for IPComp.
    pub fn of_compression(compression: CompressionAlgorithm) -> Self {
        Self {
            encryption: None,
            integrity: None,
            icv_len: 0,
            compression: Some(compression),
        }
    }

    /// The compression algorithm; absent for ESP and AH.
    pub fn compression(&self) -> Option<CompressionAlgorithm> {
        self.compression
    }

    fn fitting_icv_len(
        encryption: &Option<(Encryption, Secret)>,
        integrity: &Option<(Integrity, Secret)>,
        wanted: Option<usize>,
    ) -> Result<usize, SuiteError> {
        match (encryption, integrity, wanted) {
            (None, None, _) => Err(SuiteError::Nothing),
            // RFC 4543 3.4: GMAC is never truncated.
            (_, Some((row, _)), Some(len)) if row.iv_len > 0 && len != row.icv_len => {
                Err(SuiteError::IcvLength(len))
            }
            (_, Some((row, _)), Some(len)) if (8..=row.output_len).contains(&len) => Ok(len),
            (Some((row, _)), None, Some(len)) if len == row.icv_len => Ok(len),
            (_, _, Some(len)) => Err(SuiteError::IcvLength(len)),
            (_, Some((row, _)), None) => Ok(row.icv_len),
            (Some((row, _)), None, None) => Ok(row.icv_len),
        }
    }

    /// The encryption algorithm and its key, salt included; absent for AH.
    pub fn encryption(&self) -> Option<(Encryption, &Secret)> {
        self.encryption
            .as_ref()
            .map(|(algorithm, key)| (*algorithm, key))
    }

    /// The integrity algorithm and its key; absent for AEAD algorithms and for encryption alone.
    pub fn integrity(&self) -> Option<(Integrity, &Secret)> {
        self.integrity
            .as_ref()
            .map(|(algorithm, key)| (*algorithm, key))
    }

    /// Bytes of ICV on the wire.
    pub fn icv_len(&self) -> usize {
        self.icv_len
    }

    /// Bytes of explicit IV on the wire.
    pub fn iv_len(&self) -> usize {
        match (&self.encryption, &self.integrity) {
            (Some((row, _)), _) => row.iv_len,
            (None, Some((row, _))) => row.iv_len,
            (None, None) => 0,
        }
    }

    /// What ESP pads to: the cipher's block, but at least 4 bytes (RFC 4303 2.4). INVARIANT: a power of two.
    pub fn align(&self) -> usize {
        self.encryption
            .as_ref()
            .map_or(4, |(row, _)| row.block_len.max(4))
    }

    /// Whether anything is authenticated at all.
    pub fn is_authenticated(&self) -> bool {
        self.icv_len > 0
    }

    /// The expanded key for the cipher kernels.
    pub fn expand(&self) -> Key {
        let (cipher, cipher_key) = match &self.encryption {
            Some((row, key)) => (row.cipher, key.expose()),
            None => (Cipher::Null, &[][..]),
        };
        let (mac, mac_key) = match &self.integrity {
            Some((row, key)) => (row.mac, key.expose()),
            None => (Mac::None, &[][..]),
        };
        // INVARIANT: `new` has checked every length against the table, and a test expands every row.
        Key::new(cipher, cipher_key, mac, mac_key, self.icv_len)
            .expect("the table's lengths fit the kernels")
    }

    /// One plain sentence for each weakness of the suite.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some((row, _)) = &self.encryption {
            warnings.extend(
                row.weakness
                    .map(|why| format!("{} is weak: {why}", row.name)),
            );
        }
        if let Some((row, _)) = &self.integrity {
            warnings.extend(
                row.weakness
                    .map(|why| format!("{} is weak: {why}", row.name)),
            );
        }
        if !self.is_authenticated() && self.compression.is_none() {
            warnings.push(
                "without an integrity algorithm the traffic can be modified on the path without being noticed; add `-A`"
                    .to_owned(),
            );
        }
        warnings
    }
}

impl fmt::Display for SuiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EncryptionKeyLength { algorithm, given } => {
                write!(
                    f,
                    "{} takes a key of {}, not {given}",
                    algorithm.name,
                    lengths(algorithm.key_lens)
                )?;
                write_salt(f, algorithm.salt_len)
            }
            Self::IntegrityKeyLength { algorithm, given } => {
                write!(
                    f,
                    "{} takes a key of {}, not {given}",
                    algorithm.name,
                    lengths(&[algorithm.key_len])
                )?;
                write_salt(f, algorithm.salt_len)
            }
            Self::AeadWithIntegrity(row) => {
                write!(
                    f,
                    "{} authenticates by itself; leave out the integrity algorithm",
                    row.name
                )
            }
            Self::OnlyForAh(row) => {
                write!(
                    f,
                    "{} is for AH and goes with no encryption algorithm",
                    row.name
                )
            }
            Self::Nothing => {
                f.write_str("neither an encryption nor an integrity algorithm is given")
            }
            Self::IcvLength(len) => {
                write!(f, "an ICV of {len} bytes does not exist for this algorithm")
            }
        }
    }
}

impl std::error::Error for SuiteError {}

fn write_salt(f: &mut fmt::Formatter<'_>, len: usize) -> fmt::Result {
    match len {
        0 => Ok(()),
        len => write!(f, " (the last {len} are the salt)"),
    }
}

/// "16, 24 or 32 bytes"; long runs as "5 to 56 bytes".
fn lengths(lens: &[usize]) -> String {
    match lens {
        [] => "no bytes".to_owned(),
        [one] => format!("{one} bytes"),
        [first, .., last] if last - first + 1 == lens.len() && lens.len() > 3 => {
            format!("{first} to {last} bytes")
        }
        [firsts @ .., last] => {
            let firsts: Vec<_> = firsts.iter().map(usize::to_string).collect();
            format!("{} or {last} bytes", firsts.join(", "))
        }
    }
}
