//! A capture on an interface of a host with other traffic: only packets between the addresses of the testbed are kept;
//! others never leave the host.

use std::io;
use std::net::Ipv4Addr;

use crate::capture::Frame;
use crate::host::Tap;
use crate::testbed::tap::PacketSocket;

/// Captures packets between certain addresses.
pub(super) struct Sniffer {
    socket: PacketSocket,
    among: Vec<Ipv4Addr>,
}

impl Sniffer {
    pub(super) fn open(interface: &str, among: Vec<Ipv4Addr>) -> io::Result<Sniffer> {
        Ok(Sniffer {
            socket: PacketSocket::open(interface)?,
            among,
        })
    }

    pub(super) fn frames(&mut self) -> Result<Vec<Frame>, String> {
        let mut frames = self.socket.frames().map_err(|fault| fault.to_string())?;
        frames.retain(|frame| is_among(&frame.bytes, &self.among));
        Ok(frames)
    }
}

/// Whether both ends of an Ethernet frame's IPv4 packet are among the addresses.
fn is_among(frame: &[u8], among: &[Ipv4Addr]) -> bool {
    const IPV4: [u8; 2] = [0x08, 0x00];
    let address = |at: usize| {
        let octets: [u8; 4] = frame.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets))
    };
    let ends = [address(26), address(30)];
    frame.get(12..14) == Some(&IPV4)
        && ends
            .iter()
            .all(|end| end.is_some_and(|end| among.contains(&end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_of_the_testbed_are_captured() {
        let among = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
        let frame = |kind: [u8; 2], to: [u8; 4]| {
            let mut frame = vec![0; 60];
            frame[12..14].copy_from_slice(&kind);
            frame[26..30].copy_from_slice(&[192, 0, 2, 1]);
            frame[30..34].copy_from_slice(&to);
            frame
        };
        assert!(is_among(&frame([8, 0], [192, 0, 2, 2]), &among));
        assert!(!is_among(&frame([8, 0], [192, 0, 2, 3]), &among));
        assert!(!is_among(&frame([8, 6], [192, 0, 2, 2]), &among));
        assert!(!is_among(&frame([8, 0], [192, 0, 2, 2])[..33], &among));
    }
}
