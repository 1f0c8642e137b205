//! The sending half that UDP and raw sockets share: parcels become messages, one call sends many of them, and each refusal
//! means something.

use super::messages::{Letter, Outbox};
use super::several::Addressed;
use super::socket::Socket;
use super::waker::poll_patiently;
use super::{Aside, Parcel, Sent};
use ipsec::tunnel::Outer;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a full socket is waited for before a message is given up.
const PATIENCE: Duration = Duration::from_millis(100);

/// A sink that sends its parcels as messages through one socket.
pub(super) trait Posting: Addressed {
    /// Makes the socket treat what follows as this parcel wants it, if that is a setting of the socket.
    fn prepare(&mut self, _: &Parcel<'_>, _parcels: &[Parcel<'_>], _sent: &mut Sent) {}

    /// Adds the messages of parcel `n`; sends those before when there are too many.
    fn add(&mut self, n: usize, parcels: &[Parcel<'_>], sent: &mut Sent);

    /// Sends all messages that were added.
    fn flush(&mut self, parcels: &[Parcel<'_>], sent: &mut Sent);
}

/// Sends all parcels that fit the sink.
pub(super) fn post(sink: &mut impl Posting, parcels: &[Parcel<'_>]) -> Sent {
    let mut sent = Sent::default();
    for (n, parcel) in parcels.iter().enumerate() {
        if sink.fits(parcel) {
            sink.prepare(parcel, parcels, &mut sent);
            sink.add(n, parcels, &mut sent);
        } else {
            sent.failed += parcel.packets();
        }
    }
    sink.flush(parcels, &mut sent);
    sent
}

/// Sends single packets through the socket of another sink, whose settings it leaves as they are.
pub(super) struct Single<S>(pub S);

impl<S: Posting> Aside for Single<S> {
    fn send(&mut self, outer: &Outer, packet: &[u8]) -> bool {
        let parcels = [Parcel {
            outer: *outer,
            bytes: packet,
            stride: packet.len(),
        }];
        let mut sent = Sent::default();
        if self.0.fits(&parcels[0]) {
            self.0.add(0, &parcels, &mut sent);
            self.0.flush(&parcels, &mut sent);
        }
        sent.packets > 0
    }
}

/// Sends all messages of the outbox in order, and empties it. What the system refuses for good is counted, unless
/// `rescue` takes care of it: that gets the message and the error, and says so.
pub(super) fn send_all<'a>(
    socket: &Socket,
    outbox: &mut Outbox,
    parcels: &[Parcel<'_>],
    sent: &mut Sent,
    bytes_of: impl Fn(usize, &Letter) -> [&'a [u8]; 2],
    mut rescue: impl FnMut(&Letter, i32, &mut Sent) -> bool,
) {
    let (mut next, mut tried) = (0, false);
    while next < outbox.letters().len() {
        sent.calls += 1;
        match outbox.send(socket.as_fd(), next, &bytes_of) {
            Ok(count) => {
                sent.packets += outbox.letters()[next..next + count]
                    .iter()
                    .map(|letter| letter.packets)
                    .sum::<u64>();
                (next, tried) = (next + count, false);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && wait_for_room(socket) => {}
            // A send may return an error that an earlier packet met on its way; only a second one is this message's.
            Err(error) if !tried && !is_shortage(&error) => {
                socket.drain_errors();
                tried = true;
            }
            Err(error) => {
                let letter = &outbox.letters()[next];
                if !rescue(letter, error.raw_os_error().unwrap_or(0), sent) {
                    refuse(socket, letter, &parcels[letter.parcel], &error, sent);
                }
                (next, tried) = (next + 1, false);
            }
        }
    }
    outbox.clear();
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN)
    )
}

fn wait_for_room(socket: &Socket) -> bool {
    let file = socket.as_fd();
    let mut watched = [PollFd::new(&file, PollFlags::OUT)];
    poll_patiently(&mut watched, PATIENCE).is_ok() && watched[0].revents().contains(PollFlags::OUT)
}

/// Counts a message that will not be sent.
fn refuse(
    socket: &Socket,
    letter: &Letter,
    parcel: &Parcel<'_>,
    error: &io::Error,
    sent: &mut Sent,
) {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => {
            // The kernel has reported what fits, to a queue whose reader must not be woken for it.
            if !socket.drain_errors() {
                socket.learn_mtu(parcel.outer.source, parcel.outer.destination);
            }
            sent.too_big += letter.packets;
        }
        _ if is_shortage(error) => sent.no_buffer += letter.packets,
        _ => sent.failed += letter.packets,
    }
}
