//! Answers to stamped datagrams, for two hosts that have no clock in common: the receiver sends the stamps of some
//! datagrams back, and the sender, which made them by its own clock, reads the time of a round trip.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::stamp::{END_NUMBER, STAMP_BYTES, now, read};
use crate::load::Histogram;

/// Which datagrams the receiver answers, and where to.
pub(super) struct Answering {
    pub to: SocketAddr,
    /// One in so many; 0: none but the last.
    pub one_in: u64,
    /// How many were sent; the last is not counted.
    pub sent: u64,
}

impl Answering {
    /// Answers a datagram of this run that came for the first time, if it is one of those. An answer that cannot be
    /// sent is none: the sender is told how many there were.
    pub(super) fn answer(&mut self, socket: &UdpSocket, datagram: &[u8], number: u64) {
        let is_last = number == END_NUMBER;
        if !is_last && !is_answered(number, self.one_in) {
            return;
        }
        let stamp = datagram.get(..STAMP_BYTES).unwrap_or_default();
        let sent = socket.send_to(stamp, self.to).is_ok();
        self.sent += u64::from(sent && !is_last);
    }
}

/// Whether a datagram is answered. The numbers are mixed first: every tenth of a mix of sizes could have one size, and
/// every tenth of datagrams that go in trains one place in them.
fn is_answered(number: u64, one_in: u64) -> bool {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    one_in > 0 && (number.wrapping_mul(MIX) >> 32).is_multiple_of(one_in)
}

/// For the answer to the last datagram, after it was sent the last time.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the end is looked for while nothing arrives.
const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// Reads answers until the last one, or until none is to be expected any more.
pub(super) fn collect(
    socket: &UdpSocket,
    run: u32,
    complete: &AtomicBool,
    all_sent: &AtomicBool,
) -> io::Result<Histogram> {
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    let (mut times, mut sent_at, mut buffer) = (Histogram::default(), None, [0; 64]);
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => match read(&buffer[..length], run) {
                Some((END_NUMBER, _)) => {
                    complete.store(true, Ordering::Relaxed);
                    return Ok(times);
                }
                Some((_, made)) => times.add(now().saturating_sub(made).max(1)),
                None => {}
            },
            // Nothing came in time; or an ICMP error for a datagram that came too early or too late.
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        if all_sent.load(Ordering::Relaxed) {
            let since = *sent_at.get_or_insert_with(Instant::now);
            if since.elapsed() > LAST_ANSWER_TIMEOUT {
                return Ok(times);
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
            | io::ErrorKind::TimedOut
            | io::ErrorKind::WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_one_in_so_many_is_answered_and_none_where_none_is_asked_for() {
        let answered = |one_in| {
            (0..30_000)
                .filter(|number| is_answered(*number, one_in))
                .count()
        };
        assert_eq!((answered(0), answered(1)), (0, 30_000));
        let tenth = answered(10);
        assert!((2700..3300).contains(&tenth), "{tenth}");
    }

    #[test]
    fn datagrams_of_every_place_in_a_train_and_every_size_of_a_mix_are_answered() {
        for length in [10, 12, 44] {
            for place in 0..length {
                let mut numbers = (0..10_000).map(|train| train * length + place);
                assert!(
                    numbers.any(|number| is_answered(number, length)),
                    "{place} of {length}"
                );
            }
        }
    }
}
