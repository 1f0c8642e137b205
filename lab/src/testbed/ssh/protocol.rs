//! The protocol between the lab and its agent on a host, over one SSH connection: requests and responses, each one line
//! of JSON. Requests are numbered, because a response may take time (a program that runs) while others are sent, and
//! because a late response must not be mistaken for the next. An empty line is a keepalive.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::capture::Frame;
use crate::host::{Command, Finished};

/// The agent's first line.
pub(crate) const READY: &str = "ready";
/// The file name of the agent's undo list, a shell script.
pub(crate) const UNDO: &str = "undo";

/// A request with its number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RequestMessage {
    /// Its response has the same number.
    pub number: u64,
    /// The request.
    pub ask: Request,
}

/// A response with the number of its request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResponseMessage {
    /// That of the request.
    pub number: u64,
    /// The response, or an error.
    pub answer: Result<Response, String>,
}

/// The requests. A *handle* is a process, a sniffer or a socket that the agent keeps.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Run a program to its end, or kill it after so long: [`Response::Finished`].
    Run { command: Command, limit: Duration },
    /// Start a program that stays: [`Response::Started`].
    Start { command: Command },
    /// Whether it has ended, and its output: [`Response::State`].
    State { process: u64 },
    /// End it by a signal, and kill it after so long: [`Response::Flag`], whether it ended by itself.
    Stop { process: u64, grace: Duration },
    /// The text of a file: [`Response::Text`].
    Read { path: PathBuf },
    /// The bytes of a file from an offset on, none if it does not exist: [`Response::Bytes`].
    Fetch { path: PathBuf, from: u64 },
    /// The names in a folder: [`Response::Names`].
    List { path: PathBuf },
    /// Write a file into the topology's folder: [`Response::Text`], its path.
    WriteFile { name: String, text: String },
    /// Make a folder in the topology's folder: [`Response::Text`], its path.
    Scratch,
    /// Whether a program is there: [`Response::Flag`].
    Has { program: String },
    /// Capture packets between these addresses on an interface: [`Response::Handle`].
    Sniff {
        interface: String,
        among: Vec<Ipv4Addr>,
    },
    /// The frames since the last request: [`Response::Frames`].
    TakeFrames { sniffer: u64 },
    /// A UDP socket: [`Response::Handle`].
    Bind { local: SocketAddr },
    /// Send a datagram: [`Response::Done`].
    Send {
        socket: u64,
        to: SocketAddr,
        payload: Bytes,
    },
    /// The next datagram, if it comes in time: [`Response::Datagram`].
    Receive { socket: u64, within: Duration },
    /// Close a handle; a process is killed: [`Response::Done`].
    Close { handle: u64 },
    /// Run this when the topology ends, for any reason, the latest first: [`Response::Done`].
    OnCleanup { command: Command },
    /// Undo and remove everything of a topology: [`Response::Done`].
    CleanUp,
}

/// The responses.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    Done,
    Flag(bool),
    Text(String),
    Bytes(Bytes),
    Names(Vec<String>),
    Handle(u64),
    /// A process, and its id in that host's `/proc`.
    Started(u64, u32),
    /// `None`: it was killed, for it took too long.
    Finished(Option<Finished>),
    /// The exit code of a process, once it has ended, and its output so far.
    State(Option<i32>, String),
    Frames(Vec<FrameMessage>),
    Datagram(Option<Bytes>),
}

/// Bytes as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        bytes
            .map(Bytes)
            .ok_or_else(|| serde::de::Error::custom("not hexadecimal digits"))
    }
}

fn byte(pair: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// A frame on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FrameMessage {
    at: Duration,
    bytes: Bytes,
    udp_segment: Option<u16>,
    checksum: Option<(u16, u16)>,
}

impl From<Frame> for FrameMessage {
    fn from(frame: Frame) -> FrameMessage {
        FrameMessage {
            at: frame.at,
            bytes: Bytes(frame.bytes),
            udp_segment: frame.udp_segment,
            checksum: frame.checksum,
        }
    }
}

impl From<FrameMessage> for Frame {
    fn from(seen: FrameMessage) -> Frame {
        Frame {
            at: seen.at,
            bytes: seen.bytes.0,
            udp_segment: seen.udp_segment,
            checksum: seen.checksum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_the_way() {
        let frame = Frame {
            at: Duration::new(5, 7),
            bytes: vec![0, 1, 0xfe, 0xff],
            udp_segment: Some(1400),
            checksum: Some((34, 6)),
        };
        let sent = serde_json::to_string(&FrameMessage::from(frame.clone())).unwrap();
        assert!(sent.contains("\"0001feff\""), "{sent}");
        let seen: FrameMessage = serde_json::from_str(&sent).unwrap();
        assert_eq!(Frame::from(seen), frame);
    }

    #[test]
    fn digits_that_are_none_are_refused() {
        for text in ["\"0\"", "\"0g\"", "\"+1\"", "\"éé\""] {
            assert!(serde_json::from_str::<Bytes>(text).is_err(), "{text}");
        }
    }
}
