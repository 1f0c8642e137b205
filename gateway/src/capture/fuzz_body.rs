//! Any bytes as a capture file.

use super::file::Reader;
use super::ip_packet;
use std::time::Duration;

/// Reads `data` as a capture to its end or first fault, and every frame's headers.
pub fn file(data: &[u8]) {
    let Ok(mut reader) = Reader::new(data) else {
        return;
    };
    let mut last = Duration::ZERO;
    while let Ok(Some(frame)) = reader.next_frame() {
        last = last.max(frame.time);
        if let Ok(Some(packet)) = ip_packet(&frame) {
            let _ = ipsec::tunnel::Outer::payload(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;

    #[test]
    fn captures_are_read_without_a_panic() {
        replay("capture_file", file);
    }
}
