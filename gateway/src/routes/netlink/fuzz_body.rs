//! Called by a fuzzer: any bytes as the kernel's answers about rules, routes, links, addresses and neighbours, as they
//! are and after a valid header. Parsing must end and not panic, whatever a newer kernel sends.

use super::{links, metrics_mtu, next_hops, own_address, parse, rules, table};
use crate::netlink_socket::PendingAnswer;
use crate::netlink_socket::message::{KernelMessage, messages};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;

/// RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH, RTM_NEWRULE and NLMSG_ERROR.
const KINDS: [u16; 6] = [16, 20, 24, 28, 32, 2];

const SEQUENCE: u32 = 7;

/// Reads `data` as a datagram. Then reads the bytes after the first one, which selects the kind, as the body of one
/// message.
///
/// # Panics
///
/// If the messages found have more bytes than the datagram.
pub fn answers(data: &[u8]) {
    datagram(data);
    let Some((&choice, body)) = data.split_first() else {
        return;
    };
    let mut message = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(KINDS[usize::from(choice) % KINDS.len()].to_ne_bytes());
    message.extend([0; 2]);
    message.extend(SEQUENCE.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(body);
    datagram(&message);
}

fn datagram(bytes: &[u8]) {
    let seen: usize = messages(bytes).map(|message| 16 + message.body.len()).sum();
    assert!(seen <= bytes.len());
    let mut read_one = |message: &KernelMessage<'_>| parse(message).map(read);
    let mut answer = PendingAnswer::new(SEQUENCE, NLM_F_DUMP);
    let _ = answer.take(messages(bytes), &mut read_one);
}

fn read(answer: RouteNetlinkMessage) {
    match answer {
        RouteNetlinkMessage::NewRule(message) => {
            if let Some(rule) = rules::read_rule(&message) {
                rules::write_rule(&rule);
            }
        }
        RouteNetlinkMessage::NewRoute(message) => {
            links::leads(&message, 1);
            metrics_mtu(&message.attributes);
            let exits = [("esp0".into(), 1)].into();
            let table_number = u32::from(message.header.table);
            if let Some(route) = table::read_route(&message, table_number, &exits) {
                table::write_route(table_number, &exits, &route);
            }
        }
        RouteNetlinkMessage::NewLink(message) => {
            next_hops::simple(&message);
            links::named(message);
        }
        RouteNetlinkMessage::NewAddress(message) => drop(own_address(&message)),
        RouteNetlinkMessage::NewNeighbour(message) => drop(next_hops::known(&message)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;

    #[test]
    fn the_kernels_route_messages_are_read_without_a_panic() {
        replay("netlink_answers", answers);
    }
}
