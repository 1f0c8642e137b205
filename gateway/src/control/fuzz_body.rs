//! The body of a fuzz target: any bytes as a line of a client, or of a gateway.

use super::message::{Answer, Request};
use crate::plane::{Plane, Recorder};
use crate::report::{Directions, explain};
use ipsec::database::{Snapshot, Surroundings};
use ipsec::setkey::{Forwarding, NoNames, compile};
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// Reads `line` as a request and as an answer; a question about a packet is answered, a text is compiled.
///
/// # Panics
///
/// If a request changes when it is serialized again, or takes more than a line.
pub fn lines(line: &[u8]) {
    drop(serde_json::from_slice::<Answer>(line));
    let Ok(request) = serde_json::from_slice::<Request>(line) else {
        return;
    };
    let said = said(&request);
    assert!(!said.contains(&b'\n'));
    let again = serde_json::from_slice(&said).expect("what was said is understood");
    assert!(*self::said(&again) == *said);
    match request {
        Request::Explain(question) => {
            let explained = explain(
                databases(),
                &question,
                &Surroundings::default(),
                &Directions::new(),
            );
            assert!(!explained.text().is_empty());
        }
        Request::Setkey(text) => drop(compile(&text.text, Forwarding::WithIn, &mut NoNames)),
        _ => {}
    }
}

fn said(request: &Request) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(serde_json::to_vec(request).expect("a request can be said"))
}

/// Databases to query: a tunnel, and policies that bypass and discard.
fn databases() -> &'static Snapshot {
    const TEXT: &str = "
        add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
        spdadd 10.1.0.0/24 10.2.0.0/24[53] udp -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;
        spdadd 10.1.0.0/24 10.2.0.0/24 icmp -P out none;
        spdadd fd00:1::/64 ::/0 any -P out discard;";
    static DATABASES: OnceLock<Arc<Snapshot>> = OnceLock::new();
    DATABASES.get_or_init(|| {
        let lowered = compile(TEXT.as_bytes(), Forwarding::WithIn, &mut NoNames);
        let commands = lowered.map(|lowered| lowered.commands).unwrap_or_default();
        let mut plane = Recorder::default();
        plane.apply(&commands).expect("a plane in memory applies");
        assert_eq!(plane.snapshot().sas().count(), 1);
        plane.snapshot()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;

    #[test]
    fn lines_of_the_control_socket_are_read_without_a_panic() {
        replay("control_lines", lines);
    }
}
