//! Reads bytes from front to back and knows where it is, so that an error names the location.

use super::{Location, Malformed};

/// What is left of a payload, or of a structure inside one.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
    location: Location,
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8], offset: usize, location: Location) -> Self {
        Self {
            rest,
            offset,
            location,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The same reader, with errors that name another location.
    pub(super) fn named(self, location: Location) -> Self {
        Self { location, ..self }
    }

    /// That what comes next is not what was expected.
    pub(super) fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed {
            location: self.location,
            offset: self.offset,
            expected,
        }
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<[u8; N], Malformed> {
        let (first, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(self.malformed(expected))?;
        self.rest = rest;
        self.offset += N;
        Ok(*first)
    }

    pub(super) fn u8(&mut self, expected: &'static str) -> Result<u8, Malformed> {
        self.array(expected).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, expected: &'static str) -> Result<u16, Malformed> {
        self.array(expected).map(u16::from_be_bytes)
    }

    pub(super) fn take(
        &mut self,
        len: usize,
        expected: &'static str,
    ) -> Result<&'a [u8], Malformed> {
        Ok(self.part(len, expected)?.rest)
    }

    /// A reader of the next `len` bytes alone, which are passed over here.
    pub(super) fn part(&mut self, len: usize, expected: &'static str) -> Result<Self, Malformed> {
        let (part, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(self.malformed(expected))?;
        let part = Self {
            rest: part,
            ..*self
        };
        self.rest = rest;
        self.offset += len;
        Ok(part)
    }

    /// All that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }
}
