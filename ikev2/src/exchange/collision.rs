//! Which of two SAs stays where both ends have rekeyed the same one at the same time (RFC 7296 2.8.1 and 2.8.2).
//!
//! ```text
//!   A ── Ni ──►   ◄── Ni' ── B      two exchanges, four nonces
//!   A ◄── Nr ──   ── Nr' ──► B      the SA of the exchange with the lowest nonce goes
//! ```
//!
//! The end that began the losing exchange deletes the SA which that has made; the end that began the other one deletes
//! the old SA.

/// The nonces of one exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NoncePair {
    /// Of the end that began it.
    pub initiator: Vec<u8>,
    /// Of the other end.
    pub responder: Vec<u8>,
}

/// One of the two exchanges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exchange {
    /// This side began it.
    Own,
    /// The peer began it.
    Peers,
}

/// What this side has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    /// The exchange of which the SA stays.
    pub keep: Exchange,
    /// What this side deletes. The peer deletes the other one.
    pub delete: Deletion,
}

/// One of the SAs that go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deletion {
    /// The one that both ends have rekeyed.
    Old,
    /// The one that this side made in vain.
    OwnNew,
}

impl NoncePair {
    /// RFC 7296 2.8.1: compared octet by octet; one that ends earlier is the lower.
    fn lowest_first(&self) -> (&[u8], &[u8]) {
        let (one, other) = (self.initiator.as_slice(), self.responder.as_slice());
        if one <= other {
            (one, other)
        } else {
            (other, one)
        }
    }
}

/// What this side keeps and deletes. Nonces that are equal, which a peer can cause by sending back the one it got,
/// leave the decision to the other two; where these are equal too, the SA of the IKE SA's original initiator stays.
pub(crate) fn judge(own: &NoncePair, peers: &NoncePair, is_original_initiator: bool) -> Verdict {
    let (own, peers) = (own.lowest_first(), peers.lowest_first());
    let keeps_own = own > peers || (own == peers && is_original_initiator);
    if keeps_own {
        Verdict {
            keep: Exchange::Own,
            delete: Deletion::Old,
        }
    } else {
        Verdict {
            keep: Exchange::Peers,
            delete: Deletion::OwnNew,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(initiator: &[u8], responder: &[u8]) -> NoncePair {
        NoncePair {
            initiator: initiator.to_vec(),
            responder: responder.to_vec(),
        }
    }

    /// Nonces of A's exchange, those of B's, and whose SA stays.
    type Row = ([&'static [u8]; 2], [&'static [u8]; 2], char);

    #[rustfmt::skip]
    const TABLE: [Row; 10] = [
        // strongSwan's table: each of the four nonces is the lowest once.
        ([&[0x00; 16], &[0xff; 16]], [&[0xff; 16], &[0xff; 16]], 'B'),
        ([&[0xff; 16], &[0xff; 16]], [&[0x00; 16], &[0xff; 16]], 'A'),
        ([&[0xff; 16], &[0x00; 16]], [&[0xff; 16], &[0xff; 16]], 'B'),
        ([&[0xff; 16], &[0xff; 16]], [&[0xff; 16], &[0x00; 16]], 'A'),
        // Octet by octet from the first on: not as numbers of different length.
        ([&[0x01, 0x00], &[9; 16]], [&[0x02], &[9; 16]], 'B'),
        // The beginning of a longer nonce is lower than that.
        ([&[7; 16], &[9; 16]], [&[7; 17], &[9; 16]], 'B'),
        ([&[7; 17], &[9; 16]], [&[7; 16], &[9; 16]], 'A'),
        // The lowest is in both: the others decide.
        ([&[1; 16], &[3; 16]], [&[1; 16], &[2; 16]], 'A'),
        ([&[1; 16], &[2; 16]], [&[3; 16], &[1; 16]], 'B'),
        // All are equal: the original initiator's stays, which is A here.
        ([&[1; 16], &[2; 16]], [&[2; 16], &[1; 16]], 'A'),
    ];

    #[test]
    fn both_ends_keep_the_same_sa_and_delete_the_two_others() {
        for (row, (a, b, kept)) in TABLE.iter().enumerate() {
            let (a, b) = (pair(a[0], a[1]), pair(b[0], b[1]));
            let (at_a, at_b) = (judge(&a, &b, true), judge(&b, &a, false));
            let expected = match kept {
                'A' => (
                    Exchange::Own,
                    Deletion::Old,
                    Exchange::Peers,
                    Deletion::OwnNew,
                ),
                _ => (
                    Exchange::Peers,
                    Deletion::OwnNew,
                    Exchange::Own,
                    Deletion::Old,
                ),
            };
            let actual = (at_a.keep, at_a.delete, at_b.keep, at_b.delete);
            assert_eq!(actual, expected, "row {row}");
        }
    }
}
