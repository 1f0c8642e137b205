//! Selectors as text.

use ipsec::policy::{Prefix, Selector, Upper};

/// A selector as setkey's `spdadd` writes it.
pub(crate) fn selector_text(selector: &Selector) -> String {
    let port = |port: Option<u16>| port.map_or_else(|| "any".to_owned(), |port| port.to_string());
    let (source, destination, upper) = match selector.upper {
        Upper::Any => (None, None, "any".to_owned()),
        Upper::Ports {
            source_port,
            destination_port,
        } => (source_port, destination_port, "any".to_owned()),
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => (source_port, destination_port, upper_name(number)),
        Upper::Icmp { number, kind, code } => {
            let fact = |fact: Option<u8>| port(fact.map(u16::from));
            let upper = match (kind, code) {
                (None, None) => upper_name(number),
                (kind, code) => format!("{} {},{}", upper_name(number), fact(kind), fact(code)),
            };
            (None, None, upper)
        }
    };
    let side =
        |prefix: &Prefix, number| format!("{}/{}[{}]", prefix.address, prefix.len, port(number));
    format!(
        "{} {} {upper}",
        side(&selector.source, source),
        side(&selector.destination, destination)
    )
}

fn upper_name(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        number => number.to_string(),
    }
}
