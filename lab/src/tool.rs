//! The lab's own small programs. They run inside the hosts of a testbed, started as `esplanade-lab tool NAME`, and
//! print their results as one line of JSON, so that a host only needs to start programs.

pub(crate) mod agent;
mod ask_socket;
mod connections;
mod frames;
mod impair;
pub(crate) mod pcrypt;
mod rekey;
mod round_trip;
mod soak;

pub(crate) use frames::{LISTENING, Received, Sent};
pub use round_trip::RoundTrips;
pub use soak::{Class, SoakCounts, SoakLine, Spinning};

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The tools and their options.
#[derive(Debug, clap::Subcommand)]
pub enum Tool {
    /// Send a request to a control socket and print the answer
    AskSocket {
        /// The socket
        socket: PathBuf,
    },
    /// Send every datagram back
    Echo {
        /// Where to listen
        listen: SocketAddr,
    },
    /// Measure round trips to an echo, one request at a time
    Ask {
        /// Address of the echo
        to: SocketAddr,
        /// Bytes of each request
        #[arg(long)]
        bytes: usize,
        /// Duration in milliseconds
        #[arg(long)]
        milliseconds: u64,
        /// Milliseconds between two requests; 0: none
        #[arg(long, default_value_t = 0)]
        pause: u64,
    },
    /// Answer TCP connections, one request each
    Accept {
        /// Where to listen
        listen: SocketAddr,
    },
    /// Open one TCP connection after another
    Connect {
        /// Address of the server
        to: SocketAddr,
        /// Bytes of each request
        #[arg(long)]
        bytes: usize,
        /// Duration in milliseconds
        #[arg(long)]
        milliseconds: u64,
        /// Milliseconds between two connections; 0: none
        #[arg(long, default_value_t = 0)]
        pause: u64,
    },
    /// Send stamped datagrams at a steady rate
    Send(frames::Send),
    /// Receive stamped datagrams and report loss, order and latency
    Receive(frames::Receive),
    /// Carry frames between two interfaces, with delay, loss, duplication and reordering
    Impair(impair::Impair),
    /// Serve a remote lab until it disconnects
    Agent(agent::AgentArgs),
    /// Add or remove pcrypt, which runs an algorithm in parallel
    Pcrypt {
        /// Add or remove
        act: pcrypt::PcryptAction,
        /// The algorithm, as `rfc4106(gcm(aes))`
        name: String,
    },
    /// Renew the keys of two gateways periodically, make-before-break
    Rekey(rekey::Rekey),
    /// Use and count the idle cycles of this machine
    Soak,
}

impl Tool {
    /// Runs it to its end.
    pub fn run(self) -> io::Result<()> {
        match self {
            Tool::AskSocket { socket } => ask_socket::ask(&socket),
            Tool::Echo { listen } => round_trip::echo(listen),
            Tool::Ask {
                to,
                bytes,
                milliseconds,
                pause,
            } => print_json(&round_trip::ask(to, bytes, milliseconds, pause)?),
            Tool::Accept { listen } => connections::accept(listen),
            Tool::Connect {
                to,
                bytes,
                milliseconds,
                pause,
            } => print_json(&connections::connect(to, bytes, milliseconds, pause)?),
            Tool::Send(send) => print_json(&send.run()?),
            Tool::Receive(receive) => print_json(&receive.run()?),
            Tool::Impair(impair) => impair.run(),
            Tool::Agent(agent) => agent.run(),
            Tool::Pcrypt { act, name } => pcrypt::act(act, &name),
            Tool::Rekey(rekey) => rekey.run(),
            Tool::Soak => soak::soak(),
        }
    }
}

fn print_json(what: &impl serde::Serialize) -> io::Result<()> {
    println!("{}", serde_json::to_string(what)?);
    Ok(())
}
