//! Keys and identities where they cross the border of a process: the octets of the algorithms' numbers and keys.
//!
//! For `#[serde(with = …)]`. What was read is a [`Secret`] again, which is zeroed when dropped; the buffer of the
//! transport is for the transport to zero.

use crate::identity::Identity;
use ipsec::suite::Secret;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// The octets of a secret.
pub(crate) struct SecretOctets(pub(crate) Secret);

impl Serialize for SecretOctets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.expose())
    }
}

impl<'de> Deserialize<'de> for SecretOctets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(SecretVisitor).map(Self)
    }
}

/// No key of any algorithm is longer.
const MAX_SECRET_BYTES: usize = 1 << 16;

struct SecretVisitor;

impl<'de> de::Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the octets of a secret")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Secret, E> {
        Ok(Secret::new(bytes.to_vec()))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Secret, E> {
        Ok(Secret::new(bytes))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut octets: A) -> Result<Secret, A::Error> {
        // Room for all of it before the first octet, so that growing leaves no copy behind.
        let expected = octets.size_hint().unwrap_or(4096).min(MAX_SECRET_BYTES);
        let mut bytes = Vec::with_capacity(expected);
        while let Some(octet) = octets.next_element()? {
            if bytes.len() == bytes.capacity() {
                let mut larger = Vec::with_capacity(2 * bytes.len().max(32));
                larger.extend_from_slice(&bytes);
                drop(zeroize::Zeroizing::new(std::mem::replace(
                    &mut bytes, larger,
                )));
            }
            bytes.push(octet);
        }
        Ok(Secret::new(bytes))
    }
}

pub(crate) mod secret {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(secret.expose())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        from.deserialize_bytes(SecretVisitor)
    }
}

/// A suite with its keys: the transform IDs of IKEv2, and the octets.
pub(crate) mod suite {
    use super::*;
    use ipsec::{
        algorithm::{Encryption, Integrity},
        suite::Suite,
    };

    type Part = Option<(u16, SecretOctets)>;

    pub(crate) fn serialize<S: Serializer>(suite: &Suite, to: S) -> Result<S::Ok, S::Error> {
        let unnumbered = || serde::ser::Error::custom("an algorithm that IKEv2 has no number for");
        let encryption = suite.encryption().map(|(row, key)| (row.ike, key));
        let integrity = suite.integrity().map(|(row, key)| (row.ike, key));
        let part = |part: Option<(Option<u16>, &Secret)>| match part {
            None => Ok(None),
            Some((None, _)) => Err(unnumbered()),
            Some((Some(id), key)) => Ok(Some((id, SecretOctets(key.clone())))),
        };
        (part(encryption)?, part(integrity)?).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Suite, D::Error> {
        let unknown = || de::Error::custom("the number of an algorithm that is not known");
        let (encryption, integrity) = <(Part, Part)>::deserialize(from)?;
        let encryption = encryption.map(|(id, key)| {
            let row = Encryption::all().find(|row| row.ike == Some(id));
            row.map(|row| (row, key.0)).ok_or_else(unknown)
        });
        let integrity = integrity.map(|(id, key)| {
            let row = Integrity::all().find(|row| row.ike == Some(id));
            row.map(|row| (row, key.0)).ok_or_else(unknown)
        });
        let suite = Suite::new(encryption.transpose()?, integrity.transpose()?, None);
        suite.map_err(|error| de::Error::custom(error.to_string()))
    }
}

/// An identity is written as its ID payload.
impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_payload().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Identity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (kind, data) = <(u8, Vec<u8>)>::deserialize(from)?;
        Self::from_payload(kind, &data).map_err(|error| de::Error::custom(error.to_string()))
    }
}
