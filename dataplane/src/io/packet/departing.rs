//! SPI, sequence number and IV of the ESP packets that leave this host by given associations, sealed by the kernel or
//! by this process: a packet socket receives a copy of each packet that is passed to a device.

use super::filter::departing_esp;
use super::ring::bind;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

/// The most SPIs that are watched at a time: the filter has four comparisons for each, and may have 4096 instructions.
pub const MAX_DEPARTING_SPIS: usize = 250;

/// An IPv6 header, one of UDP, and the first 16 bytes of ESP; further bytes are cut off.
const MAX_HEADER_BYTES: usize = 64;

const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;

/// The socket.
pub struct DepartingEsp {
    socket: OwnedFd,
}

/// The beginning of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspBeginning {
    /// The outer destination.
    pub destination: IpAddr,
    /// The SPI.
    pub spi: u32,
    /// The sequence number as it travels: its lower 32 bits.
    pub sequence: u32,
    /// The first eight bytes behind it: the IV of a counter mode.
    pub iv: u64,
}

impl DepartingEsp {
    /// From now on receives copies of ESP with these SPIs that leaves by any device: native or in UDP, IPv4 or IPv6.
    pub fn open(spis: &[u32]) -> io::Result<Self> {
        if spis.len() > MAX_DEPARTING_SPIS {
            return Err(io::Error::other(format!(
                "{} associations are more than the {MAX_DEPARTING_SPIS} whose packets can be watched",
                spis.len()
            )));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing is received before the filter is attached.
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?;
        departing_esp(spis).attach(socket.as_fd())?;
        bind(socket.as_fd(), 0, libc::ETH_P_ALL as u16)?;
        Ok(Self { socket })
    }

    /// Replaces the SPIs.
    pub fn narrow(&self, spis: &[u32]) -> io::Result<()> {
        departing_esp(spis).attach(self.socket.as_fd())
    }

    /// The next packet, if one has left.
    pub fn next(&self) -> Option<EspBeginning> {
        let mut room = [0; MAX_HEADER_BYTES];
        loop {
            match recv(&self.socket, &mut room[..], RecvFlags::empty()) {
                Ok((len, _)) => {
                    if let Some(beginning) = read(&room[..len.min(MAX_HEADER_BYTES)]) {
                        return Some(beginning);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

fn read(packet: &[u8]) -> Option<EspBeginning> {
    let (destination, protocol, rest) = match packet.first()? >> 4 {
        4 => {
            let (header, rest) = packet.split_first_chunk::<20>()?;
            let destination = Ipv4Addr::from(*header.last_chunk::<4>()?);
            (IpAddr::V4(destination), header[9], rest)
        }
        _ => {
            let (header, rest) = packet.split_first_chunk::<40>()?;
            let destination = Ipv6Addr::from(*header.last_chunk::<16>()?);
            (IpAddr::V6(destination), header[6], rest)
        }
    };
    let esp = match protocol {
        UDP => rest.get(UDP_HEADER_BYTES..)?,
        _ => rest,
    };
    let (spi, rest) = esp.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    Some(EspBeginning {
        destination,
        spi: u32::from_be_bytes(*spi),
        sequence: u32::from_be_bytes(*sequence),
        iv: u64::from_be_bytes(*rest.first_chunk()?),
    })
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::io::Family;
    use crate::io::namespaces::{Namespace, along_cable, cable, isolated};
    use rustix::net::{SendFlags, sendto};
    use std::net::SocketAddr;

    /// SPI, sequence number, IV.
    fn esp(spi: u32, sequence: u32, iv: u64) -> Vec<u8> {
        let mut packet = [spi.to_be_bytes(), sequence.to_be_bytes()].concat();
        packet.extend(iv.to_be_bytes());
        packet.extend([7; 40]);
        packet
    }

    fn send(kind: SocketType, protocol: u32, to: SocketAddr, payload: &[u8]) {
        let family = if to.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let protocol = std::num::NonZeroU32::new(protocol).map(rustix::net::Protocol::from_raw);
        let socket = rustix::net::socket(family, kind, protocol).unwrap();
        sendto(&socket, payload, SendFlags::empty(), &to).unwrap();
    }

    #[test]
    fn esp_of_these_associations_is_seen_as_it_leaves_and_nothing_else() {
        isolated(|| {
            let other = Namespace::new();
            cable(&other, 1500);
            let tap = DepartingEsp::open(&[0x1001, 0x1002]).unwrap();
            for family in [Family::V4, Family::V6] {
                let destination = along_cable(family).destination;
                let to = |port| SocketAddr::new(destination, port);
                for (number, in_udp) in [(1, false), (2, true)] {
                    let packet = esp(0x1000 + number, number, 0x0102_0304_0506_0708);
                    let other = esp(0x2000 + number, number, 1);
                    for packet in [&other, &packet] {
                        if in_udp {
                            send(SocketType::DGRAM, 17, to(4500), packet)
                        } else {
                            send(SocketType::RAW, 50, to(0), packet)
                        }
                    }
                    let seen = tap.next();
                    let expected = EspBeginning {
                        destination,
                        spi: 0x1000 + number,
                        sequence: number,
                        iv: 0x0102_0304_0506_0708,
                    };
                    assert_eq!(seen, Some(expected), "{family:?}, in UDP: {in_udp}");
                    assert_eq!(tap.next(), None);
                }
                tap.narrow(&[0x1002]).unwrap();
                send(SocketType::RAW, 50, to(0), &esp(0x1001, 3, 4));
                assert_eq!(tap.next(), None, "not watched any more");
                tap.narrow(&[0x1001, 0x1002]).unwrap();
            }
        });
    }

    #[test]
    fn more_associations_than_a_filter_holds_are_refused() {
        isolated(|| {
            let many: Vec<u32> = (0..=MAX_DEPARTING_SPIS as u32).collect();
            assert!(DepartingEsp::open(&many).is_err());
            assert!(DepartingEsp::open(&many[1..]).is_ok());
        });
    }

    #[test]
    fn what_is_cut_off_is_no_beginning() {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[9] = 50;
        packet.extend(esp(1, 2, 3));
        assert!(read(&packet).is_some());
        for len in 0..36 {
            assert_eq!(read(&packet[..len]), None, "{len}");
        }
    }
}
