//! CP (RFC 7296 3.15): requests for addresses and other settings, and the replies.

use super::super::{Malformed, number::numbers, reader::Reader, writer::Overflow};

/// How many attributes one payload may have.
const MAX_ATTRIBUTES: usize = 256;
const TYPE: u16 = 0x7fff;

numbers! {
    /// What the attributes are.
    ConfigurationKind(u8) {
        REQUEST = 1, "CFG_REQUEST";
        REPLY = 2, "CFG_REPLY";
        SET = 3, "CFG_SET";
        ACK = 4, "CFG_ACK";
    }
}

numbers! {
    /// What an attribute is about. 15 bits.
    ConfigurationAttribute(u16) {
        INTERNAL_IP4_ADDRESS = 1, "INTERNAL_IP4_ADDRESS";
        INTERNAL_IP4_NETMASK = 2, "INTERNAL_IP4_NETMASK";
        INTERNAL_IP4_DNS = 3, "INTERNAL_IP4_DNS";
        INTERNAL_IP4_NBNS = 4, "INTERNAL_IP4_NBNS";
        INTERNAL_IP4_DHCP = 6, "INTERNAL_IP4_DHCP";
        APPLICATION_VERSION = 7, "APPLICATION_VERSION";
        INTERNAL_IP6_ADDRESS = 8, "INTERNAL_IP6_ADDRESS";
        INTERNAL_IP6_DNS = 10, "INTERNAL_IP6_DNS";
        INTERNAL_IP6_DHCP = 12, "INTERNAL_IP6_DHCP";
        INTERNAL_IP4_SUBNET = 13, "INTERNAL_IP4_SUBNET";
        SUPPORTED_ATTRIBUTES = 14, "SUPPORTED_ATTRIBUTES";
        INTERNAL_IP6_SUBNET = 15, "INTERNAL_IP6_SUBNET";
        INTERNAL_DNS_DOMAIN = 25, "INTERNAL_DNS_DOMAIN";
        INTERNAL_DNSSEC_TA = 26, "INTERNAL_DNSSEC_TA";
    }
}

/// A configuration payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration<'a> {
    /// What the attributes are.
    pub kind: ConfigurationKind,
    /// Type and value of each, in their order; an empty value requests one.
    pub attributes: Vec<(ConfigurationAttribute, &'a [u8])>,
}

impl<'a> Configuration<'a> {
    pub(super) fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let [kind, _, _, _] = reader.array("a type and three reserved bytes")?;
        let mut attributes = Vec::new();
        while !reader.is_empty() {
            if attributes.len() == MAX_ATTRIBUTES {
                return Err(reader.malformed("at most 256 attributes"));
            }
            let attribute = reader.u16("the type of an attribute")? & TYPE;
            let len = reader.u16("the length of an attribute")?;
            let value = reader.take(
                usize::from(len),
                "as many bytes as the attribute's length says",
            )?;
            attributes.push((ConfigurationAttribute(attribute), value));
        }
        Ok(Self {
            kind: ConfigurationKind(kind),
            attributes,
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<(), Overflow> {
        out.extend([self.kind.0, 0, 0, 0]);
        for (attribute, value) in &self.attributes {
            let len = u16::try_from(value.len()).map_err(|_| Overflow)?;
            out.extend((attribute.0 & TYPE).to_be_bytes());
            out.extend(len.to_be_bytes());
            out.extend_from_slice(value);
        }
        Ok(())
    }
}
