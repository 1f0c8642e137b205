//! Netlink attributes: length, kind and value, padded to four bytes; numbers of nf_tables are big-endian.

/// NLA_F_NESTED: the value consists of attributes.
const NESTED: u16 = 1 << 15;

/// The kind in an attribute's header, without the bits that describe its value.
const KIND: u16 = 0x3fff;

const HEADER_LEN: usize = 4;

/// A list of attributes that is being written.
#[derive(Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// Appends one.
    pub(crate) fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        // Values are bounded: names of 31 bytes, keys of 32; long lists are split before they are written.
        let len = u16::try_from(HEADER_LEN + value.len()).expect("an attribute is less than 64 kB");
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends a number.
    pub(crate) fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// Appends a text with a terminating zero byte.
    pub(crate) fn put_text(&mut self, kind: u16, text: &str) -> &mut Self {
        self.put(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Appends a nested list of attributes.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.put(kind | NESTED, &inner.0)
    }

    /// The bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Kind and value of each attribute, up to the first incomplete one.
pub(crate) fn read(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & KIND;
        let value = bytes.get(HEADER_LEN..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of one kind.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    read(bytes)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// A number of one kind.
pub(crate) fn find_u32(bytes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(find(bytes, kind)?.try_into().ok()?))
}

/// A number of one kind.
pub(crate) fn find_u64(bytes: &[u8], kind: u16) -> Option<u64> {
    Some(u64::from_be_bytes(find(bytes, kind)?.try_into().ok()?))
}

/// A text of one kind.
pub(crate) fn find_text(bytes: &[u8], kind: u16) -> Option<&str> {
    std::str::from_utf8(find(bytes, kind)?)
        .ok()
        .map(|text| text.trim_end_matches('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_broken_bytes_end_it() {
        let mut attributes = Attributes::default();
        attributes.put_text(1, "esplanade").put_u32(2, 0x0102_0304);
        attributes.nest(3, |inner| {
            inner.put(7, &[9]);
        });
        let bytes = attributes.into_bytes();
        assert_eq!(bytes.len(), 16 + 8 + 12);
        assert_eq!(find_text(&bytes, 1), Some("esplanade"));
        assert_eq!(find_u32(&bytes, 2), Some(0x0102_0304));
        assert_eq!(find(find(&bytes, 3).unwrap(), 7), Some(&[9][..]));
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).count() < 3, "{end}");
        }
        for len in 0..4u8 {
            assert_eq!(read(&[len, 0, 1, 0, 5, 5, 5, 5]).count(), 0);
        }
    }
}
