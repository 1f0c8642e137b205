//! Sending by UDP and raw sockets: bursts become messages, one call sends many of them, each error is handled.

use super::ancillary::ControlBuffer;
use super::messages::{Message, SendBatch};
use super::socket::Socket;
use super::socket_sets::SelectiveSink;
use super::waker::poll_for;
use super::{Burst, OutOfBandSender, Sent};
use ipsec::tunnel::Outer;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long to wait for room in a full socket before a message is dropped.
const SEND_ROOM_TIMEOUT: Duration = Duration::from_millis(100);

/// A sink that sends its bursts as messages through one socket.
pub(super) trait SocketSink: SelectiveSink {
    /// Sets the socket's options as this burst needs them.
    fn prepare(&mut self, _: &Burst<'_>, _parcels: &[Burst<'_>], _sent: &mut Sent) {}

    /// Adds the messages of burst `n`; when the batch is full, sends the earlier ones first.
    fn add(&mut self, n: usize, bursts: &[Burst<'_>], sent: &mut Sent);

    /// Sends all messages that were added.
    fn flush(&mut self, bursts: &[Burst<'_>], sent: &mut Sent);
}

/// Sends all bursts that the sink accepts.
pub(super) fn send_bursts(sink: &mut impl SocketSink, bursts: &[Burst<'_>]) -> Sent {
    let mut sent = Sent::default();
    for (n, burst) in bursts.iter().enumerate() {
        if sink.accepts(burst) {
            sink.prepare(burst, bursts, &mut sent);
            sink.add(n, bursts, &mut sent);
        } else {
            sent.failed += burst.packets();
        }
    }
    sink.flush(bursts, &mut sent);
    sent
}

/// Adds a message for each packet of burst `n`, for a raw socket, whose addresses have no port. `describe` adds control
/// messages beside the source address.
pub(super) fn add_packets<S: SocketSink>(
    sink: &mut S,
    batch: fn(&mut S) -> &mut SendBatch,
    describe: impl Fn(&mut ControlBuffer, &Outer),
    (n, bursts): (usize, &[Burst<'_>]),
    sent: &mut Sent,
) {
    let burst = &bursts[n];
    let address = SocketAddr::new(burst.outer.destination, 0);
    for range in burst.ranges() {
        if batch(sink).is_full() {
            sink.flush(bursts, sent);
        }
        let control = batch(sink).add((n, range, 1, false), address);
        control.put_source(burst.outer.source);
        describe(control, &burst.outer);
    }
}

/// The bytes of a message that has no others in front of them.
pub(super) fn bytes_of<'a>(bursts: &[Burst<'a>], message: &Message) -> [&'a [u8]; 2] {
    [&bursts[message.burst].bytes[message.range.clone()], &[]]
}

/// Sends single packets through the socket of another sink, without changing its options.
pub(super) struct OutOfBand<S>(pub S);

impl<S: SocketSink> OutOfBandSender for OutOfBand<S> {
    fn send(&mut self, outer: &Outer, packet: &[u8]) -> bool {
        let bursts = [Burst {
            outer: *outer,
            bytes: packet,
            stride: packet.len(),
        }];
        let mut sent = Sent::default();
        if self.0.accepts(&bursts[0]) {
            self.0.add(0, &bursts, &mut sent);
            self.0.flush(&bursts, &mut sent);
        }
        sent.packets > 0
    }
}

/// Sends all messages of the batch in order, and empties it. A message that the kernel refuses permanently is
/// counted, unless `rescue`, called with the message and the error, returns true: then it has handled the message.
pub(super) fn send_all<'a>(
    socket: &Socket,
    batch: &mut SendBatch,
    bursts: &[Burst<'_>],
    sent: &mut Sent,
    bytes_of: impl Fn(usize, &Message) -> [&'a [u8]; 2],
    mut rescue: impl FnMut(&Message, i32, &mut Sent) -> bool,
) {
    let (mut next, mut tried) = (0, false);
    while next < batch.messages().len() {
        sent.calls += 1;
        match batch.send(socket.as_fd(), next, &bytes_of) {
            Ok(count) => {
                sent.packets += batch.messages()[next..next + count]
                    .iter()
                    .map(|message| message.packets)
                    .sum::<u64>();
                (next, tried) = (next + count, false);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && wait_for_room(socket) => {}
            // A send may return an error of an earlier packet; only a second error is this message's.
            Err(error) if !tried && !is_shortage(&error) => {
                socket.drain_errors();
                tried = true;
            }
            Err(error) => {
                let message = &batch.messages()[next];
                if !rescue(message, error.raw_os_error().unwrap_or(0), sent) {
                    count_refused(socket, message, &bursts[message.burst], &error, sent);
                }
                (next, tried) = (next + 1, false);
            }
        }
    }
    batch.clear();
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
    poll_for(&mut watched, SEND_ROOM_TIMEOUT).is_ok()
        && watched[0].revents().contains(PollFlags::OUT)
}

/// Counts a message that will not be sent.
fn count_refused(
    socket: &Socket,
    message: &Message,
    burst: &Burst<'_>,
    error: &io::Error,
    sent: &mut Sent,
) {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => {
            // The kernel has put the MTU into the error queue, which must be emptied or it wakes the reader.
            if !socket.drain_errors() {
                socket.learn_mtu(burst.outer.source, burst.outer.destination);
            }
            sent.too_big += message.packets;
        }
        _ if is_shortage(error) => sent.no_buffer += message.packets,
        _ => sent.failed += message.packets,
    }
}
