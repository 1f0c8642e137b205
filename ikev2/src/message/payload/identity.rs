//! IDi and IDr (RFC 7296 3.5).

use super::super::{Malformed, number::numbers, reader::Reader};

numbers! {
    /// What kind of name an identity is.
    IdentificationType(u8) {
        IPV4_ADDRESS = 1, "ID_IPV4_ADDR";
        FQDN = 2, "ID_FQDN";
        RFC822_ADDRESS = 3, "ID_RFC822_ADDR";
        IPV6_ADDRESS = 5, "ID_IPV6_ADDR";
        DER_ASN1_DN = 9, "ID_DER_ASN1_DN";
        DER_ASN1_GN = 10, "ID_DER_ASN1_GN";
        KEY_ID = 11, "ID_KEY_ID";
        NULL = 13, "ID_NULL";
    }
}

/// An identity as it travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identification<'a> {
    /// The kind.
    pub kind: IdentificationType,
    /// The bytes between kind and data: zero, but kept as received, because the sender's AUTH covers them (RFC 7296
    /// 2.15).
    pub reserved: [u8; 3],
    /// The name. INVARIANT: 4 bytes of an IPv4 address, 16 of an IPv6 address.
    pub data: &'a [u8],
}

impl<'a> Identification<'a> {
    pub(super) fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let [kind, reserved @ ..] =
            reader.array::<4>("a type of identity and three reserved bytes")?;
        let (kind, data) = (IdentificationType(kind), reader.rest());
        match (kind, data.len()) {
            (IdentificationType::IPV4_ADDRESS, len) if len != 4 => {
                Err(reader.malformed("4 bytes of an IPv4 address"))
            }
            (IdentificationType::IPV6_ADDRESS, len) if len != 16 => {
                Err(reader.malformed("16 bytes of an IPv6 address"))
            }
            _ => Ok(Self {
                kind,
                reserved,
                data,
            }),
        }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let (head, data) = self.signed();
        out.extend(head);
        out.extend_from_slice(data);
    }

    /// What RFC 7296 2.15 calls RestOfInitIDPayload or RestOfRespIDPayload: the first four bytes, and the rest.
    pub fn signed(&self) -> ([u8; 4], &'a [u8]) {
        let [a, b, c] = self.reserved;
        ([self.kind.0, a, b, c], self.data)
    }
}
