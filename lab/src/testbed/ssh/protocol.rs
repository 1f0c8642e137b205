//! The protocol between the lab and its agent on a host, over one SSH connection: requests and responses, each one line
//! of JSON. Requests are numbered, because a response may take time (a program that runs) while others are sent, and
//! because a late response must not be taken for the next. An empty line is a keepalive.

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

/// A question with its number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RequestMessage {
    /// Its response has the same number.
    pub number: u64,
    /// What is asked.
    pub ask: Request,
}

/// An answer with the number of its question.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResponseMessage {
    /// That of the question.
    pub number: u64,
    /// The answer, or why there is none.
    pub answer: Result<Response, String>,
}

/// The requests. A *handle* is a process, a sniffer or a socket that the agent keeps.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Run a program to its end, or kill it after so long: [`Answer::Finished`].
    Run { command: Command, limit: Duration },
    /// Start a program that stays: [`Answer::Started`].
    Start { command: Command },
    /// Whether it has ended, and its output: [`Answer::State`].
    State { process: u64 },
    /// Ask it to end, and kill it after so long: [`Answer::Flag`], whether it went by itself.
    Stop { process: u64, grace: Duration },
    /// The text of a file: [`Answer::Text`].
    Read { path: PathBuf },
    /// What stands in a file from a place on, nothing where there is none: [`Answer::Bytes`].
    Fetch { path: PathBuf, from: u64 },
    /// The names in a folder: [`Answer::Names`].
    List { path: PathBuf },
    /// Write a file into the topology's folder: [`Answer::Text`], its path.
    WriteFile { name: String, text: String },
    /// Make a folder in the topology's folder: [`Answer::Text`], its path.
    Scratch,
    /// Whether a program is there: [`Answer::Flag`].
    Has { program: String },
    /// Listen on an interface to packets among these addresses: [`Answer::Thing`].
    Sniff {
        interface: String,
        among: Vec<Ipv4Addr>,
    },
    /// What passed since the last time: [`Answer::Frames`].
    TakeFrames { sniffer: u64 },
    /// A UDP socket: [`Answer::Thing`].
    Bind { local: SocketAddr },
    /// Send a datagram: [`Answer::Done`].
    Send {
        socket: u64,
        to: SocketAddr,
        payload: Bytes,
    },
    /// The next datagram, if it comes in time: [`Answer::Datagram`].
    Receive { socket: u64, within: Duration },
    /// Put a thing away; a process is killed: [`Answer::Done`].
    Close { handle: u64 },
    /// Run this when the topology goes, whatever ends it, the latest first: [`Answer::Done`].
    OnCleanup { command: Command },
    /// Take everything away that a topology left: [`Answer::Done`].
    CleanUp,
}

/// What the agent answers.
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
