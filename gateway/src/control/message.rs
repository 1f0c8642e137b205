//! The messages of the control socket, one line of JSON each.

use crate::events::Event;
use crate::handover::PassedDescriptors;
use crate::status::{Drops, Explained, PlaneStatus, Status};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::IpAddr;
use zeroize::Zeroizing;

/// Requests to a gateway. Has no `Debug`: setkey text holds keys.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Apply setkey text atomically.
    Setkey(SetkeyText),
    /// Replace the configuration by that of this text, or of the gateway's own file: only the difference changes.
    Reload(Option<SetkeyText>),
    /// Install new keys beside the old ones, until the peer has them too.
    Rekey(Rekey),
    /// Report status and traffic.
    Status,
    /// The same as a table for people, as programs of earlier versions ask for it.
    StatusTable,
    /// The same for people: everything, single peers, or a summary where there is too much for a table.
    StatusText(StatusQuestion),
    /// Why packets were dropped.
    Drops,
    /// Every event from now on.
    Events,
    /// Which policy and association a packet would meet.
    Explain(Explain),
    /// Which plane carries the packets, or the move to the other one.
    Plane(PlaneQuestion),
    /// Bring this peer up.
    UpPeer(String),
    /// Take this peer down; its networks stay closed.
    DownPeer(String),
    /// Negotiate new keys with this peer.
    RekeyPeer {
        /// Its name.
        name: String,
        /// For the IKE SA instead of its child SAs.
        ike: bool,
    },
    /// The last negotiation with this peer, step by step.
    Why(String),
    /// Stop, and take away the rules that outlive a gateway.
    Down,
    /// Stop; the rules stay.
    Stop,
    /// Stop, because another process takes over: the rules stay, whatever options this gateway was started with.
    Leave,
    /// The same for a process that takes over key exchange too: each of its peers, with the fingerprint of what is
    /// configured about it. What was negotiated with equal ones carries on; others are told that it ends.
    LeaveTo(Vec<(String, [u8; 32])>),
}

/// setkey text and how to read it.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct SetkeyText {
    /// What messages call it: a file's name.
    pub name: String,
    /// The text, any bytes; a `char` stands for a byte, because JSON has no bytes.
    #[serde(serialize_with = "bytes_out", deserialize_with = "bytes_in")]
    pub text: Zeroizing<Vec<u8>>,
    /// `setkey -k`: policies for `in` do not imply one for `fwd`.
    #[serde(default)]
    pub kernel_semantics: bool,
    /// `setkey -n`: check everything, change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// `setkey -a`: dumps show dead associations too.
    #[serde(default)]
    pub with_dead: bool,
    /// `setkey -p`: dumps show ports behind all addresses.
    #[serde(default)]
    pub with_ports: bool,
    /// `setkey -l`: dumps have one line for each association.
    #[serde(default)]
    pub short: bool,
    /// The process ID of the client, for the dump's `pid=`.
    #[serde(default)]
    pub pid: u32,
}

/// New keys, and how long to wait for what.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Rekey {
    /// The configuration after the rekey: this text, or the gateway's own file.
    pub text: Option<SetkeyText>,
    /// Send with the new keys at once.
    #[serde(default)]
    pub now: bool,
    /// Send with them after so many seconds even if no packet from the peer has used them.
    #[serde(default)]
    pub wait: Option<u64>,
    /// Seconds of silence after which the old ones are deleted.
    pub keep: u64,
    /// Abort instead: return to the old keys for each peer that has not used the new ones.
    #[serde(default)]
    pub abort: bool,
}

/// What a status for people shows.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct StatusQuestion {
    /// These peers alone, unless there are none.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Everything, however much it is.
    #[serde(default)]
    pub all: bool,
}

/// Which plane carries the packets, or the move to the other one.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct PlaneQuestion {
    /// Move to the kernel's IPsec, or to the gateway's own data plane.
    #[serde(default)]
    pub to_kernel: Option<bool>,
    /// Keys with counter nonces may be used by both.
    #[serde(default)]
    pub same_keys: bool,
}

/// The packet that `explain` is about.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Explain {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination port, or type of ICMP.
    pub destination_port: Option<u16>,
}

/// What a gateway answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// Applied: the output of dumps, and warnings.
    Setkey {
        /// Dumps, in setkey's layout.
        #[serde(serialize_with = "text_out", deserialize_with = "text_in")]
        output: Zeroizing<String>,
        /// One plain sentence each.
        warnings: Vec<String>,
    },
    /// What is up.
    Status(Box<Status>),
    /// Why packets were dropped.
    Drops(Drops),
    /// What would happen to a packet.
    Explained(Box<Explained>),
    /// Which plane carries the packets.
    Plane(PlaneStatus),
    /// Words for people.
    Text(String),
    /// Something happened.
    Event(Event),
    /// The gateway has stopped for another one; its descriptors came before this.
    Left(PassedDescriptors),
    /// Nothing was done, and why.
    Refused(String),
}

fn bytes_out<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let text: Zeroizing<String> =
        Zeroizing::new(bytes.iter().map(|&byte| char::from(byte)).collect());
    serializer.serialize_str(&text)
}

fn bytes_in<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Zeroizing<Vec<u8>>, D::Error> {
    let text = Zeroizing::new(String::deserialize(deserializer)?);
    let bytes = text.chars().map(|c| u8::try_from(u32::from(c)));
    let bytes: Result<Vec<u8>, _> = bytes.collect();
    bytes
        .map(Zeroizing::new)
        .map_err(|_| serde::de::Error::custom("a character stands for no byte"))
}

fn text_out<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn text_in<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(deserializer).map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_setkey_text_survives_the_way_through_json() {
        let all: Vec<u8> = (0..=255).collect();
        let request = Request::Setkey(SetkeyText {
            name: "all.conf".to_owned(),
            text: Zeroizing::new(all.clone()),
            kernel_semantics: true,
            dry_run: false,
            with_dead: false,
            with_ports: true,
            short: false,
            pid: 7,
        });
        let line = serde_json::to_string(&request).unwrap();
        assert!(!line.contains('\n'));
        let Request::Setkey(text) = serde_json::from_str(&line).unwrap() else {
            panic!("another request");
        };
        assert_eq!(*text.text, all);
        assert!(text.kernel_semantics);
    }

    #[test]
    fn plain_requests_are_plain_words() {
        assert_eq!(
            serde_json::to_string(&Request::Status).unwrap(),
            "\"status\""
        );
        assert!(serde_json::from_str::<Request>("\"reboot\"").is_err());
        let Request::StatusText(question) =
            serde_json::from_str("{\"status-text\": {\"peers\": [\"office\"]}}").unwrap()
        else {
            panic!("another request");
        };
        assert_eq!(
            (question.all, &question.peers[..]),
            (false, &["office".to_owned()][..])
        );
    }
}
