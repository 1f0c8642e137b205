//! Netlink below its protocols: sockets that receive notifications, the messages of a datagram, and attributes.

pub(crate) mod attributes;

use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Bytes of a message's header.
const HEADER_BYTES: usize = 16;

/// A socket that receives the notifications of these multicast groups, without waiting.
pub(crate) fn listen(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    let mask = groups.iter().fold(0, |mask, group| mask | 1 << (group - 1));
    socket.bind(&SocketAddr::new(0, mask))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Calls `each` with the kind and body of every message of a datagram.
pub(crate) fn messages(mut rest: &[u8], mut each: impl FnMut(u16, &[u8])) {
    while let Some((header, _)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = rest.get(HEADER_BYTES..len) else {
            return;
        };
        each(u16::from_ne_bytes([header[4], header[5]]), body);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn several_messages_of_one_datagram_are_told_apart_and_a_cut_one_ends_it() {
        let mut bytes = [message(24, &[1, 2, 3]), message(20, &[4])].concat();
        bytes.extend(&message(32, &[9; 40])[..20]);
        let mut seen = Vec::new();
        messages(&bytes, |kind, body| seen.push((kind, body.to_vec())));
        assert_eq!(seen, [(24, vec![1, 2, 3]), (20, vec![4])]);
    }
}
