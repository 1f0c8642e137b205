use super::*;
use crate::io::namespaces::{isolated, receive, warnings};
use crate::io::udp::{
    EspOfThird, MAX_DIVIDED_SPIS, UdpOptions, UdpSource, divide_esp, open, open_third,
};
use std::collections::BTreeSet;
use std::net::UdpSocket;

fn options() -> SocketOptions {
    SocketOptions::new(PmtuCache::default(), warnings().0)
}

fn both(family: Family) -> (IkeSocket, UdpSource) {
    both_beginning_with(FirstSocket::Ike, family)
}

fn both_beginning_with(first: FirstSocket, family: Family) -> (IkeSocket, UdpSource) {
    let mut udp = UdpOptions::new(options());
    udp.beside_ike = Some(first);
    let mut esp = (first == FirstSocket::Esp).then(|| open(family, &udp).unwrap().0);
    let ike = open_ike(family, SHARED_PORT, true, first, &options()).unwrap();
    let esp = esp.take().unwrap_or_else(|| open(family, &udp).unwrap().0);
    (IkeSocket::over(ike).unwrap(), esp)
}

/// Either order in which the sockets are bound, in either family.
const EACH: [(FirstSocket, Family); 4] = [
    (FirstSocket::Ike, Family::V4),
    (FirstSocket::Ike, Family::V6),
    (FirstSocket::Esp, Family::V4),
    (FirstSocket::Esp, Family::V6),
];

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

fn messages(socket: &mut IkeSocket) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)> {
    let (mut room, mut all) = (IkeBuffer::default(), Vec::new());
    loop {
        let before = all.len();
        let take = |from, to, bytes: &mut [u8]| all.push((from, to, bytes.to_vec()));
        socket.receive(&mut room, take).unwrap();
        if all.len() == before {
            return all;
        }
    }
}

fn packets(source: &mut UdpSource, count: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    receive(source, |bytes, _| {
        all.push(bytes.to_vec());
        all.len() == count
    });
    all
}

#[test]
fn the_kernel_gives_each_socket_its_own_kind_whatever_the_senders_port() {
    isolated(|| {
        for (first, family) in EACH {
            let (mut ike, mut esp) = both_beginning_with(first, family);
            let to = SocketAddr::new(loopback(family), SHARED_PORT);
            // By the hash of ports alone half of these would go to the wrong socket.
            for n in 0..40 {
                let peer = UdpSocket::bind((loopback(family), 0)).unwrap();
                peer.send_to(&[0, 0, 0, 0, n, n], to).unwrap();
                peer.send_to(&[0, 0, 0, 1, n, n], to).unwrap();
                let (from, local, bytes) = messages(&mut ike).pop().unwrap();
                assert_eq!(from, peer.local_addr().unwrap());
                assert_eq!((local, bytes), (to, vec![n, n]));
                assert_eq!(packets(&mut esp, 1), [vec![0, 0, 0, 1, n, n]]);
            }
            let peer = UdpSocket::bind((loopback(family), 0)).unwrap();
            for short in [&[0xff][..], &[], &[0], &[0, 0, 0], &[1, 2, 3, 4]] {
                peer.send_to(short, to).unwrap();
            }
            peer.send_to(&[0; 4], to).unwrap();
            assert_eq!(messages(&mut ike).len(), 1, "the marker alone");
            assert_eq!(ike.not_ike(), 0);
            let rest = packets(&mut esp, usize::MAX);
            assert_eq!(rest.last().unwrap(), &[1, 2, 3, 4]);
            assert_eq!(esp.stats().keepalives(), 1);
        }
    });
}

#[test]
fn a_flood_of_one_kind_takes_no_room_from_the_other() {
    isolated(|| {
        let (mut ike, mut esp) = both(Family::V4);
        let to = SocketAddr::new(loopback(Family::V4), SHARED_PORT);
        let peer = UdpSocket::bind((loopback(Family::V4), 0)).unwrap();
        // More than the queue of the socket holds, of which none is read.
        for _ in 0..40_000 {
            peer.send_to(&[0; 1000], to).unwrap();
        }
        peer.send_to(&[7; 1000], to).unwrap();
        assert_eq!(packets(&mut esp, 1), [vec![7; 1000]]);
        assert!(messages(&mut ike).len() < 40_000, "the queue was not full");
        for _ in 0..40_000 {
            peer.send_to(&[7; 1000], to).unwrap();
        }
        peer.send_to(&[0; 1000], to).unwrap();
        assert_eq!(messages(&mut ike).len(), 1);
    });
}

#[test]
fn until_esp_has_its_socket_its_packets_are_counted() {
    isolated(|| {
        let file = open_ike(Family::V4, SHARED_PORT, false, FirstSocket::Ike, &options()).unwrap();
        let mut ike = IkeSocket::over(file).unwrap();
        let peer = UdpSocket::bind((loopback(Family::V4), 0)).unwrap();
        peer.send_to(&[7; 100], (loopback(Family::V4), SHARED_PORT))
            .unwrap();
        assert!(messages(&mut ike).is_empty());
        assert_eq!(ike.not_ike(), 1);
    });
}

#[test]
fn messages_leave_by_the_address_that_is_asked_for_with_the_marker_on_port_4500_alone() {
    isolated(|| {
        let two = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        for (port, marker) in [(500, &[][..]), (SHARED_PORT, &[0; 4])] {
            let file = open_ike(Family::V4, port, false, FirstSocket::Ike, &options()).unwrap();
            let mut ike = IkeSocket::over(file).unwrap();
            let peer = UdpSocket::bind((loopback(Family::V4), 0)).unwrap();
            let to = peer.local_addr().unwrap();
            ike.send(two, to, &[vec![1, 2], vec![3]]);
            for message in [&[1, 2][..], &[3]] {
                let mut room = [0; 100];
                let (len, from) = peer.recv_from(&mut room).unwrap();
                assert_eq!(room[..len], [marker, message].concat());
                assert_eq!(from, SocketAddr::new(two, port));
            }
            // A peer that is not there answers by ICMP, which stops neither the next message nor the socket.
            drop(peer);
            ike.send(two, to, &[vec![1]]);
            ike.send(two, to, &[vec![1]]);
            assert!(messages(&mut ike).is_empty());
            let peer = UdpSocket::bind(to).unwrap();
            ike.send(two, to, &[vec![9]]);
            assert!(peer.recv_from(&mut [0; 100]).is_ok());
        }
    });
}

#[test]
fn the_port_500_is_not_shared() {
    isolated(|| {
        let first = open_ike(Family::V4, 500, false, FirstSocket::Ike, &options()).unwrap();
        let second = open_ike(Family::V4, 500, false, FirstSocket::Ike, &options());
        assert!(matches!(second, Err(OpenError::PortTaken { port: 500 })));
        drop(first);
    });
}

#[test]
fn a_third_socket_gets_esp_by_its_spi_and_hands_it_back() {
    isolated(|| {
        for (first, family) in EACH {
            let (mut ike, mut esp) = both_beginning_with(first, family);
            let third = UdpSocket::from(open_third(family, &options()).unwrap());
            third.set_nonblocking(true).unwrap();
            let to = SocketAddr::new(loopback(family), SHARED_PORT);
            let mut come = |mark: u8, expected: [(usize, usize); 2]| {
                // By the hash of ports alone each socket would get some.
                for _ in 0..16 {
                    let peer = UdpSocket::bind((loopback(family), 0)).unwrap();
                    for spi in 0..3 {
                        peer.send_to(&[0, 0, 0, spi, mark], to).unwrap();
                    }
                }
                let (mut room, mut thirds) = ([0; 16], Vec::new());
                while let Ok(len) = third.recv(&mut room) {
                    thirds.push(room[..len].to_vec());
                }
                // What comes beyond that is found by its mark in the next round.
                let seconds = packets(&mut esp, expected[0].0 + expected[1].0);
                assert_eq!(messages(&mut ike).len(), 16, "{mark}");
                assert!(thirds.iter().chain(&seconds).all(|bytes| bytes[4] == mark));
                let there = [1, 2].map(|spi| {
                    let of_spi =
                        |all: &[Vec<u8>]| all.iter().filter(|bytes| bytes[3] == spi).count();
                    (of_spi(&seconds), of_spi(&thirds))
                });
                assert_eq!(there, expected, "{mark}");
            };
            let divide =
                |third_gets: &EspOfThird| divide_esp(third.as_fd(), first, third_gets).unwrap();
            let one = BTreeSet::from([1]);
            come(0, [(16, 0); 2]);
            divide(&EspOfThird::Only(one.clone()));
            come(1, [(0, 16), (16, 0)]);
            divide(&EspOfThird::AllBut(one));
            come(2, [(16, 0), (0, 16)]);
            divide(&EspOfThird::EVERYTHING);
            come(3, [(0, 16); 2]);
            divide(&EspOfThird::NOTHING);
            come(4, [(16, 0); 2]);
            let many = (0..MAX_DIVIDED_SPIS as u32).map(|number| u32::MAX - 7 * number);
            divide(&EspOfThird::AllBut(many.chain([2]).collect()));
            come(5, [(0, 16), (16, 0)]);
        }
    });
}
