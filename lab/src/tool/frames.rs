//! Stamped datagrams, sent at a steady rate and counted where they arrive. Each carries a number and the time it was made,
//! by a clock that all namespaces of a machine share, so the receiver knows what was lost, doubled, overtaken and how long
//! each was on its way. Several go through the kernel in one call (UDP_SEGMENT) when the rate asks for it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::load::Histogram;

/// Number, time and run: what fits the smallest datagram.
pub(crate) const STAMP: usize = 20;
/// The number of the datagrams that end a run.
const END: u64 = u64::MAX;
/// At most so much goes in one call: the kernel's limits are 64 segments and 65 507 bytes.
const MOST_SEGMENTS: usize = 44;
const MOST_BYTES: usize = 65_000;
/// Within this time what is due goes together: the pace is even down to here.
const TICK: Duration = Duration::from_micros(200);

/// What the sender is told.
#[derive(Debug, clap::Args)]
pub struct Send {
    /// Where the receiver listens
    to: SocketAddr,
    /// Bytes of user data in each datagram
    #[arg(long)]
    bytes: usize,
    /// Datagrams per second; 0: as many as go
    #[arg(long)]
    rate: f64,
    /// How long, in milliseconds
    #[arg(long)]
    milliseconds: u64,
    /// Marks the datagrams of this run
    #[arg(long)]
    run: u32,
}

/// What the sender did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams sent.
    pub sent: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Datagrams that the sender could not send in time: where there are many, the sender is the limit.
    pub behind: u64,
}

impl Send {
    pub(super) fn run(self) -> io::Result<Sent> {
        let any: SocketAddr = match self.to {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(self.to)?;
        let bytes = self.bytes.max(STAMP);
        segment(&socket, bytes)?;
        let done = self.pace(&socket, bytes)?;
        self.end(&socket, bytes);
        Ok(done)
    }

    /// Sends what is due, again and again.
    fn pace(&self, socket: &UdpSocket, bytes: usize) -> io::Result<Sent> {
        let mut most = (MOST_BYTES / bytes).clamp(1, MOST_SEGMENTS);
        let mut buffer = vec![0; most * bytes];
        let (started, length) = (Instant::now(), Duration::from_millis(self.milliseconds));
        let mut sent = 0u64;
        loop {
            let gone = started.elapsed();
            if gone >= length {
                break;
            }
            let due = match self.rate > 0.0 {
                true => (gone.as_secs_f64() * self.rate) as u64 + 1,
                false => sent + most as u64,
            };
            let count = due.saturating_sub(sent).min(most as u64) as usize;
            if count == 0 {
                self.rest(started, sent);
                continue;
            }
            for (place, datagram) in buffer[..count * bytes].chunks_mut(bytes).enumerate() {
                stamp(datagram, self.run, sent + place as u64, now());
            }
            match socket.send(&buffer[..count * bytes]) {
                Ok(_) => sent += count as u64,
                Err(error) if passing(&error) => {}
                // The path has become narrower than a datagram: the kernel does not segment then, but it fragments.
                Err(error) if most > 1 && too_long(&error) => {
                    most = 1;
                    segment(socket, 0)?;
                }
                // The very message that told the kernel so was lost, as on any narrow path.
                Err(error) if too_long(&error) => sent += count as u64,
                Err(error) => return Err(error),
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let asked = (self.rate * length.as_secs_f64()) as u64;
        Ok(Sent {
            sent,
            seconds,
            behind: asked.saturating_sub(sent),
        })
    }

    /// Sleeps until the next is due, but at least half a tick: spinning would take the processor that is measured.
    fn rest(&self, started: Instant, sent: u64) {
        let next = started + Duration::from_secs_f64(sent as f64 / self.rate);
        let left = next.saturating_duration_since(Instant::now());
        std::thread::sleep(left.max(TICK / 2));
    }

    /// Tells the receiver, often enough that a lossy path lets one through, after what is under way has arrived.
    fn end(&self, socket: &UdpSocket, bytes: usize) {
        let mut last = vec![0; bytes];
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            stamp(&mut last, self.run, END, now());
            // A lost end is not tragic: the receiver has its own time.
            let _ = socket.send(&last);
        }
    }
}

fn passing(error: &io::Error) -> bool {
    let full = error.raw_os_error() == Some(libc::ENOBUFS);
    full || matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn too_long(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL))
}

fn segment(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    const UDP_SEGMENT: libc::c_int = 103;
    set(socket, libc::IPPROTO_UDP, UDP_SEGMENT, bytes as libc::c_int)
}

fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    let pointer: *const libc::c_int = &value;
    // SAFETY: the value lives for the call and its size is told truthfully.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer.cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn stamp(datagram: &mut [u8], run: u32, number: u64, at: u64) {
    datagram[..8].copy_from_slice(&number.to_be_bytes());
    datagram[8..16].copy_from_slice(&at.to_be_bytes());
    datagram[16..STAMP].copy_from_slice(&run.to_be_bytes());
}

/// Nanoseconds of the monotonic clock, which is one for all namespaces of a machine.
fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What the receiver is told.
#[derive(Debug, clap::Args)]
pub struct Receive {
    /// Where to listen
    listen: SocketAddr,
    /// Milliseconds without any datagram after which it gives up
    #[arg(long, default_value_t = 3000)]
    patience: u64,
    /// Counts the datagrams of this run only
    #[arg(long)]
    run: u32,
}

/// What became of the datagrams.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Received {
    /// Different datagrams that arrived.
    pub received: u64,
    /// Bytes of user data in them.
    pub bytes: u64,
    /// Copies beyond the first.
    pub duplicates: u64,
    /// Datagrams that a later one had overtaken (RFC 4737 3).
    pub reordered: u64,
    /// How far back the latest of them was, in datagrams (RFC 4737 4.2.1, counted in numbers).
    pub reorder_distance: u64,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// The longest time in which nothing arrived, in nanoseconds.
    #[serde(default)]
    pub longest_gap: u64,
    /// Nanoseconds on the way.
    pub latency: Histogram,
}

impl Receive {
    pub(super) fn run(self) -> io::Result<Received> {
        let socket = UdpSocket::bind(self.listen)?;
        socket.set_read_timeout(Some(Duration::from_millis(self.patience)))?;
        // More room lets the receiver be late without a loss; where it is not allowed, the usual room has to do.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20)
            .or_else(|_| set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20));
        let mut tally = Tally::default();
        let mut post = Post::new();
        loop {
            match post.next(&socket) {
                Ok(count) => {
                    let at = now();
                    for datagram in (0..count).map(|place| post.datagram(place)) {
                        if tally.hear(datagram, self.run, at) {
                            return Ok(tally.end());
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Ok(tally.end());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

const LETTERS: usize = 64;
const LARGEST: usize = 66_000;

/// Many datagrams in one call.
struct Post {
    buffers: Vec<Vec<u8>>,
    lengths: Vec<usize>,
}

impl Post {
    fn new() -> Post {
        Post {
            buffers: vec![vec![0; LARGEST]; LETTERS],
            lengths: vec![0; LETTERS],
        }
    }

    /// Waits for the first and takes what else is there.
    fn next(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let mut parts: Vec<libc::iovec> = Vec::with_capacity(LETTERS);
        parts.extend(self.buffers.iter_mut().map(|buffer| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        }));
        // SAFETY: all-zero headers are valid; each points at one iovec, which points at a buffer; all of them live for
        // the call and their sizes are told truthfully.
        let count = unsafe {
            let mut headers: Vec<libc::mmsghdr> =
                (0..LETTERS).map(|_| std::mem::zeroed()).collect();
            for (header, part) in headers.iter_mut().zip(&mut parts) {
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_iovlen = 1;
            }
            let count = libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                LETTERS as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            );
            for (length, header) in self.lengths.iter_mut().zip(&headers) {
                *length = header.msg_len as usize;
            }
            count
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn datagram(&self, place: usize) -> &[u8] {
        &self.buffers[place][..self.lengths[place].min(LARGEST)]
    }
}

/// Keeps count.
#[derive(Default)]
struct Tally {
    found: Received,
    seen: Vec<u64>,
    highest: Option<u64>,
    first: u64,
    last: u64,
}

impl Tally {
    /// Whether this datagram ends the run.
    fn hear(&mut self, datagram: &[u8], run: u32, at: u64) -> bool {
        let Some((number, made)) = read(datagram, run) else {
            return false;
        };
        if number == END {
            return true;
        }
        if self.seen_before(number) {
            self.found.duplicates += 1;
            return false;
        }
        self.found.received += 1;
        self.found.bytes += datagram.len() as u64;
        self.found.latency.add(at.saturating_sub(made).max(1));
        match self.highest {
            Some(highest) if number < highest => {
                self.found.reordered += 1;
                self.found.reorder_distance = self.found.reorder_distance.max(highest - number);
            }
            _ => self.highest = Some(number),
        }
        match self.first {
            0 => self.first = made,
            _ => {
                let gap = at.saturating_sub(self.last);
                self.found.longest_gap = self.found.longest_gap.max(gap);
            }
        }
        self.last = at;
        false
    }

    /// One bit for each number; a number beyond any sender's reach is a forgery and not remembered.
    fn seen_before(&mut self, number: u64) -> bool {
        const REACH: u64 = 1 << 33;
        if number >= REACH {
            return true;
        }
        let (word, bit) = ((number / 64) as usize, number % 64);
        if word >= self.seen.len() {
            self.seen.resize((word + 1).next_power_of_two(), 0);
        }
        let before = self.seen[word] >> bit & 1 == 1;
        self.seen[word] |= 1 << bit;
        before
    }

    fn end(mut self) -> Received {
        self.found.seconds = self.last.saturating_sub(self.first) as f64 / 1e9;
        self.found
    }
}

/// The number and time of a datagram of this run.
fn read(datagram: &[u8], run: u32) -> Option<(u64, u64)> {
    let word = |at: usize| -> Option<u64> {
        let bytes = datagram.get(at..at + 8)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    };
    let theirs = u32::from_be_bytes(datagram.get(16..STAMP)?.try_into().ok()?);
    (theirs == run).then_some((word(0)?, word(8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(numbers: &[u64]) -> Received {
        let mut tally = Tally::default();
        for (place, number) in numbers.iter().enumerate() {
            let mut datagram = [0; 32];
            stamp(&mut datagram, 7, *number, 1000 + place as u64);
            assert!(!tally.hear(&datagram, 7, 3000 + place as u64));
        }
        tally.end()
    }

    #[test]
    fn duplicates_and_overtaken_datagrams_are_told_apart() {
        let found = heard(&[0, 1, 4, 2, 2, 3, 5, 0]);
        assert_eq!((found.received, found.duplicates), (6, 2));
        assert_eq!((found.reordered, found.reorder_distance), (2, 2));
        assert_eq!((found.bytes, found.latency.count()), (192, 6));
    }

    #[test]
    fn an_orderly_run_has_no_reordering_and_its_time_is_counted() {
        let found = heard(&[0, 1, 2, 3]);
        assert_eq!((found.reordered, found.duplicates), (0, 0));
        assert_eq!(found.seconds, 2003e-9);
        assert_eq!(found.latency.largest(), 2000);
        assert_eq!(found.longest_gap, 1);
    }

    #[test]
    fn datagrams_of_another_run_short_ones_and_wild_numbers_are_not_counted() {
        let mut tally = Tally::default();
        let mut datagram = [0; 32];
        stamp(&mut datagram, 8, 1, 1);
        assert!(!tally.hear(&datagram, 7, 2) && !tally.hear(&datagram[..19], 8, 2));
        stamp(&mut datagram, 7, u64::MAX - 1, 1);
        assert!(!tally.hear(&datagram, 7, 2));
        stamp(&mut datagram, 7, END, 1);
        assert!(tally.hear(&datagram, 7, 2));
        assert_eq!(tally.end().received, 0);
    }

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
        std::thread::sleep(Duration::from_millis(100));
        let send = Send {
            to: probe,
            bytes: 100,
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
