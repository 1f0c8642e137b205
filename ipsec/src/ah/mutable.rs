//! Which bytes of the headers before it an ICV of AH covers.
//!
//! Routers change some fields on the way. The ICV is computed over a copy of the headers in which those are zero, or
//! hold what they will hold on arrival (RFC 4302 3.3.3.1). What is zeroed:
//!
//! ```text
//!   IPv4   DSCP, ECN, flags, fragment offset, TTL, checksum; whole options, but for those that never change
//!   IPv6   DSCP, ECN, flow label, hop limit; data of options whose type has the bit "may change en route"
//!   both   a source route not yet travelled is turned as it will arrive, its last address the destination
//! ```

use crate::Dropped;
use crate::wire::ip::number;

/// IPv4's options that no router changes (RFC 4302 A1): security, extended security, commercial security, router
/// alert, sender-directed multi-destination delivery.
const IMMUTABLE_OPTIONS: [u8; 5] = [130, 133, 134, 148, 149];
/// IPv4's loose and strict source route.
const SOURCE_ROUTES: [u8; 2] = [131, 137];
/// The bit of an IPv6 option type that allows routers to change the data (RFC 8200 4.2).
const MAY_CHANGE: u8 = 0x20;
/// Routing headers whose addresses are swapped one by one with the destination: RFC 2460 4.4, RFC 6275 6.4.
const SWAPPING_ROUTES: [u8; 2] = [0, 2];
/// Bytes of a routing header before its addresses.
const ROUTE_AT: usize = 8;

/// Makes of a copy of all headers before AH, from the first byte of IP on, what the ICV covers (RFC 4302 3.3.3.1.1,
/// 3.3.3.1.2). Sender and receiver do the same: the sender's lengths and protocol must be those with AH in place.
///
/// Options without a valid length are [`Dropped::Malformed`]; a fragment ([`Dropped::Fragment`]) must be reassembled
/// first (RFC 4302 3.3.4).
pub fn clear_mutable(headers: &mut [u8]) -> Result<(), Dropped> {
    match headers.first().map(|first| first >> 4) {
        Some(4) => clear_v4(headers),
        Some(6) => clear_v6(headers),
        _ => Err(Dropped::Malformed),
    }
}

fn clear_v4(header: &mut [u8]) -> Result<(), Dropped> {
    let (fixed, mut options) = header
        .split_first_chunk_mut::<20>()
        .ok_or(Dropped::Malformed)?;
    let is_header = usize::from(fixed[0] & 0x0f) * 4 == fixed.len() + options.len();
    if !is_header || fixed[9] != number::AH {
        return Err(Dropped::Malformed);
    }
    if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
        return Err(Dropped::Fragment);
    }
    // Class of service; flags and offset; TTL; checksum.
    fixed[1] = 0;
    fixed[6..9].fill(0);
    fixed[10..12].fill(0);
    while let Some((option, rest)) = split_option(options)? {
        if let Some(last) = last_of_route(option) {
            fixed[16..].copy_from_slice(&last);
        }
        if option
            .first()
            .is_some_and(|kind| *kind > 1 && !IMMUTABLE_OPTIONS.contains(kind))
        {
            option.fill(0);
        }
        options = rest;
    }
    Ok(())
}

/// The first option, and what follows it.
type Split<'a> = (&'a mut [u8], &'a mut [u8]);

/// Splits the first option off; `None` at the end.
fn split_option(options: &mut [u8]) -> Result<Option<Split<'_>>, Dropped> {
    let len = match *options {
        [] | [0, ..] => return Ok(None),
        [1, ..] => 1,
        [_, len, ..] if len >= 2 => usize::from(len),
        _ => return Err(Dropped::Malformed),
    };
    options
        .split_at_mut_checked(len)
        .map(Some)
        .ok_or(Dropped::Malformed)
}

/// The final destination that a source route names, as long as its pointer has not passed it.
fn last_of_route(option: &[u8]) -> Option<[u8; 4]> {
    match *option {
        [kind, len, pointer, _, _, _, _, ..] if SOURCE_ROUTES.contains(&kind) && pointer <= len => {
            option.last_chunk().copied()
        }
        _ => None,
    }
}

fn clear_v6(headers: &mut [u8]) -> Result<(), Dropped> {
    let (fixed, mut rest) = headers
        .split_first_chunk_mut::<40>()
        .ok_or(Dropped::Malformed)?;
    // Traffic class and flow label; hop limit.
    fixed[0] &= 0xf0;
    fixed[1..4].fill(0);
    fixed[7] = 0;
    let mut kind = fixed[6];
    while let &mut [next, units, ..] = rest {
        let (extension, behind) = rest
            .split_at_mut_checked(usize::from(units) * 8 + 8)
            .ok_or(Dropped::BadExtensionChain)?;
        match kind {
            number::HOP_BY_HOP | number::DESTINATION_OPTIONS => clear_options_v6(extension)?,
            number::ROUTING => arrive(extension, &mut fixed[24..])?,
            number::FRAGMENT => return Err(Dropped::Fragment),
            _ => return Err(Dropped::BadExtensionChain),
        }
        (kind, rest) = (next, behind);
    }
    (kind == number::AH && rest.is_empty())
        .then_some(())
        .ok_or(Dropped::Malformed)
}

fn clear_options_v6(extension: &mut [u8]) -> Result<(), Dropped> {
    let mut at = 2;
    while let Some(&kind) = extension.get(at) {
        if kind == 0 {
            at += 1;
            continue;
        }
        let len = usize::from(*extension.get(at + 1).ok_or(Dropped::BadExtensionChain)?);
        let data = extension
            .get_mut(at + 2..at + 2 + len)
            .ok_or(Dropped::BadExtensionChain)?;
        if kind & MAY_CHANGE != 0 {
            data.fill(0);
        }
        at += 2 + len;
    }
    Ok(())
}

/// Turns a routing header as it will arrive: no segments left, the destination the last address, and the addresses
/// shifted by those that are still to be visited.
fn arrive(extension: &mut [u8], destination: &mut [u8]) -> Result<(), Dropped> {
    let (kind, left) = match *extension {
        [_, _, kind, left, ..] => (kind, usize::from(left)),
        _ => return Err(Dropped::BadExtensionChain),
    };
    if left == 0 {
        return Ok(());
    }
    if !SWAPPING_ROUTES.contains(&kind) {
        return Err(Dropped::Unsupported);
    }
    let route = extension
        .get_mut(ROUTE_AT..)
        .ok_or(Dropped::BadExtensionChain)?;
    let visited = (route.len() / 16).checked_sub(left);
    let ahead = visited
        .filter(|_| route.len().is_multiple_of(16))
        .and_then(|visited| route.get_mut(visited * 16..))
        .ok_or(Dropped::BadExtensionChain)?;
    // The last address goes to the destination, and the destination before those ahead.
    ahead.rotate_right(16);
    if let Some(first) = ahead.first_chunk_mut::<16>() {
        first.swap_with_slice(destination);
    }
    if let Some(left) = extension.get_mut(3) {
        *left = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
