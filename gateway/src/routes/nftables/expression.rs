//! Translates a rule's terms to the kernel's expressions, which load a field into a register, compare it, or act.
//!
//! The numbers are those of `linux/netfilter/nf_tables.h`. All terms use the same register, which each of them loads.

use super::rule::{Field, Rule, Term, Verdict, octets};
use super::set::Set;
use crate::netlink_socket::attributes::Attributes;
use crate::routes::plan::Family;
use crate::routes::range::{Range, address};
use ipsec::policy::Prefix;

const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;

/// NFT_REG_VERDICT and NFT_REG_1.
const VERDICT_REGISTER: u32 = 0;
const REGISTER: u32 = 1;

/// NFT_REG32_01, the second four bytes of the first register, and NFT_REG_2, the sixteen bytes after that register.
const SECOND_WORD: u32 = 9;
const SECOND_REGISTER: u32 = 2;

/// NFT_OBJECT_COUNTER.
pub(super) const COUNTER: u32 = 1;

/// NFT_RT_TCPMSS and NFT_RT_XFRM.
const RT_TCPMSS: u32 = 3;
const RT_XFRM: u32 = 4;

/// IPPROTO_FRAGMENT, and the TCP option of the maximum segment size.
const FRAGMENT_HEADER: u8 = 44;
const MAXSEG: u8 = 2;

/// The expressions of a rule; sets that it needs are appended to `sets`, numbered from `next_set` on.
pub(super) fn of_rule(rule: &Rule, next_set: &mut u32, sets: &mut Vec<Set>) -> Attributes {
    let mut list = Expressions(Attributes::default());
    for term in &rule.terms {
        list.term(term, next_set, sets);
    }
    if let Some(verdict) = rule.verdict {
        list.verdict(verdict);
    }
    list.0
}

struct Expressions(Attributes);

impl Expressions {
    fn push(&mut self, name: &str, fill: impl FnOnce(&mut Attributes)) {
        self.0.nest(LIST_ELEMENT, |element| {
            element.put_text(EXPRESSION_NAME, name);
            element.nest(EXPRESSION_DATA, fill);
        });
    }

    fn term(&mut self, term: &Term, next_set: &mut u32, sets: &mut Vec<Set>) {
        match term {
            Term::Any {
                field,
                values,
                negated,
            } => {
                self.load(*field);
                if let (Some(only), 1) = (values.first(), values.len()) {
                    return self.compare(only, *negated);
                }
                let set = Set::of_term(*next_set, *field, values.clone());
                *next_set += 1;
                self.look_up(set.name, Some(set.id), *negated);
                sets.push(set);
            }
            Term::In(field, set) => {
                self.load(*field);
                self.look_up(set, None, false);
            }
            Term::Bits {
                field,
                mask,
                value,
                negated,
            } => {
                self.load(*field);
                self.mask(mask, &vec![0; mask.len()]);
                self.compare(value, *negated);
            }
            Term::Within(field, prefix) => self.within(*field, *prefix, false),
            Term::Ranges {
                field,
                ranges,
                negated,
            } => {
                if let Some(set) = self.ranges(*field, ranges, *negated, *next_set) {
                    *next_set += 1;
                    sets.push(set);
                }
            }
            Term::Count(name) => self.push("objref", |data| {
                data.put_u32(1, COUNTER).put_text(2, name);
            }),
            Term::AddMark(bits) => {
                self.load(Field::Mark);
                self.mask(&(!bits).to_ne_bytes(), &bits.to_ne_bytes());
                self.push("meta", |data| {
                    data.put_u32(2, 3).put_u32(3, REGISTER);
                });
            }
            Term::ClampSegments => self.clamp(),
        }
    }

    /// For a prefix of whole bytes only these bytes are loaded.
    fn within(&mut self, field: Field, prefix: Prefix, negated: bool) {
        let (address, len) = (octets(prefix.address), prefix.len);
        let Some((base, offset, _)) = payload(field) else {
            return;
        };
        let whole = usize::from(len / 8);
        if len.is_multiple_of(8) && whole < address.len() {
            self.load_payload(REGISTER, (base, offset, u32::from(len / 8)));
            return self.compare(&address[..whole], negated);
        }
        self.load(field);
        if usize::from(len) < 8 * address.len() {
            let mask: Vec<_> = (0..address.len()).map(|n| mask_byte(len, n)).collect();
            self.mask(&mask, &vec![0; mask.len()]);
        }
        self.compare(&address, negated);
    }

    /// A single range that is a prefix is compared; others are looked up in a set, which is returned.
    fn ranges(&mut self, field: Field, ranges: &[Range], negated: bool, id: u32) -> Option<Set> {
        let (Field::Source(family) | Field::Destination(family)) = field else {
            return None;
        };
        if let [only] = ranges
            && let Some(prefix) = only.as_prefix(family)
        {
            self.within(field, prefix, negated);
            return None;
        }
        let key = |number| octets(address(number, family));
        let last_of_all = Range::all(family).last;
        let pair = |range: &Range| {
            let behind = (range.last < last_of_all).then(|| key(range.last + 1));
            (key(range.first), behind)
        };
        let ranges = ranges.iter().map(pair).collect();
        let set = Set::of_ranges(id, field, key(0).len() as u32, ranges);
        self.load(field);
        self.look_up(set.name, Some(set.id), negated);
        Some(set)
    }

    fn load(&mut self, field: Field) {
        if let Some(place) = payload(field) {
            return self.load_payload(REGISTER, place);
        }
        if let Field::Ends(family) = field {
            return self.load_ends(family);
        }
        if let Some(key) = meta_key(field) {
            return self.push("meta", |data| {
                data.put_u32(1, REGISTER).put_u32(2, key);
            });
        }
        match field {
            Field::Sealed => self.load_route(RT_XFRM),
            Field::FragmentNextHeader => self.load_fragment_header(0, 1),
            Field::FragmentOffset => self.load_fragment_header(2, 2),
            // NFT_FIB_RESULT_ADDRTYPE of NFTA_FIB_F_DADDR.
            _ => self.push("fib", |data| {
                data.put_u32(1, REGISTER).put_u32(2, 3).put_u32(3, 2);
            }),
        }
    }

    /// Loads both addresses into consecutive registers.
    fn load_ends(&mut self, family: Family) {
        let next = match family {
            Family::V4 => SECOND_WORD,
            Family::V6 => SECOND_REGISTER,
        };
        let ends = [Field::Source(family), Field::Destination(family)];
        for (register, end) in [REGISTER, next].into_iter().zip(ends) {
            if let Some(place) = payload(end) {
                self.load_payload(register, place);
            }
        }
    }

    fn load_payload(&mut self, register: u32, (base, offset, len): (u32, u32, u32)) {
        self.push("payload", |data| {
            data.put_u32(1, register).put_u32(2, base);
            data.put_u32(3, offset).put_u32(4, len);
        });
    }

    fn load_route(&mut self, key: u32) {
        self.push("rt", |data| {
            data.put_u32(1, REGISTER).put_u32(2, key);
        });
    }

    fn load_fragment_header(&mut self, offset: u32, len: u32) {
        self.push("exthdr", |data| {
            data.put_u32(1, REGISTER).put(2, &[FRAGMENT_HEADER]);
            data.put_u32(3, offset).put_u32(4, len);
            data.put_u32(6, 0);
        });
    }

    /// NFT_CMP_EQ and NFT_CMP_NEQ.
    fn compare(&mut self, value: &[u8], negated: bool) {
        self.push("cmp", |data| {
            data.put_u32(1, REGISTER).put_u32(2, negated.into());
            data.nest(3, |inner| {
                inner.put(DATA_VALUE, value);
            });
        });
    }

    fn mask(&mut self, mask: &[u8], toggled: &[u8]) {
        self.push("bitwise", |data| {
            data.put_u32(1, REGISTER).put_u32(2, REGISTER);
            data.put_u32(3, mask.len() as u32);
            for (kind, value) in [(4, mask), (5, toggled)] {
                data.nest(kind, |inner| {
                    inner.put(DATA_VALUE, value);
                });
            }
        });
    }

    /// `id`: the number in the transaction of a set whose name the kernel chooses.
    fn look_up(&mut self, set: &str, id: Option<u32>, negated: bool) {
        self.push("lookup", |data| {
            data.put_text(1, set).put_u32(2, REGISTER);
            if let Some(id) = id {
                data.put_u32(4, id);
            }
            data.put_u32(5, negated.into());
        });
    }

    /// `rt mtu` is the smaller limit of both directions' routes, and the kernel never raises a segment size.
    fn clamp(&mut self) {
        self.load_route(RT_TCPMSS);
        // Two bytes, from host to network byte order.
        self.push("byteorder", |data| {
            data.put_u32(1, REGISTER).put_u32(2, REGISTER);
            data.put_u32(3, 1).put_u32(4, 2).put_u32(5, 2);
        });
        self.push("exthdr", |data| {
            data.put_u32(7, REGISTER).put(2, &[MAXSEG]);
            data.put_u32(3, 2).put_u32(4, 2).put_u32(6, 1);
        });
    }

    /// NF_DROP and NF_ACCEPT.
    fn verdict(&mut self, verdict: Verdict) {
        let code = match verdict {
            Verdict::Drop => 0,
            Verdict::Accept => 1,
        };
        self.push("immediate", |data| {
            data.put_u32(1, VERDICT_REGISTER);
            data.nest(2, |inner| {
                inner.nest(DATA_VERDICT, |inner| {
                    inner.put_u32(VERDICT_CODE, code);
                });
            });
        });
    }
}

/// A field's place in the packet: the header it is counted from, offset and length.
fn payload(field: Field) -> Option<(u32, u32, u32)> {
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    Some(match field {
        Field::Source(Family::V4) => (NETWORK, 12, 4),
        Field::Source(Family::V6) => (NETWORK, 8, 16),
        Field::Destination(Family::V4) => (NETWORK, 16, 4),
        Field::Destination(Family::V6) => (NETWORK, 24, 16),
        Field::Fragment4 => (NETWORK, 6, 2),
        Field::Protocol4 => (NETWORK, 9, 1),
        Field::TimeToLive => (NETWORK, 8, 1),
        Field::NextHeader => (NETWORK, 6, 1),
        Field::HopLimit => (NETWORK, 7, 1),
        Field::SourcePort => (TRANSPORT, 0, 2),
        Field::DestinationPort => (TRANSPORT, 2, 2),
        Field::Ports => (TRANSPORT, 0, 4),
        Field::IcmpType => (TRANSPORT, 0, 1),
        Field::IcmpCode => (TRANSPORT, 1, 1),
        Field::TcpFlags => (TRANSPORT, 13, 1),
        Field::Behind(offset, len) => (TRANSPORT, offset, len),
        _ => return None,
    })
}

/// NFT_META_*.
fn meta_key(field: Field) -> Option<u32> {
    Some(match field {
        Field::EtherType => 1,
        Field::Mark => 3,
        Field::InDevice => 6,
        Field::OutDevice => 7,
        Field::SocketUser => 10,
        Field::Family => 15,
        Field::Protocol => 16,
        Field::FrameKind => 19,
        // NFT_META_SECPATH.
        Field::Opened => 25,
        _ => return None,
    })
}

/// Byte `n` of the mask of `len` bits.
fn mask_byte(len: u8, n: usize) -> u8 {
    let bits = usize::from(len).saturating_sub(8 * n).min(8);
    (0xff00_u16 >> bits) as u8
}
