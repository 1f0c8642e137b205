//! Merging: packets that belong together become one train again, headers once and payloads where they lie.
//!
//! ```text
//!   [ IP TCP ][ payload 0 ]  [ IP TCP ][ payload 1 ]  [ IP TCP ][ payload 2 ]      as they were opened
//!   [ IP TCP ][ payload 0 ][ payload 1 ][ payload 2 ]                              one gathered write
//! ```
//!
//! Only what [`super::cut`] would take apart into the same bytes is put together: a receiver behind the train must
//! see what the sender sent. [`Passenger::read`] looks at a packet alone and may run on any thread; [`Merger`] runs in
//! order. The kernel does not check a train's checksum again, so that a passenger's own must be right.

use super::fields::{
    ACK, PSH, TCP, TCP_CHECKSUM, TCP_FLAGS, UDP, UDP_CHECKSUM, UDP_HEADER_LEN, get_u16, get_u32,
    put_u16,
};
use super::{ChecksumSpot, Offload, Segmentation, Takes};
use ipsec::packet::{FragmentKind, Outline};
use ipsec::wire::checksum::Sum;
use std::net::IpAddr;

/// Trains that may grow at the same time: flows that take turns within a batch.
const OPEN: usize = 8;
/// Most segments of a train: what `writev` and older kernels' UDP segmentation take.
const MOST_TCP: u32 = 128;
const MOST_UDP: u32 = 64;
/// Most bytes of a train, by its own length field.
const MOST_BYTES: usize = 65_535;

/// What merging needs to know of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passenger {
    flow: Flow,
    /// Absent if the packet must travel alone.
    seat: Option<Seat>,
}

/// Who must not overtake whom. A collision only costs a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flow {
    /// Of both addresses.
    pair: u32,
    /// Of protocol and ports; absent where they cannot be known.
    upper: Option<u32>,
}

/// A packet that may share a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seat {
    kind: Kind,
    /// Where the transport header starts, and where the payload does.
    transport: u16,
    head_len: u16,
    payload_len: u16,
    /// TCP's.
    sequence: u32,
    /// IPv4's.
    identification: u16,
    /// Whether nothing may follow it: TCP's PSH.
    last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Tcp,
    Udp,
}

/// How IPv4 identifications go on within a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counting {
    /// Only one packet so far, or IPv6.
    Unknown,
    Up,
    /// RFC 6864 4.1: with DF set the field means nothing, and some senders leave it alone.
    Still,
}

impl Passenger {
    /// Reads what merging needs of `packet`, whose outline was read. A sink that takes no such train makes it travel
    /// alone, and its checksum is not looked at.
    pub fn read(packet: &[u8], outline: &Outline, takes: Takes) -> Self {
        Self {
            flow: Flow::of(outline),
            seat: Seat::read(packet, outline, takes),
        }
    }

    /// Bytes of header, IP and transport, if it may share a train; of the whole packet otherwise.
    pub fn head_len(&self) -> Option<usize> {
        self.seat.map(|seat| usize::from(seat.head_len))
    }
}

impl Flow {
    fn of(outline: &Outline) -> Self {
        let mix = |hash: u32, word: u32| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b1);
        let fold = |hash: u32, address: IpAddr| match address {
            IpAddr::V4(v4) => mix(hash, v4.to_bits()),
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                (0..4).fold(hash, |hash, word| mix(hash, (bits >> (32 * word)) as u32))
            }
        };
        let upper = |(source, destination)| {
            let ports = u32::from(source) << 16 | u32::from(destination);
            mix(u32::from(outline.protocol), ports)
        };
        let known = outline.fragment == FragmentKind::Whole;
        Self {
            pair: fold(fold(0, outline.source), outline.destination),
            upper: outline.ports.filter(|_| known).map(upper),
        }
    }

    /// Whether a packet of this flow must stay behind one of `other`.
    fn meets(self, other: Self) -> bool {
        self.pair == other.pair
            && (self.upper == other.upper || self.upper.is_none() || other.upper.is_none())
    }
}

impl Seat {
    fn read(packet: &[u8], outline: &Outline, takes: Takes) -> Option<Self> {
        let packet = packet.get(..outline.total_len)?;
        let v4 = outline.source.is_ipv4();
        let plain_header = outline.header_len == if v4 { 20 } else { 40 };
        if outline.fragment != FragmentKind::Whole || !plain_header {
            return None;
        }
        let seat = match outline.protocol {
            TCP if v4 && takes.tcp_v4 || !v4 && takes.tcp_v6 => Self::tcp(packet, outline),
            UDP if takes.udp => Self::udp(packet, outline),
            _ => None,
        }?;
        seat.is_exact(packet, outline).then_some(seat)
    }

    fn tcp(packet: &[u8], outline: &Outline) -> Option<Self> {
        let header = packet.get(outline.header_len..)?;
        let words = header.get(12)?;
        let flags = header.get(TCP_FLAGS)?;
        let len = usize::from(words >> 4) * 4;
        let carries_data = len >= 20 && len < header.len();
        // The low half of `words` is reserved, and every other flag has a meaning for one segment only.
        if !carries_data || words & 0x0f != 0 || flags & !PSH != ACK {
            return None;
        }
        Some(Self {
            kind: Kind::Tcp,
            sequence: get_u32(header, 4),
            last: flags & PSH != 0,
            ..Self::new(Kind::Tcp, packet, outline, len)
        })
    }

    fn udp(packet: &[u8], outline: &Outline) -> Option<Self> {
        let header = packet.get(outline.header_len..)?;
        let carries_data = header.len() > UDP_HEADER_LEN;
        if !carries_data || usize::from(get_u16(header, 4)) != header.len() {
            return None;
        }
        Some(Self::new(Kind::Udp, packet, outline, UDP_HEADER_LEN))
    }

    fn new(kind: Kind, packet: &[u8], outline: &Outline, transport_len: usize) -> Self {
        let head_len = outline.header_len + transport_len;
        Self {
            kind,
            transport: outline.header_len as u16,
            head_len: head_len as u16,
            payload_len: (packet.len() - head_len) as u16,
            sequence: 0,
            identification: get_u16(packet, 4),
            last: false,
        }
    }

    /// Whether its checksums are right, and in the one form that cutting would write.
    fn is_exact(&self, packet: &[u8], outline: &Outline) -> bool {
        let (ip, upper) = packet.split_at(outline.header_len);
        let written = get_u16(upper, self.kind.checksum_at());
        let form = match self.kind {
            Kind::Tcp => written != 0xffff,
            Kind::Udp => written != 0,
        };
        let ip_is_right = outline.source.is_ipv6()
            || get_u16(ip, 10) != 0xffff && Sum::new().bytes(ip).finish() == 0;
        let sum = Sum::new()
            .pseudo_header(
                outline.source,
                outline.destination,
                outline.protocol,
                upper.len(),
            )
            .bytes(upper);
        form && ip_is_right && sum.finish() == 0
    }
}

impl Kind {
    fn checksum_at(self) -> usize {
        match self {
            Self::Tcp => TCP_CHECKSUM,
            Self::Udp => UDP_CHECKSUM,
        }
    }
}

/// A train that grows, or a packet that travels alone.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    flow: Flow,
    seat: Option<Seat>,
    first: u32,
    last: u32,
    count: u32,
    payload_len: usize,
    counting: Counting,
    /// Whether the last passenger carried PSH, which the train then does.
    pushed: bool,
}

/// Puts the packets of one batch into groups, in the order of each group's first. Reused from batch to batch.
#[derive(Default)]
pub struct Merger {
    groups: Vec<Group>,
    /// For each group member the next one, by packet number.
    next: Vec<u32>,
    /// Groups that may still grow, oldest first.
    open: Vec<u32>,
}

/// "No next one".
const END: u32 = u32::MAX;

impl Merger {
    /// One with room for `packets` packets a batch.
    pub fn with_room(packets: usize) -> Self {
        Self {
            groups: Vec::with_capacity(packets),
            next: Vec::with_capacity(packets),
            open: Vec::with_capacity(OPEN),
        }
    }

    /// Forgets everything, for the next batch of `packets` packets.
    pub fn begin(&mut self, packets: usize) {
        self.groups.clear();
        self.open.clear();
        self.next.clear();
        self.next.resize(packets, END);
    }

    /// Adds packet `number`, each at most once and in order. `head` finds the header bytes of a packet added before,
    /// and of this one; it is asked only about those that may share a train.
    pub fn push<'a>(&mut self, number: u32, passenger: &Passenger, head: impl Fn(u32) -> &'a [u8]) {
        let Some(seat) = &passenger.seat else {
            self.close(passenger.flow);
            return self.start(number, passenger);
        };
        let known = self.open.iter().position(|&group| {
            let group = &self.groups[group as usize];
            group.flow == passenger.flow
        });
        let Some(place) = known else {
            return self.start(number, passenger);
        };
        let group = &mut self.groups[self.open[place] as usize];
        if !group.admits(seat, || (head(group.first), head(number))) {
            self.open.remove(place);
            return self.start(number, passenger);
        }
        self.next[group.last as usize] = number;
        if group.add(number, seat) {
            self.open.remove(place);
        }
    }

    /// Whatever may not be overtaken by a packet of `flow` grows no more.
    fn close(&mut self, flow: Flow) {
        let groups = &self.groups;
        self.open
            .retain(|&group| !groups[group as usize].flow.meets(flow));
    }

    fn start(&mut self, number: u32, passenger: &Passenger) {
        let group = Group::new(number, passenger);
        if passenger.seat.is_some_and(|seat| !seat.last) {
            if self.open.len() == OPEN {
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
        let follow = |&number: &u32| Some(self.next[number as usize]).filter(|&next| next != END);
        std::iter::successors(Some(group.first), follow)
    }
}

impl Group {
    fn new(number: u32, passenger: &Passenger) -> Self {
        Self {
            flow: passenger.flow,
            seat: passenger.seat,
            first: number,
            last: number,
            count: 1,
            payload_len: passenger
                .seat
                .map_or(0, |seat| usize::from(seat.payload_len)),
            counting: Counting::Unknown,
            pushed: passenger.seat.is_some_and(|seat| seat.last),
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
    fn admits<'a>(&self, seat: &Seat, heads: impl Fn() -> (&'a [u8], &'a [u8])) -> bool {
        let Some(mine) = &self.seat else { return false };
        let total = usize::from(mine.head_len) + self.payload_len + usize::from(seat.payload_len);
        if mine.kind != seat.kind
            || mine.head_len != seat.head_len
            || seat.payload_len > mine.payload_len
            || total > MOST_BYTES
        {
            return false;
        }
        let follows = match mine.kind {
            Kind::Tcp => seat.sequence == mine.sequence.wrapping_add(self.payload_len as u32),
            Kind::Udp => true,
        };
        let (first, this) = heads();
        follows && mine.same_head(first, this) && self.counting_with(seat, first).is_some()
    }

    /// How identifications would count if `seat` joined; `None` if it cannot.
    fn counting_with(&self, seat: &Seat, first: &[u8]) -> Option<Counting> {
        let mine = self.seat?;
        if first[0] >> 4 == 6 {
            return Some(Counting::Unknown);
        }
        let up = mine.identification.wrapping_add(self.count as u16) == seat.identification;
        let still = mine.identification == seat.identification && first[6] & 0x40 != 0;
        match self.counting {
            Counting::Unknown | Counting::Up if up => Some(Counting::Up),
            Counting::Unknown | Counting::Still if still => Some(Counting::Still),
            _ => None,
        }
    }

    /// Takes in an admitted packet; returns whether it was the last one.
    fn add(&mut self, number: u32, seat: &Seat) -> bool {
        let Some(mine) = self.seat else { return true };
        if self.count == 1 {
            let up = mine.identification.wrapping_add(1) == seat.identification;
            self.counting = if up { Counting::Up } else { Counting::Still };
        }
        self.last = number;
        self.count += 1;
        self.payload_len += usize::from(seat.payload_len);
        self.pushed = seat.last;
        let most = match mine.kind {
            Kind::Tcp => MOST_TCP,
            Kind::Udp => MOST_UDP,
        };
        seat.last || seat.payload_len < mine.payload_len || self.count == most
    }

    /// What the kernel still has to do to it.
    pub fn offload(&self) -> Offload {
        let Some(seat) = self.seat.filter(|_| self.count > 1) else {
            return Offload::default();
        };
        let size = seat.payload_len;
        Offload {
            segmentation: match seat.kind {
                Kind::Tcp => Segmentation::Tcp { size },
                Kind::Udp => Segmentation::Udp { size },
            },
            checksum: Some(ChecksumSpot {
                start: seat.transport,
                offset: seat.kind.checksum_at() as u16,
            }),
        }
    }

    /// Makes the head of the group's first packet, of which `head` is a copy, the head of the train.
    pub fn rewrite_head(&self, head: &mut [u8]) {
        let Some(seat) = &self.seat else { return };
        let transport = usize::from(seat.transport);
        let upper_len = head.len() - transport + self.payload_len;
        let sum = write_ip_len(head, transport, upper_len);
        let upper = &mut head[transport..];
        match seat.kind {
            Kind::Tcp if self.pushed => upper[TCP_FLAGS] |= PSH,
            Kind::Tcp => {}
            Kind::Udp => put_u16(upper, 4, upper_len as u16),
        }
        put_u16(upper, seat.kind.checksum_at(), sum);
    }
}

impl Seat {
    /// Whether two heads differ in nothing but lengths, identification, sequence number, PSH and checksums.
    fn same_head(&self, a: &[u8], b: &[u8]) -> bool {
        let transport = usize::from(self.transport);
        let (a_ip, a_upper) = a.split_at(transport);
        let (b_ip, b_upper) = b.split_at(transport);
        let same_ip = match transport {
            20 => a_ip[..2] == b_ip[..2] && a_ip[6..10] == b_ip[6..10] && a_ip[12..] == b_ip[12..],
            _ => a_ip[..4] == b_ip[..4] && a_ip[6..] == b_ip[6..],
        };
        let same_ports = a_upper[..4] == b_upper[..4];
        same_ip
            && same_ports
            && match self.kind {
                Kind::Udp => true,
                Kind::Tcp => {
                    a_upper[8..13] == b_upper[8..13]
                        && a_upper[14..16] == b_upper[14..16]
                        && a_upper[18..] == b_upper[18..]
                }
            }
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
