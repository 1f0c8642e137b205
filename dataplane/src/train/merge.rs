//! Merging (GRO): packets of one flow become one train again, headers once and payloads where they lie.
//!
//! ```text
//!   [ IP TCP ][ payload 0 ]  [ IP TCP ][ payload 1 ]  [ IP TCP ][ payload 2 ]      as they were opened
//!   [ IP TCP ][ payload 0 ][ payload 1 ][ payload 2 ]                              one gathered write
//! ```
//!
//! Packets are merged only where [`super::segments`] would restore the same bytes: the receiver of the train must see
//! what the sender sent. [`GroCandidate::read`] reads a packet alone and may run on any thread; [`Merger`] runs in
//! order. The kernel does not check a train's checksum again, so a candidate's own must be right.

mod candidate;

pub use candidate::GroCandidate;

use super::fields::{PSH, TCP_FLAGS, put_u16};
use super::{ChecksumSpot, Offload, Segmentation};
use candidate::{Flow, GroKey, Kind};
use ipsec::wire::checksum::Sum;

/// Trains that may grow at the same time: flows that alternate within a batch.
const MAX_OPEN_GROUPS: usize = 8;
/// The most segments of a train: what `writev` and older kernels' UDP segmentation accept.
const MAX_TCP_SEGMENTS: u32 = 128;
const MAX_UDP_SEGMENTS: u32 = 64;
/// The most bytes of a train, by its own length field.
const MAX_TRAIN_BYTES: usize = 65_535;

/// How IPv4 identifications continue within a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counting {
    /// Only one packet so far, or IPv6.
    Unknown,
    Up,
    /// RFC 6864 4.1: with DF set the field means nothing, and some senders leave it alone.
    Still,
}

/// A train that grows, or a single packet.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    flow: Flow,
    key: Option<GroKey>,
    first: u32,
    last: u32,
    count: u32,
    payload_len: usize,
    counting: Counting,
    /// Whether the last packet had PSH set; the train then has, too.
    pushed: bool,
}

/// Puts the packets of one batch into groups, in the order of each group's first packet. Reused from batch to batch.
#[derive(Default)]
pub struct Merger {
    groups: Vec<Group>,
    /// For each group member the next one, by packet number.
    next: Vec<u32>,
    /// Groups that may still grow, oldest first.
    open: Vec<u32>,
}

/// No next packet.
const NO_NEXT: u32 = u32::MAX;

impl Merger {
    /// One with room for `packets` packets a batch.
    pub fn with_room(packets: usize) -> Self {
        Self {
            groups: Vec::with_capacity(packets),
            next: Vec::with_capacity(packets),
            open: Vec::with_capacity(MAX_OPEN_GROUPS),
        }
    }

    /// Forgets everything, for the next batch of `packets` packets.
    pub fn begin(&mut self, packets: usize) {
        self.groups.clear();
        self.open.clear();
        self.next.clear();
        self.next.resize(packets, NO_NEXT);
    }

    /// Makes room for `packets` packets in all.
    pub fn extend(&mut self, packets: usize) {
        self.next.resize(packets, NO_NEXT);
    }

    /// Adds packet `number`, each at most once and in order. `head` returns the header bytes of this packet or of one
    /// added before; it is called only for those that may share a train.
    pub fn push<'a>(
        &mut self,
        number: u32,
        candidate: &GroCandidate,
        head: impl Fn(u32) -> &'a [u8],
    ) {
        let Some(key) = &candidate.key else {
            self.close(candidate.flow);
            return self.start(number, candidate);
        };
        let known = self.open.iter().position(|&group| {
            let group = &self.groups[group as usize];
            group.flow == candidate.flow
        });
        let Some(place) = known else {
            return self.start(number, candidate);
        };
        let group = &mut self.groups[self.open[place] as usize];
        if !group.admits(key, || (head(group.first), head(number))) {
            self.open.remove(place);
            return self.start(number, candidate);
        }
        self.next[group.last as usize] = number;
        if group.add(number, key) {
            self.open.remove(place);
        }
    }

    /// Closes the groups that a packet of `flow` must not overtake.
    fn close(&mut self, flow: Flow) {
        let groups = &self.groups;
        self.open
            .retain(|&group| !groups[group as usize].flow.meets(flow));
    }

    fn start(&mut self, number: u32, candidate: &GroCandidate) {
        let group = Group::new(number, candidate);
        if candidate.key.is_some_and(|key| !key.last) {
            if self.open.len() == MAX_OPEN_GROUPS {
                self.open.remove(0);
            }
            self.open.push(self.groups.len() as u32);
        }
        self.groups.push(group);
    }

    /// The groups, in order.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The packets of `group`, in order.
    pub fn members(&self, group: &Group) -> impl Iterator<Item = u32> {
        let follow =
            |&number: &u32| Some(self.next[number as usize]).filter(|&next| next != NO_NEXT);
        std::iter::successors(Some(group.first), follow)
    }
}

impl Group {
    fn new(number: u32, candidate: &GroCandidate) -> Self {
        Self {
            flow: candidate.flow,
            key: candidate.key,
            first: number,
            last: number,
            count: 1,
            payload_len: candidate.key.map_or(0, |key| usize::from(key.payload_len)),
            counting: Counting::Unknown,
            pushed: candidate.key.is_some_and(|key| key.last),
        }
    }

    /// How many packets it holds.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The first packet.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// INVARIANT: an open group ends with a full segment without PSH.
    fn admits<'a>(&self, key: &GroKey, heads: impl Fn() -> (&'a [u8], &'a [u8])) -> bool {
        let Some(mine) = &self.key else { return false };
        let total = usize::from(mine.head_len) + self.payload_len + usize::from(key.payload_len);
        if mine.kind != key.kind
            || mine.head_len != key.head_len
            || key.payload_len > mine.payload_len
            || total > MAX_TRAIN_BYTES
        {
            return false;
        }
        let follows = match mine.kind {
            Kind::Tcp => key.sequence == mine.sequence.wrapping_add(self.payload_len as u32),
            Kind::Udp => true,
        };
        let (first, this) = heads();
        follows && mine.same_head(first, this) && self.counting_with(key, first).is_some()
    }

    /// How identifications would continue with this packet; `None` if it cannot join.
    fn counting_with(&self, key: &GroKey, first: &[u8]) -> Option<Counting> {
        let mine = self.key?;
        if first[0] >> 4 == 6 {
            return Some(Counting::Unknown);
        }
        let up = mine.identification.wrapping_add(self.count as u16) == key.identification;
        let still = mine.identification == key.identification && first[6] & 0x40 != 0;
        match self.counting {
            Counting::Unknown | Counting::Up if up => Some(Counting::Up),
            Counting::Unknown | Counting::Still if still => Some(Counting::Still),
            _ => None,
        }
    }

    /// Adds an admitted packet; returns whether the group is complete.
    fn add(&mut self, number: u32, key: &GroKey) -> bool {
        let Some(mine) = self.key else { return true };
        if self.count == 1 {
            let up = mine.identification.wrapping_add(1) == key.identification;
            self.counting = if up { Counting::Up } else { Counting::Still };
        }
        self.last = number;
        self.count += 1;
        self.payload_len += usize::from(key.payload_len);
        self.pushed = key.last;
        let most = match mine.kind {
            Kind::Tcp => MAX_TCP_SEGMENTS,
            Kind::Udp => MAX_UDP_SEGMENTS,
        };
        key.last || key.payload_len < mine.payload_len || self.count == most
    }

    /// What the kernel still has to do to the train.
    pub fn offload(&self) -> Offload {
        let Some(key) = self.key.filter(|_| self.count > 1) else {
            return Offload::default();
        };
        let size = key.payload_len;
        Offload {
            segmentation: match key.kind {
                Kind::Tcp => Segmentation::Tcp { size },
                Kind::Udp => Segmentation::Udp { size },
            },
            checksum: Some(ChecksumSpot {
                start: key.transport,
                offset: key.kind.checksum_at() as u16,
            }),
        }
    }

    /// Turns `head`, a copy of the head of the group's first packet, into the head of the train.
    pub fn rewrite_head(&self, head: &mut [u8]) {
        let Some(key) = &self.key else { return };
        let transport = usize::from(key.transport);
        let upper_len = head.len() - transport + self.payload_len;
        let sum = write_ip_len(head, transport, upper_len);
        let upper = &mut head[transport..];
        match key.kind {
            Kind::Tcp if self.pushed => upper[TCP_FLAGS] |= PSH,
            Kind::Tcp => {}
            Kind::Udp => put_u16(upper, 4, upper_len as u16),
        }
        put_u16(upper, key.kind.checksum_at(), sum);
    }
}

/// Writes the length of the train into its IP header and returns the pseudo-header's unfinished sum.
fn write_ip_len(head: &mut [u8], transport: usize, upper_len: usize) -> u16 {
    let addresses = if head[0] >> 4 == 6 {
        put_u16(head, 4, upper_len as u16);
        8..40
    } else {
        put_u16(head, 2, (transport + upper_len) as u16);
        put_u16(head, 10, 0);
        let checksum = Sum::new().bytes(&head[..transport]).finish();
        put_u16(head, 10, checksum);
        12..20
    };
    let protocol = if addresses.start == 8 {
        head[6]
    } else {
        head[9]
    };
    Sum::new()
        .bytes(&head[addresses])
        .word(upper_len as u16)
        .word(u16::from(protocol))
        .unfinished()
}
