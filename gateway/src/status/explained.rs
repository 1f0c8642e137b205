//! What would happen to a packet: plain data for `--json`, and lines for people.

use super::SaTraits;
use crate::events::SaName;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::IpAddr;

/// The answer of `explain`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Explained {
    /// The packet's source address.
    pub source: IpAddr,
    /// The packet's destination address.
    pub destination: IpAddr,
    /// Its IP protocol number.
    pub protocol: u8,
    /// `leaving`, `arriving`, or `unknown` where the addresses do not tell.
    pub way: String,
    /// The policy that decides.
    pub policy: Option<DecidingPolicy>,
    /// The associations that it goes through, or is expected to have come through, innermost first.
    pub associations: Vec<SaOnPath>,
    /// Over how many associations the flows of the policy are spread; 0 where they are not.
    pub spread: usize,
    /// Whether both ports are known that decide which of these it is.
    pub is_one_flow: bool,
    /// `protected`, `in-clear`, `accepted-protected`, `accepted-either-way`, `accepted-in-clear` or `dropped`.
    pub outcome: String,
    /// Why it is dropped, as `drops` names it.
    pub reason: Option<String>,
    /// The outcome in words.
    pub sentence: String,
    /// What looks wrong.
    pub findings: Vec<FindingStatus>,
}

/// The policy that decides about a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DecidingPolicy {
    /// Its number.
    pub id: u32,
    /// `in`, `out` or `fwd`.
    pub direction: String,
    /// Which packets, as setkey writes it.
    pub selector: String,
    /// `discard`, `none`, or what protects.
    pub action: String,
}

/// An association that a packet goes through.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SaOnPath {
    /// Its name.
    #[serde(flatten)]
    pub name: SaName,
    /// Its algorithms, as setkey names them.
    pub suite: String,
    /// What options and the kernel make of it.
    #[serde(flatten)]
    pub traits: SaTraits,
}

/// Something that looks wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FindingStatus {
    /// Its name: `selectors-exchanged`, `not-of-this-host` and so on.
    pub finding: String,
    /// What is wrong, and what to do.
    pub advice: String,
    /// The numbers of the policies that it is about.
    pub policies: Vec<u32>,
    /// The statements that are wrong, each with what to write instead.
    pub corrections: Vec<Correction>,
    /// The association that carries nothing, if it is about one.
    pub unused: Option<String>,
}

/// A statement of the file, and the one to write instead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Correction {
    /// What the policy is now.
    pub instead_of: String,
    /// What it should be.
    pub write: String,
}

impl Explained {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = match &self.policy {
            Some(policy) => policy.line(),
            None => "no policy matches this packet\n".to_owned(),
        };
        text += &self.spread_line();
        for sa in &self.associations {
            let _ = writeln!(text, "association: {} {}", sa.name, sa.suite);
            let traits = sa.traits.words();
            if !traits.is_empty() {
                let _ = writeln!(text, "  {traits}");
            }
        }
        let _ = writeln!(text, "{}", self.sentence);
        for finding in &self.findings {
            text += &finding.lines();
        }
        text
    }

    fn spread_line(&self) -> String {
        let which = match (self.spread, self.is_one_flow) {
            (0, _) => return String::new(),
            (_, true) => "this one uses",
            (_, false) => "which one depends on both ports (`--source-port`); for ports 0 it is",
        };
        let spread = self.spread;
        format!("flows are spread over {spread} associations; {which}\n")
    }
}

impl DecidingPolicy {
    fn line(&self) -> String {
        let Self {
            id,
            direction,
            selector,
            action,
        } = self;
        format!("policy {id}: {selector} {direction} {action}\n")
    }
}

impl FindingStatus {
    fn lines(&self) -> String {
        let mut text = String::new();
        if let Some(unused) = &self.unused {
            let _ = writeln!(text, "unused: {unused}");
        }
        let _ = writeln!(text, "hint: {}", self.advice);
        for Correction { instead_of, write } in &self.corrections {
            let _ = writeln!(text, "  instead of  {instead_of}\n  write       {write}");
        }
        text
    }
}
