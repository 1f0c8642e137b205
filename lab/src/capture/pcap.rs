//! The classic capture file: every reader in the world knows it.

use std::io::{self, Write};

use super::frame::Frame;

const MICROSECONDS_MAGIC: u32 = 0xa1b2_c3d4;
const ETHERNET: u32 = 1;
const SNAP_LENGTH: u32 = 262_144;

/// Writes frames to `W`.
pub(super) struct Writer<W>(W);

impl<W: Write> Writer<W> {
    /// Writes the file's header.
    pub(super) fn begin(mut to: W) -> io::Result<Writer<W>> {
        let version: u32 = 2 | 4 << 16;
        for word in [MICROSECONDS_MAGIC, version, 0, 0, SNAP_LENGTH, ETHERNET] {
            to.write_all(&word.to_le_bytes())?;
        }
        Ok(Writer(to))
    }

    /// Writes one frame in one call, so that a reader never finds half of it.
    pub(super) fn add(&mut self, frame: &Frame) -> io::Result<()> {
        let length = frame.bytes.len() as u32;
        let words = [
            frame.at.as_secs() as u32,
            frame.at.subsec_micros(),
            length,
            length,
        ];
        let mut entry: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        entry.extend_from_slice(&frame.bytes);
        self.0.write_all(&entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_is_its_header_and_its_frames() {
        let mut file = Vec::new();
        let frame = Frame {
            at: Duration::new(0x0102_0304, 5_000),
            bytes: vec![0xaa; 3],
            udp_segment: None,
            checksum: None,
        };
        Writer::begin(&mut file).unwrap().add(&frame).unwrap();
        let expected = [
            // magic, 2.4, zone, accuracy, snap length, Ethernet
            0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0,
            0, //
            4, 3, 2, 1, 5, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0xaa, 0xaa, 0xaa,
        ];
        assert_eq!(file, expected);
    }
}
