//! D (RFC 7296 3.11): associations that the sender has ended.

use super::super::{
    Malformed,
    reader::Reader,
    writer::{Overflow, count},
};
use super::Protocol;

/// Which associations end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delete<'a> {
    /// IKE for the IKE SA of this message, which is named by no SPI; else ESP or AH.
    pub protocol: Protocol,
    spi_len: u8,
    spis: &'a [u8],
}

impl<'a> Delete<'a> {
    /// The IKE SA itself ends.
    pub const IKE_SA: Self = Self {
        protocol: Protocol::IKE,
        spi_len: 0,
        spis: &[],
    };

    /// These child SAs end; their SPIs are those that the sender receives with.
    pub fn children(protocol: Protocol, spis: &'a [[u8; 4]]) -> Self {
        Self {
            protocol,
            spi_len: 4,
            spis: spis.as_flattened(),
        }
    }

    pub(super) fn parse(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let here = reader;
        let [protocol, spi_len] = reader.array("a protocol and the length of SPIs")?;
        let expected_len = if Protocol(protocol) == Protocol::IKE {
            0
        } else {
            4
        };
        if spi_len != expected_len {
            return Err(here.malformed("SPIs of 4 bytes, of 0 for IKE"));
        }
        let count = reader.u16("the number of SPIs")?;
        let spis = reader.take(
            usize::from(count) * usize::from(spi_len),
            "as many SPIs as were counted",
        )?;
        if !reader.is_empty() || (spi_len == 0 && count != 0) {
            return Err(reader.malformed("the end behind the last SPI"));
        }
        Ok(Self {
            protocol: Protocol(protocol),
            spi_len,
            spis,
        })
    }

    /// The SPIs, each of 4 bytes.
    pub fn spis(&self) -> impl Iterator<Item = [u8; 4]> + 'a {
        self.spis.as_chunks::<4>().0.iter().copied()
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<(), Overflow> {
        let spis = u16::try_from(self.spis().count()).map_err(|_| Overflow)?;
        out.extend([self.protocol.0, count(usize::from(self.spi_len))?]);
        out.extend(spis.to_be_bytes());
        out.extend_from_slice(self.spis);
        Ok(())
    }
}
