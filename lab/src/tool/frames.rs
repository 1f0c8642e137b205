//! Stamped datagrams, sent at a steady rate and counted where they arrive. Each carries a number and the time it was
//! made, by a clock that all namespaces of a machine share, so the receiver knows what was lost, doubled, overtaken and
//! how long each was on its way. Several go through the kernel in one call (UDP_SEGMENT) when the rate is high.

mod counter;
mod receive;
mod send;
mod stamp;

pub use counter::Received;
pub(super) use receive::Receive;
pub(super) use send::Send;
pub(crate) use send::Sent;

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    use super::*;

    #[test]
    fn sender_and_receiver_agree_over_the_loopback() {
        let at: SocketAddr = ([127, 0, 0, 1], 0).into();
        let probe = UdpSocket::bind(at).unwrap().local_addr().unwrap();
        let receive = Receive {
            listen: probe,
            patience: 2000,
            run: 3,
        };
        let receiver = std::thread::spawn(move || receive.run());
        let bound = format!(":{:04X} ", probe.port());
        let listens = || {
            std::fs::read_to_string("/proc/net/udp")
                .unwrap()
                .contains(&bound)
        };
        while !listens() && !receiver.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let send = Send {
            to: probe,
            bytes: vec![100],
            rate: 2000.0,
            milliseconds: 200,
            run: 3,
        };
        let (sent, received) = (send.run().unwrap(), receiver.join().unwrap().unwrap());
        assert!(sent.sent > 0);
        assert_eq!(
            (received.received, received.bytes),
            (sent.sent, sent.sent * 100)
        );
        assert_eq!((received.duplicates, received.reordered), (0, 0));
    }
}
