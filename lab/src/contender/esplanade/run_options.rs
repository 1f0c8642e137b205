//! The options of `esplanade run` that a spec varies.

use std::time::Duration;

/// Options of a gateway, apart from its keys and policies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunOptions {
    /// Factors of [`FLAGS`] with their values; what is not here is the gateway's own choice.
    pub flags: Vec<(&'static str, String)>,
    /// Where its keys are from.
    pub keying: Keying,
    /// Renew the keys so often, make-before-break.
    pub rekey: Option<Duration>,
}

/// Where the keys of a tunnel are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keying {
    /// From setkey files.
    #[default]
    Hand,
    /// From IKEv2, which both gateways speak.
    Ike,
}

/// Factors that are options of `esplanade run`.
pub const FLAGS: [(&str, &str); 7] = [
    ("workers", "--workers"),
    ("batch", "--batch"),
    ("poll_budget", "--poll-budget"),
    ("wake", "--wake"),
    ("native_io", "--native-io"),
    ("priority", "--priority"),
    ("plane", "--plane"),
];

/// Those of them that say how the gateway's own threads work, which carry nothing on the kernel's plane.
pub const FLAGS_OF_THREADS: [&str; 6] = [
    "workers",
    "batch",
    "poll_budget",
    "wake",
    "native_io",
    "priority",
];

impl RunOptions {
    /// Whether the kernel's own IPsec carries the packets.
    pub fn is_by_kernel(&self) -> bool {
        let mut flags = self.flags.iter();
        flags.any(|(name, value)| *name == "plane" && value == "kernel")
    }

    /// The differences from the default, as factors.
    pub(super) fn factors(&self) -> Vec<(String, String)> {
        let flags = self.flags.iter();
        let flags = flags.map(|(name, value)| ((*name).to_owned(), value.clone()));
        let rekey = self
            .rekey
            .map(|every| ("rekey_ms".to_owned(), every.as_millis().to_string()));
        let keying = (self.keying == Keying::Ike).then(|| ("keying".to_owned(), "ike".to_owned()));
        flags.chain(keying).chain(rekey).collect()
    }

    /// The same as part of a contender's id.
    pub(super) fn words(&self) -> String {
        let words = self.factors().into_iter();
        words
            .map(|(name, value)| format!("-{}-{value}", name.replace('_', "-")))
            .collect()
    }

    /// The same for a reader.
    pub(super) fn note(&self) -> String {
        let flags = self.flags.iter();
        let flags = flags.map(|(name, value)| match *name {
            "workers" if value == "auto" => ", workers auto".to_owned(),
            "workers" if value == "1" => ", 1 worker".to_owned(),
            "workers" => format!(", {value} workers"),
            "plane" => format!(", on the {value} plane"),
            name => format!(", {} {value}", name.replace('_', " ")),
        });
        let rekey = self
            .rekey
            .map(|every| format!(", keys renewed every {} ms", every.as_millis()));
        let keying = (self.keying == Keying::Ike).then(|| ", keyed by IKEv2".to_owned());
        flags.chain(keying).chain(rekey).collect()
    }

    /// As arguments of `esplanade run`.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &str> {
        let known = |name: &str| FLAGS.iter().find(|(factor, _)| *factor == name);
        self.flags
            .iter()
            .filter_map(move |(name, value)| Some([known(name)?.1, value.as_str()]))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_of_the_gateway_are_its_options_and_part_of_its_name() {
        let options = RunOptions {
            flags: vec![("workers", "2".into()), ("poll_budget", "9".into())],
            rekey: Some(Duration::from_secs(1)),
            ..RunOptions::default()
        };
        let arguments: Vec<&str> = options.arguments().collect();
        assert_eq!(arguments, ["--workers", "2", "--poll-budget", "9"]);
        assert_eq!(options.words(), "-workers-2-poll-budget-9-rekey-ms-1000");
        assert_eq!(RunOptions::default().words(), "");
        let negotiated = RunOptions {
            keying: Keying::Ike,
            ..RunOptions::default()
        };
        assert_eq!(negotiated.words(), "-keying-ike");
        assert_eq!(negotiated.note(), ", keyed by IKEv2");
        let by_kernel = RunOptions {
            flags: vec![("plane", "kernel".into())],
            ..RunOptions::default()
        };
        assert!(by_kernel.is_by_kernel() && !options.is_by_kernel());
        assert_eq!(by_kernel.words(), "-plane-kernel");
        assert_eq!(by_kernel.note(), ", on the kernel plane");
    }
}
