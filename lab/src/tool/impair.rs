//! A box in a wire: frames that come in on one interface go out on the other, late, twice, out of order or never, as a
//! seed decides. Each direction makes its own choices, so that what happens to one does not depend on the timing of the
//! other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::seed::SplitMix64;
use crate::socket;

/// Options of the impairment box.
#[derive(Debug, Clone, clap::Args)]
pub struct Impair {
    /// One interface
    one: String,
    /// The other interface
    other: String,
    /// Milliseconds every frame waits
    #[arg(long, default_value_t = 0.0)]
    delay_ms: f64,
    /// Share of frames that vanish
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Share of frames that go out twice
    #[arg(long, default_value_t = 0.0)]
    duplicate: f64,
    /// Share of frames that wait 5 ms longer than those behind them
    #[arg(long, default_value_t = 0.0)]
    reorder: f64,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// How much longer a reordered frame waits: enough to be overtaken at any rate worth measuring.
const REORDER_DELAY: Duration = Duration::from_millis(5);
const QUEUE_BYTES: libc::c_int = 16 << 20;
const MAX_FRAME_BYTES: usize = 66_000;
/// Frames taken from one side before the other gets its turn.
const MAX_FRAMES_PER_TURN: usize = 64;

impl Impair {
    /// Carries frames until it is ended.
    pub(super) fn run(self) -> io::Result<()> {
        let sides = [open(&self.one)?, open(&self.other)?];
        let mut directions = [OneWay::new(&self, 1), OneWay::new(&self, 2)];
        println!("ready");
        io::stdout().flush()?;
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        loop {
            wait(&sides, next_due(&directions))?;
            for (place, direction) in directions.iter_mut().enumerate() {
                for _ in 0..MAX_FRAMES_PER_TURN {
                    let Some(length) = receive(&sides[place], &mut buffer)? else {
                        break;
                    };
                    direction.take(&buffer[..length], Instant::now());
                }
                while let Some(frame) = direction.due(Instant::now()) {
                    send(&sides[1 - place], &frame)?;
                }
            }
        }
    }
}

/// One way through the box.
struct OneWay {
    chance: SplitMix64,
    delay: Duration,
    loss: f64,
    duplicate: f64,
    reorder: f64,
    waiting: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    taken: u64,
}

impl OneWay {
    fn new(asked: &Impair, number: u64) -> OneWay {
        OneWay {
            chance: SplitMix64::new(asked.seed.wrapping_mul(2).wrapping_add(number)),
            delay: Duration::from_secs_f64(asked.delay_ms.max(0.0) / 1e3),
            loss: asked.loss,
            duplicate: asked.duplicate,
            reorder: asked.reorder,
            waiting: BinaryHeap::new(),
            taken: 0,
        }
    }

    /// Every frame draws the same three numbers, also where one is not used: no factor changes the choices of another.
    fn take(&mut self, frame: &[u8], now: Instant) {
        let (lost, twice, late) = (
            self.draw(self.loss),
            self.draw(self.duplicate),
            self.draw(self.reorder),
        );
        if lost {
            return;
        }
        let due = now + self.delay + if late { REORDER_DELAY } else { Duration::ZERO };
        for _ in 0..=u8::from(twice) {
            self.taken += 1;
            self.waiting
                .push(Reverse((due, self.taken, frame.to_vec())));
        }
    }

    fn draw(&mut self, share: f64) -> bool {
        (self.chance.bits() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }

    /// The next frame whose time has come, in the order of time and then of arrival.
    fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.waiting.peek()?.0.0 > now {
            return None;
        }
        self.waiting.pop().map(|Reverse((_, _, frame))| frame)
    }
}

fn next_due(directions: &[OneWay; 2]) -> Option<Instant> {
    let firsts = directions
        .iter()
        .filter_map(|direction| direction.waiting.peek());
    firsts.map(|Reverse((due, ..))| *due).min()
}

/// Sleeps until a frame comes or one is due.
fn wait(sides: &[OwnedFd; 2], due: Option<Instant>) -> io::Result<()> {
    let mut polls = [0, 1].map(|side: usize| libc::pollfd {
        fd: sides[side].as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
    let time = left.map(|left| libc::timespec {
        tv_sec: left.as_secs() as libc::time_t,
        tv_nsec: left.subsec_nanos().into(),
    });
    let pointer = time
        .as_ref()
        .map_or(std::ptr::null(), |time| time as *const _);
    // SAFETY: two valid descriptors, a timespec that lives for the call or none, no signal mask.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), 2, pointer, std::ptr::null()) };
    match ready {
        -1 => interrupted(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn interrupted(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// A packet socket that receives incoming frames only, not the frames that this process sends.
fn open(interface: &str) -> io::Result<OwnedFd> {
    const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
    socket::packet(interface, |socket| {
        socket::set(socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        socket::receive_room(socket, QUEUE_BYTES)?;
        socket::send_room(socket, QUEUE_BYTES)
    })
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the buffer lives for the call and its size is correct.
    let length = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT,
        )
    };
    match usize::try_from(length) {
        Ok(length) => Ok(Some(length)),
        Err(_) => match io::Error::last_os_error() {
            error if quiet(&error) => Ok(None),
            error => Err(error),
        },
    }
}

/// Nothing there, or an interface that is not up yet.
fn quiet(error: &io::Error) -> bool {
    let down = error.raw_os_error() == Some(libc::ENETDOWN);
    down || matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Waits for room: the box loses only the configured share.
fn send(socket: &OwnedFd, frame: &[u8]) -> io::Result<()> {
    loop {
        // SAFETY: the frame lives for the call and its size is correct.
        let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENETDOWN) => return Ok(()),
            error if error.raw_os_error() == Some(libc::ENOBUFS) || quiet(&error) => {
                std::thread::sleep(Duration::from_micros(50));
            }
            error => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(loss: f64, duplicate: f64, reorder: f64) -> OneWay {
        OneWay::new(
            &Impair {
                one: String::new(),
                other: String::new(),
                delay_ms: 10.0,
                loss,
                duplicate,
                reorder,
                seed: 4,
            },
            1,
        )
    }

    fn through(direction: &mut OneWay, count: u32) -> Vec<u32> {
        let start = Instant::now();
        for number in 0..count {
            direction.take(
                &number.to_be_bytes(),
                start + Duration::from_micros(number.into()),
            );
        }
        assert!(
            direction.due(start + Duration::from_millis(9)).is_none(),
            "nothing goes out early"
        );
        let late = start + Duration::from_secs(60);
        let frames = std::iter::from_fn(|| direction.due(late));
        frames
            .map(|frame| u32::from_be_bytes(frame[..4].try_into().unwrap()))
            .collect()
    }

    #[test]
    fn without_a_wish_frames_pass_in_order() {
        let all: Vec<u32> = (0..1000).collect();
        assert_eq!(through(&mut direction(0.0, 0.0, 0.0), 1000), all);
    }

    #[test]
    fn shares_are_those_asked_for() {
        let kept = through(&mut direction(0.1, 0.0, 0.0), 20_000).len();
        assert!((17_800..18_200).contains(&kept), "{kept}");
        let doubled = through(&mut direction(0.0, 0.05, 0.0), 20_000).len();
        assert!((20_850..21_150).contains(&doubled), "{doubled}");
    }

    #[test]
    fn everything_or_nothing_can_be_lost() {
        assert!(through(&mut direction(1.0, 0.0, 0.0), 500).is_empty());
        assert_eq!(through(&mut direction(0.0, 1.0, 0.0), 500).len(), 1000);
    }

    #[test]
    fn some_frames_are_overtaken_and_none_is_lost() {
        let mut frames = through(&mut direction(0.0, 0.0, 0.02), 5000);
        let mut highest = 0;
        let late = frames.iter().filter(|frame| {
            highest = highest.max(**frame);
            **frame < highest
        });
        let overtaken = late.count();
        assert!((50..150).contains(&overtaken), "{overtaken}");
        frames.sort_unstable();
        assert_eq!(frames, (0..5000).collect::<Vec<_>>());
    }

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let run = || through(&mut direction(0.3, 0.2, 0.1), 300);
        assert_eq!(run(), run());
    }
}
