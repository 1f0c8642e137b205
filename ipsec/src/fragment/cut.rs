//! Cutting a packet into fragments.

use super::UNIT;
use crate::Dropped;
use crate::wire::ip::v4::{self, Ipv4Options};
use crate::wire::ip::v6::{FRAGMENT_HEADER_LEN, FragmentHeader};
use crate::wire::ip::{Chain, Ip, Ipv4, Ipv6, v6};

/// Cuts one packet into fragments of at most an MTU, in order.
#[derive(Clone, Debug)]
pub struct Cutter<'a> {
    headers: Headers<'a>,
    /// What is still to be carried.
    rest: &'a [u8],
    /// Where `rest` begins in the fragmentable part.
    offset: usize,
    /// Bytes of payload in the next fragment if others follow it, and in each after that.
    room: (usize, usize),
}

/// What goes before the payload of each fragment.
#[derive(Clone, Copy, Debug)]
enum Headers<'a> {
    /// Nothing: the packet fits and is passed on as it is.
    None,
    /// The first fragment's header, all options included.
    V4First(Ipv4<'a>),
    /// A later fragment's, with the options that are copied.
    V4Later(Ipv4<'a>),
    /// The part of the headers that every fragment repeats, where in it the next header is named, and the number.
    V6(&'a [u8], usize, u32),
}

impl<'a> Cutter<'a> {
    /// Prepares to cut `packet` to fragments of at most `mtu` bytes; one that fits comes out as it is.
    ///
    /// An IPv4 packet keeps its identification. `identification` is for IPv6's fragment header, and only the source of
    /// a packet may cut that (RFC 8200 4.5): it is for outer headers. [`Dropped::TooBig`] where DF forbids, where the
    /// headers alone do not fit, or where an IPv6 packet is cut already.
    pub fn new(packet: &'a [u8], mtu: usize, identification: u32) -> Result<Self, Dropped> {
        let ip = Ip::new_checked(packet)?;
        let whole = packet.get(..ip.total_len()).ok_or(Dropped::Malformed)?;
        match ip {
            _ if whole.len() <= mtu => Ok(Self::starting(Headers::None, whole, (whole.len(), 0))),
            Ip::V4(ipv4) => Self::of_v4(ipv4, mtu),
            Ip::V6(ipv6) => Self::of_v6(whole, &ipv6, mtu, identification),
        }
    }

    fn starting(headers: Headers<'a>, rest: &'a [u8], room: (usize, usize)) -> Self {
        Self {
            headers,
            rest,
            offset: 0,
            room,
        }
    }

    fn of_v4(ipv4: Ipv4<'a>, mtu: usize) -> Result<Self, Dropped> {
        if ipv4.dont_fragment() {
            return Err(Dropped::TooBig);
        }
        let later = v4::MIN_HEADER_LEN + copied_options(&ipv4).map(<[u8]>::len).sum::<usize>();
        let room = (
            room(mtu, ipv4.header_len())?,
            room(mtu, later.next_multiple_of(4))?,
        );
        Ok(Self {
            offset: ipv4.fragment_offset(),
            ..Self::starting(Headers::V4First(ipv4), ipv4.payload(), room)
        })
    }

    fn of_v6(
        packet: &'a [u8],
        ipv6: &Ipv6<'a>,
        mtu: usize,
        identification: u32,
    ) -> Result<Self, Dropped> {
        let chain = Chain::read(ipv6)?;
        let (before, rest) = packet
            .split_at_checked(chain.transport_at)
            .ok_or(Dropped::Malformed)?;
        let room = room(mtu, before.len() + FRAGMENT_HEADER_LEN)?;
        // RFC 8200 4.5: the first fragment holds all headers, the start of the upper layer included.
        if chain.fragment.is_some() || chain.upper_at + UNIT > before.len() + room {
            return Err(Dropped::TooBig);
        }
        let headers = Headers::V6(before, chain.transport_named_at, identification);
        Ok(Self::starting(headers, rest, (room, room)))
    }

    /// Appends the next fragment to `out` and returns its length; `None` after the last.
    pub fn next_into(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        if self.rest.is_empty() {
            return None;
        }
        let start = out.len();
        let (piece, rest) = self
            .rest
            .split_at_checked(self.room.0)
            .unwrap_or((self.rest, &[]));
        self.headers
            .write(self.offset, piece.len(), !rest.is_empty(), out);
        out.extend_from_slice(piece);
        self.rest = rest;
        self.offset += piece.len();
        self.room.0 = self.room.1;
        if let Headers::V4First(ipv4) = self.headers {
            self.headers = Headers::V4Later(ipv4);
        }
        Some(out.len() - start)
    }
}

impl Headers<'_> {
    fn write(&self, offset: usize, piece_len: usize, more: bool, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::V4First(ipv4) => {
                let start = out.len();
                out.extend_from_slice(ipv4.header());
                finish_v4(ipv4, start, offset, piece_len, more, out);
            }
            Self::V4Later(ipv4) => {
                let start = out.len();
                out.extend_from_slice(ipv4.fixed_header());
                copied_options(ipv4).for_each(|option| out.extend_from_slice(option));
                out.resize(start + (out.len() - start).next_multiple_of(4), 0);
                finish_v4(ipv4, start, offset, piece_len, more, out);
            }
            Self::V6(before, named_at, identification) => {
                let header = FragmentHeader {
                    at: before.len(),
                    named_at: *named_at,
                    offset,
                    more,
                    identification: *identification,
                };
                v6::append_fragment_headers(before, &header, piece_len, out);
            }
        }
    }
}

/// Mends the header that was copied to `start`: length, place and checksum.
fn finish_v4(
    ipv4: &Ipv4<'_>,
    start: usize,
    offset: usize,
    piece_len: usize,
    more: bool,
    out: &mut [u8],
) {
    // A fragment cut once more keeps "more follow" to its very last piece.
    let more = more || ipv4.more_fragments();
    if let Some(header) = out.get_mut(start..) {
        let len = header.len();
        v4::set_fragment(header, len, len + piece_len, offset, more);
    }
}

/// The options that RFC 791 3.1 requires in every fragment: those with the copied flag.
fn copied_options<'a>(ipv4: &Ipv4<'a>) -> impl Iterator<Item = &'a [u8]> {
    Ipv4Options::of(ipv4.options())
        .map_while(|option| option)
        .filter(|option| option.first().is_some_and(|kind| kind & 0x80 != 0))
}

/// Bytes of payload in a fragment that others follow.
fn room(mtu: usize, header_len: usize) -> Result<usize, Dropped> {
    let room = mtu.saturating_sub(header_len) / UNIT * UNIT;
    (room > 0).then_some(room).ok_or(Dropped::TooBig)
}
