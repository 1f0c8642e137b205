//! Stamped datagrams, sent at a steady rate and counted where they arrive. Each carries a number and the time it was
//! made, by a clock that all namespaces of a machine share, so the receiver knows what was lost, doubled, overtaken and
//! how long each was on its way. Several go through the kernel in one call (UDP_SEGMENT) when the rate is high.
//!
//! Two machines have two clocks, whose difference is not known. There the receiver reads no time of the sender; it
//! answers some datagrams with their stamp, and the sender reads round trips from its own clock.

mod answers;
mod counter;
mod receive;
mod send;
mod stamp;

pub use counter::Received;
pub(super) use receive::Receive;
pub(super) use send::Send;
pub(crate) use send::Sent;

use std::io;
use std::net::{SocketAddr, UdpSocket};

/// The receiver's line once it has its port, before the one with what it counted.
pub(crate) const LISTENING: &str = "listening";

/// Takes a port, or says whose it is and what to do.
fn bind(at: SocketAddr) -> io::Result<UdpSocket> {
    let port = at.port();
    UdpSocket::bind(at).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "UDP port {port} is used by another program. Fix: stop it (`ss -ulnp sport = :{port}` shows which), \
                 and run again"
            ),
            _ => format!("cannot open UDP {at}: {error}"),
        };
        io::Error::new(error.kind(), why)
    })
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    use super::*;

    /// Sends 2000 a second for 200 ms over the loopback; one in so many is answered, if any.
    fn over_the_loopback(answer_one_in: Option<u64>) -> (Sent, Received) {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let free = || UdpSocket::bind(any).unwrap().local_addr().unwrap();
        let (far, near) = (free(), answer_one_in.map(|_| free()));
        let receive = Receive {
            listen: far,
            patience: 2000,
            run: 3,
            answer_to: near,
            answer_one_in: answer_one_in.unwrap_or(0),
        };
        let receiver = std::thread::spawn(move || receive.run());
        let bound = format!(":{:04X} ", far.port());
        let listens = || {
            std::fs::read_to_string("/proc/net/udp")
                .unwrap()
                .contains(&bound)
        };
        while !listens() && !receiver.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let send = Send {
            to: far,
            bytes: vec![100],
            rate: 2000.0,
            milliseconds: 200,
            run: 3,
            answers_at: near,
        };
        (send.run().unwrap(), receiver.join().unwrap().unwrap())
    }

    #[test]
    fn sender_and_receiver_agree_over_the_loopback() {
        let (sent, received) = over_the_loopback(None);
        assert!(sent.sent > 0);
        assert_eq!(
            (received.received, received.bytes),
            (sent.sent, sent.sent * 100)
        );
        assert_eq!((received.duplicates, received.reordered), (0, 0));
        assert_eq!(received.latency.count(), sent.sent);
        assert_eq!((sent.round_trips, received.answered), (None, 0));
    }

    #[test]
    fn every_answer_is_a_round_trip_and_no_delay_is_read_from_two_clocks() {
        let (sent, received) = over_the_loopback(Some(1));
        assert!(sent.sent > 0);
        assert_eq!(
            (received.received, received.answered),
            (sent.sent, sent.sent)
        );
        assert_eq!(sent.round_trips.unwrap().count(), sent.sent);
        assert_eq!(received.latency.count(), 0);
        let (sent, received) = over_the_loopback(Some(0));
        assert_eq!((received.received, received.answered), (sent.sent, 0));
        assert_eq!(sent.round_trips.unwrap().count(), 0);
    }

    #[test]
    fn an_occupied_port_is_named_with_what_shows_its_owner() {
        let other = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let at = other.local_addr().unwrap();
        let why = bind(at).unwrap_err().to_string();
        let port = at.port();
        assert!(
            why.contains(&format!("UDP port {port} is used by another program")),
            "{why}"
        );
        assert!(
            why.contains(&format!("`ss -ulnp sport = :{port}`")),
            "{why}"
        );
    }
}
