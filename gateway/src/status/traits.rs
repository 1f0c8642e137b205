//! What options have made of an association, and which way the kernel lets it carry: plain data for `--json`, and a
//! line for people.

use serde::{Deserialize, Serialize};

/// What an association is beside its algorithms, where options or the kernel make it so.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SaTraits {
    /// `out` or `in`: the only way that the kernel lets it carry packets, where the kernel keeps it.
    #[serde(default)]
    pub direction: Option<String>,
    /// The only processor whose packets leave by it (`-o cpu`).
    #[serde(default)]
    pub cpu: Option<u16>,
    /// The network card that does a part of the work (`-o offload`).
    #[serde(default)]
    pub offload: Option<OffloadStatus>,
    /// How it aggregates and fragments (`-o aggfrag`).
    #[serde(default)]
    pub aggfrag: Option<AggfragStatus>,
}

/// What a network card does for an association.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OffloadStatus {
    /// `crypto` or `packet`.
    pub kind: String,
    /// The card.
    pub device: String,
}

/// AGGFRAG mode (RFC 9347), which the kernel calls IPTFS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AggfragStatus {
    /// Bytes of the packets that it sends; 0 for as many as the path carries.
    pub size: u16,
    /// Packets that it sends each second, all of one size; 0 for as many as there are.
    pub rate: u32,
    /// Whether a packet may go on in the next one that it sends.
    pub fragments: bool,
    /// How many packets may overtake a missing one that it waits for.
    pub window: u16,
    /// Milliseconds after which a missing packet is given up.
    pub wait_ms: u16,
}

impl SaTraits {
    /// In one line; empty for an association without any.
    pub(super) fn words(&self) -> String {
        let direction = self.direction.as_ref();
        let offload = self.offload.as_ref();
        let words = [
            direction.map(|direction| format!("direction {direction}")),
            self.cpu.map(|cpu| format!("processor {cpu}")),
            offload.map(|offload| format!("offload {} to {}", offload.kind, offload.device)),
            self.aggfrag.map(|aggfrag| aggfrag.words()),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }
}

impl AggfragStatus {
    fn words(self) -> String {
        let Self {
            window, wait_ms, ..
        } = self;
        let size = match self.size {
            0 => "of the path MTU".to_owned(),
            size => format!("of {size} bytes"),
        };
        let rate = match self.rate {
            0 => String::new(),
            rate => format!(", {rate} a second"),
        };
        let whole = if self.fragments {
            ""
        } else {
            ", no fragments inside"
        };
        format!(
            "AGGFRAG (IPTFS) by packets {size}{rate}{whole}; a missing one is given up after {window} packets or \
             {wait_ms} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGGFRAG: AggfragStatus = AggfragStatus {
        size: 0,
        rate: 0,
        fragments: true,
        window: 3,
        wait_ms: 100,
    };

    #[test]
    fn an_association_without_options_has_nothing_to_show() {
        assert_eq!(SaTraits::default().words(), "");
    }

    #[test]
    fn each_option_is_named_with_its_value() {
        let all = SaTraits {
            direction: Some("out".to_owned()),
            cpu: Some(3),
            offload: Some(OffloadStatus {
                kind: "crypto".to_owned(),
                device: "card0".to_owned(),
            }),
            aggfrag: Some(AGGFRAG),
        };
        assert_eq!(
            all.words(),
            "direction out · processor 3 · offload crypto to card0 · AGGFRAG (IPTFS) by packets of the path MTU; a \
             missing one is given up after 3 packets or 100 ms"
        );
        let other = AggfragStatus {
            size: 1400,
            rate: 2000,
            fragments: false,
            ..AGGFRAG
        };
        assert!(
            other
                .words()
                .contains("of 1400 bytes, 2000 a second, no fragments inside; "),
            "{}",
            other.words()
        );
    }

    #[test]
    fn an_older_status_has_none() {
        let read: SaTraits = serde_json::from_str("{}").unwrap();
        assert_eq!(read, SaTraits::default());
    }
}
