//! Networks: prefixes as they are written, and as traffic selectors have them.

use ikev2::message::payload::AddressRange;
use std::net::IpAddr;

/// Why a text is no network.
#[derive(Debug)]
pub(crate) struct NoNetwork {
    /// What is wrong.
    pub(crate) message: String,
    /// What to write instead.
    pub(crate) advice: String,
}

/// A network, or an address alone.
pub(crate) fn network(word: &str) -> Result<AddressRange, NoNetwork> {
    let wrong = |message: String, advice: String| NoNetwork { message, advice };
    let example =
        || "write a network as \"10.1.0.0/16\" or \"2001:db8::/32\", or one address".to_owned();
    let word = word.trim();
    let (address, len) = match word.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (word, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(wrong(format!("\"{word}\" is no network"), example()));
    };
    let longest = bits(address);
    let len = match len {
        None => longest,
        Some(digits) => match digits.parse::<u32>() {
            Ok(len) if len <= longest => len,
            _ => {
                let advice = format!("a number from 0 to {longest}");
                return Err(wrong(format!("/{digits} is no prefix length"), advice));
            }
        },
    };
    let (first, last) = (masked(address, len, false), masked(address, len, true));
    if first != address {
        let advice = format!("did you mean \"{first}/{len}\", or the host \"{address}\"?");
        return Err(wrong(
            format!("{address} is not the first address of a /{len}"),
            advice,
        ));
    }
    AddressRange::new(first, last)
        .ok_or_else(|| wrong(format!("\"{word}\" is no network"), example()))
}

/// One address alone.
pub(super) fn host(address: IpAddr) -> Option<AddressRange> {
    AddressRange::new(address, address)
}

fn bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The address with all bits behind the prefix set, or none.
fn masked(address: IpAddr, len: u32, up: bool) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let hosts = u32::MAX.checked_shr(len).unwrap_or(0);
            let bits = if up {
                address.to_bits() | hosts
            } else {
                address.to_bits() & !hosts
            };
            IpAddr::V4(bits.into())
        }
        IpAddr::V6(address) => {
            let hosts = u128::MAX.checked_shr(len).unwrap_or(0);
            let bits = if up {
                address.to_bits() | hosts
            } else {
                address.to_bits() & !hosts
            };
            IpAddr::V6(bits.into())
        }
    }
}
