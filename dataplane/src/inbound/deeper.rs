//! Packets whose first layer is AH, or that have another layer inside: opened round by round, all of a chunk together,
//! so that the ciphers keep their lanes filled.
//!
//! ```text
//!   cursor = a whole packet and the association of its outermost layer
//!   round:  ESP opened in place, AH checked ──► headers moved up, or the tunnel left ──► another layer? the next round
//!                                                                                   └──► policy, with all associations
//! ```
//!
//! What was proven on the way is remembered as a [`Walk`]: commit checks and moves every window on it, outermost first.

use super::batch::{Header, Incoming, Inner, Outcome, Place};
use super::open::{JOBS_PER_CALL, Layer, SocketOpener, check_source};
use crate::buffers::{RangeSplitter, prefix_mut, recycle};
use crate::outbound::MAX_NESTED_SAS;
use ipsec::Dropped;
use ipsec::ah;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::packet::{FragmentKind, Outline};
use ipsec::pmtu;
use ipsec::sa::{Protocol, SaId, SequenceNumber, Spi};
use ipsec::transport::Outside;
use ipsec::wire::{ah::Ah, esp::Esp};
use multibuffer::{OpenJob, Verdict, VerifyJob};
use std::ops::Range;

/// The associations that a packet was proven to come through, outermost first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    steps: [Step; MAX_NESTED_SAS],
    depth: usize,
    /// Whom a drop is charged to that is none of the windows'.
    pub blame: SaIndex,
}

/// One association on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub sa: SaIndex,
    pub sequence: SequenceNumber,
    /// What it carried, as lifetimes count it.
    pub bytes: u64,
}

impl Walk {
    pub fn new(blame: SaIndex) -> Self {
        let step = Step {
            sa: blame,
            sequence: SequenceNumber::default(),
            bytes: 0,
        };
        Self {
            steps: [step; MAX_NESTED_SAS],
            depth: 0,
            blame,
        }
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.depth]
    }

    fn add(&mut self, step: Step) {
        // INVARIANT: no cursor is made for a walk that is full.
        self.steps[self.depth] = step;
        self.depth += 1;
        self.blame = step.sa;
    }

    fn is_full(&self) -> bool {
        self.depth == MAX_NESTED_SAS
    }
}

/// A packet and the layer of it that is to be opened next.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// Its place among the packets of the chunk.
    pub packet: usize,
    /// The whole packet, its IP headers included.
    pub place: Place,
    /// Bytes of its headers before ESP or AH.
    pub headers: usize,
    pub sa: SaIndex,
    pub received: Header,
    pub mtu: usize,
    pub state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Pending,
    Genuine,
    Failed(Dropped),
}

/// Memory that is used again.
#[derive(Default)]
pub(super) struct Rounds {
    pub cursors: Vec<Cursor>,
    next: Vec<Cursor>,
    covered: Vec<u8>,
    checks: Vec<VerifyJob<'static>>,
}

/// Goes on with all cursors until none is left.
pub(super) fn descend(
    opener: &mut SocketOpener<'_>,
    packets: &mut [Incoming],
    walks: &mut Vec<Walk>,
    rounds: &mut Rounds,
    mut jobs: Vec<OpenJob<'static>>,
) -> Vec<OpenJob<'static>> {
    while !rounds.cursors.is_empty() {
        for rebuilt in [false, true] {
            jobs = open(opener, &mut rounds.cursors, rebuilt, jobs);
        }
        check(opener, rounds);
        for cursor in rounds.cursors.drain(..) {
            let packet = &mut packets[cursor.packet];
            let (outcome, next) = settle(opener, packet, walks, cursor);
            packet.outcome = outcome;
            rounds.next.extend(next);
        }
        std::mem::swap(&mut rounds.cursors, &mut rounds.next);
    }
    jobs
}

/// Opens what is ESP in one of the two buffers.
fn open(
    opener: &mut SocketOpener<'_>,
    cursors: &mut [Cursor],
    rebuilt: bool,
    memory: Vec<OpenJob<'static>>,
) -> Vec<OpenJob<'static>> {
    let mut jobs = recycle(memory);
    let snapshot = opener.snapshot;
    let mut splitter = RangeSplitter::new(opener.buffer(rebuilt));
    let is_meant = |cursor: &Cursor| {
        cursor.place.rebuilt == rebuilt && matches!(cursor.received, Header::Esp(_))
    };
    for cursor in cursors.iter().filter(|cursor| is_meant(cursor)) {
        if let Header::Esp(received) = &cursor.received {
            let text = splitter.take(cursor.body());
            jobs.push(received.job(snapshot.sa(cursor.sa), text));
        }
    }
    multibuffer::open(&mut jobs);
    let mut verdicts = [Verdict::Pending; JOBS_PER_CALL];
    for (verdict, job) in verdicts.iter_mut().zip(&jobs) {
        *verdict = job.verdict;
    }
    let memory = recycle(jobs);
    let opened = cursors.iter_mut().filter(|cursor| is_meant(cursor));
    for (cursor, verdict) in opened.zip(verdicts) {
        cursor.state = state(verdict);
    }
    memory
}

fn state(verdict: Verdict) -> State {
    match verdict {
        Verdict::Genuine => State::Genuine,
        Verdict::Pending | Verdict::BadIcv => State::Failed(Dropped::BadIcv),
    }
}

/// Checks what is AH.
fn check(opener: &SocketOpener<'_>, rounds: &mut Rounds) {
    let cursors = &mut rounds.cursors;
    let covered_len = cursors.iter().map(Cursor::covered_len).sum();
    let mut rest = prefix_mut(&mut rounds.covered, covered_len);
    let mut jobs = recycle(std::mem::take(&mut rounds.checks));
    let mut failures = [None; JOBS_PER_CALL];
    for (cursor, failure) in cursors.iter().zip(&mut failures) {
        let Header::Ah(received) = &cursor.received else {
            continue;
        };
        let sa = opener.snapshot.sa(cursor.sa);
        let whole = opener.bytes_at(cursor.place);
        let (headers, covered);
        (covered, rest) = rest.split_at_mut(cursor.covered_len());
        headers = &whole[..covered.len()];
        *failure = ah::cover(&sa.config, headers, received.header_len(), covered).err();
        jobs.push(received.job(sa, covered, &whole[cursor.headers..]));
    }
    multibuffer::verify(&mut jobs);
    let mut verdicts = [Verdict::Pending; JOBS_PER_CALL];
    for (verdict, job) in verdicts.iter_mut().zip(&jobs) {
        *verdict = job.verdict;
    }
    rounds.checks = recycle(jobs);
    let mut verdicts = verdicts.into_iter();
    for (cursor, failure) in cursors.iter_mut().zip(failures) {
        if let Header::Ah(_) = cursor.received {
            let verdict = verdicts.next().map_or(State::Pending, state);
            cursor.state = failure.map_or(verdict, State::Failed);
        }
    }
}

/// What becomes of a packet after one of its layers: done, or one more cursor.
fn settle(
    opener: &mut SocketOpener<'_>,
    packet: &mut Incoming,
    walks: &mut Vec<Walk>,
    cursor: Cursor,
) -> (Outcome, Option<Cursor>) {
    let walk = packet.walk(walks);
    if let State::Failed(reason) = cursor.state {
        walk.blame = cursor.sa;
        return match (walk.depth, reason) {
            // Nothing about it is proven, so no window is asked.
            (0, Dropped::BadIcv) => (Outcome::Forged, None),
            (_, reason) => (Outcome::Genuine(Err(reason)), None),
        };
    }
    let (sa, sequence) = (cursor.sa, cursor.received.sequence());
    let unwrapped = opener.unwrap(&cursor.layer());
    let bytes = unwrapped.map_or(cursor.body().len(), |place| place.len) as u64;
    walk.add(Step {
        sa,
        sequence,
        bytes,
    });
    let outcome = unwrapped.and_then(|place| follow(opener, walk, &cursor, place));
    match outcome {
        Ok(Next::Done(inner)) => (Outcome::Genuine(Ok(inner)), None),
        Ok(Next::Deeper(next)) => (Outcome::Genuine(Err(Dropped::BadInner)), Some(next)),
        Err(reason) => (Outcome::Genuine(Err(reason)), None),
    }
}

enum Next {
    Done(Inner),
    Deeper(Cursor),
}

fn follow(
    opener: &mut SocketOpener<'_>,
    walk: &mut Walk,
    cursor: &Cursor,
    place: Place,
) -> Result<Next, Dropped> {
    let mtu = cursor.mtu_inside(opener.snapshot);
    let outline = Outline::read(opener.bytes_at(place)).map_err(|_| Dropped::BadInner)?;
    check_source(opener.snapshot.sa(cursor.sa), place, &outline)?;
    match enter(opener, walk, cursor.packet, place, &outline, mtu)? {
        Some(next) => Ok(Next::Deeper(next)),
        None => {
            let mut path = [walk.blame; MAX_NESTED_SAS];
            for (place, step) in path.iter_mut().zip(walk.steps()) {
                *place = step.sa;
            }
            let exit = opener.judge(&outline, &path[..walk.steps().len()])?;
            let innermost = walk.blame;
            let inner = opener.deliverable(place, &outline, (innermost, exit), mtu);
            Ok(Next::Done(inner))
        }
    }
}

/// The next layer of a packet, if it has one that ends here. In transport mode ESP or AH is always meant for us; inside
/// a tunnel it may be somebody else's, on its way through.
pub(super) fn enter(
    opener: &SocketOpener<'_>,
    walk: &mut Walk,
    packet: usize,
    place: Place,
    outline: &Outline,
    mtu: usize,
) -> Result<Option<Cursor>, Dropped> {
    let protocol = match outline.protocol {
        number if number == Protocol::Esp.number() => Protocol::Esp,
        number if number == Protocol::Ah.number() => Protocol::Ah,
        _ => return Ok(None),
    };
    if outline.fragment != FragmentKind::Whole {
        return Ok(None);
    }
    let body = opener
        .bytes_at(place)
        .get(outline.header_len..outline.total_len)
        .ok_or(Dropped::BadInner)?;
    let spi = match protocol {
        Protocol::Esp => Esp::new_checked(body).map(|esp| esp.spi()),
        Protocol::Ah => Ah::new_checked(body).map(|ah| ah.spi()),
    };
    let id = SaId {
        destination: outline.destination,
        protocol,
        spi: Spi::new(spi.map_err(|_| Dropped::BadInner)?).ok_or(Dropped::NoSa)?,
    };
    let index = match opener.snapshot.find(&id) {
        Some(index) => index,
        None if place.in_tunnel => return Ok(None),
        None => return Err(Dropped::NoSa),
    };
    if walk.is_full() {
        return Err(Dropped::PolicyMismatch);
    }
    let sa = opener.snapshot.sa(index);
    walk.blame = index;
    if sa.config.encapsulation.is_some() {
        return Err(Dropped::WrongEncapsulation);
    }
    Ok(Some(Cursor {
        packet,
        place: Place {
            len: outline.total_len,
            ..place
        },
        headers: outline.header_len,
        sa: index,
        received: Header::look(sa, body)?,
        mtu,
        state: State::Pending,
    }))
}

impl Incoming {
    /// Its walk; a new one if it has none.
    pub fn walk<'a>(&mut self, walks: &'a mut Vec<Walk>) -> &'a mut Walk {
        if self.walk == 0 {
            walks.push(Walk::new(self.sa));
            self.walk = walks.len() as u32;
        }
        &mut walks[self.walk as usize - 1]
    }

    /// Its walk, begun with the first layer, which was ESP and is open already.
    pub fn begin_walk<'a>(&mut self, walks: &'a mut Vec<Walk>, bytes: usize) -> &'a mut Walk {
        let (sa, sequence) = (self.sa, self.received.sequence());
        let walk = self.walk(walks);
        walk.add(Step {
            sa,
            sequence,
            bytes: bytes as u64,
        });
        walk
    }
}

impl Cursor {
    /// From ESP or AH to the end.
    fn body(&self) -> Range<usize> {
        self.place.start + self.headers..self.place.start + self.place.len
    }

    fn covered_len(&self) -> usize {
        match &self.received {
            Header::Ah(received) => self.headers + received.header_len(),
            Header::Esp(_) | Header::Inside => 0,
        }
    }

    fn layer(&self) -> Layer<'_> {
        Layer {
            rebuilt: self.place.rebuilt,
            headers: self.headers,
            body: self.body(),
            sa: self.sa,
            received: &self.received,
            outer: None,
        }
    }

    /// The largest packet that the way back takes inside this layer.
    fn mtu_inside(&self, snapshot: &Snapshot) -> usize {
        let config = &snapshot.sa(self.sa).config;
        let outside = match config.mode {
            ipsec::sa::Mode::Tunnel => None,
            _ => Some(Outside::plain(config.id.destination.is_ipv6(), 0).len),
        };
        pmtu::bundle_mtu(std::iter::once((config, outside)), self.mtu)
    }
}
