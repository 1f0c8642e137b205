//! Which sockets a host has open, from the kernel's tables. Connecting to a server, or sending it a datagram, would
//! count as a test there.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::host::{Host, Process};

/// For a far end to come up.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The state of a TCP socket that listens.
const LISTEN_STATE: &str = "0A";
/// Those of one that a program still holds.
const ESTABLISHED_STATE: &str = "01";
const CLOSE_WAIT_STATE: &str = "08";

/// Waits until the server, the program of this name, listens for TCP at this address and port.
pub(super) fn wait_until_listening(
    host: &dyn Host,
    server: &mut dyn Process,
    name: &str,
    at: SocketAddr,
) -> Result<(), Fault> {
    wait_until(&format!("the {name} server to listen"), || {
        let listening = listens(&table(host, "tcp", at)?, at.port());
        match server.ended().filter(|_| !listening) {
            None => Ok(listening),
            Some(code) => Err(Fault::failed(format!(
                "the {name} server ended with {code}: {}",
                server.output().trim()
            ))),
        }
    })
}

/// Waits until the server has closed every connection to this address and port.
pub(super) fn wait_until_free(host: &dyn Host, name: &str, at: SocketAddr) -> Result<(), Fault> {
    let what = format!("the {name} server to close a connection");
    wait_until(&what, || {
        Ok(!has_connections(&table(host, "tcp", at)?, at.port()))
    })
}

/// Asks again and again.
fn wait_until(what: &str, mut so: impl FnMut() -> Result<bool, Fault>) -> Result<(), Fault> {
    let started = Instant::now();
    while !so()? {
        if started.elapsed() > WAIT_TIMEOUT {
            return Err(Fault::TimedOut {
                what: what.to_owned(),
                after: WAIT_TIMEOUT,
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether the UDP port of this address's family is in use.
pub(super) fn has_udp_socket(host: &dyn Host, at: SocketAddr) -> Result<bool, Fault> {
    let table = table(host, "udp", at)?;
    Ok(sockets(&table, at.port()).next().is_some())
}

fn table(host: &dyn Host, protocol: &str, at: SocketAddr) -> Result<String, Fault> {
    let six = if at.is_ipv6() { "6" } else { "" };
    host.read(Path::new(&format!("/proc/net/{protocol}{six}")))
}

fn listens(table: &str, port: u16) -> bool {
    sockets(table, port).any(|state| state == LISTEN_STATE)
}

/// Connections that are not yet closed on this side.
fn has_connections(table: &str, port: u16) -> bool {
    sockets(table, port).any(|state| matches!(state, ESTABLISHED_STATE | CLOSE_WAIT_STATE))
}

/// The states of the sockets that have the port as their own.
fn sockets(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let ending = format!(":{port:04X}");
    table.lines().filter_map(move |line| {
        let mut fields = line.split_whitespace().skip(1);
        let own = fields.next()?;
        let state = fields.nth(1)?;
        own.ends_with(&ending).then_some(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(own: &str, state: &str) -> String {
        format!("   0: 0202000A:{own} 00000000:1451 {state} 00000000:00000000 00:00000000")
    }

    #[test]
    fn only_a_listening_socket_on_the_port_counts() {
        assert!(listens(&line("1451", "0A"), 5201));
        assert!(!listens(&line("1451", "01"), 5201));
        assert!(!listens(&line("1452", "0A"), 5201));
    }

    #[test]
    fn a_server_is_free_when_it_has_closed_its_connections_and_still_listens() {
        let with = |state: &str| format!("{}\n{}", line("1451", "0A"), line("1451", state));
        assert!(has_connections(&with("01"), 5201) && has_connections(&with("08"), 5201));
        for closed in ["04", "05", "06", "09", "0B"] {
            assert!(!has_connections(&with(closed), 5201), "{closed}");
        }
        assert!(!has_connections(&line("1452", "01"), 5201));
    }

    #[test]
    fn a_port_is_somebodys_only_as_his_own() {
        let table = format!(
            "  sl  local_address rem_address   st\n{}",
            line("14B7", "07")
        );
        assert_eq!(sockets(&table, 5303).collect::<Vec<_>>(), ["07"]);
        assert_eq!(sockets(&table, 5201).count(), 0);
    }
}
