//! Profiles: what a kind of peer proposes and expects, so that no proposal has to be written. What is weak about a kind
//! of peer is a warning. Keys of the file count more than the profile.

use super::findings::{Findings, instead_of};
use super::table::Table;
use ikev2::connection::{Child, Connection};
use ikev2::message::payload::Protocol;
use ikev2::negotiation::Offer;
use ipsec::setkey::{Problem, Span};
use std::time::Duration;

/// One kind of peer. Suites are in order of preference: what is strong first.
#[derive(Debug)]
pub(super) struct Profile {
    /// Its word in the file.
    pub(super) name: &'static str,
    /// Its name for people.
    pub(super) title: &'static str,
    ike: &'static [&'static str],
    esp: &'static [&'static str],
    /// Below the peer's own lifetimes, so that this side rekeys first.
    ike_hours: u64,
    child_minutes: u64,
    dpd_seconds: u64,
    /// Whether a child has one network on each side.
    pub(super) takes_one_pair: bool,
    /// What is weak about what such a peer has by default, and what to change there.
    weak: Option<&'static str>,
}

#[rustfmt::skip]
const PROFILES: [Profile; 8] = [
    Profile { name: "aws", title: "AWS Site-to-Site VPN",
        ike: &["aes256gcm16-aes128gcm16-prfsha384-prfsha512-prfsha256-ecp384-ecp256-modp2048",
            "aes256-aes128-sha384-sha512-sha256-ecp384-ecp256-modp2048"],
        esp: &["aes256gcm16-aes128gcm16-ecp384-ecp256-modp2048", "aes256-aes128-sha384-sha256-ecp384-ecp256-modp2048"],
        ike_hours: 7, child_minutes: 50, dpd_seconds: 30, takes_one_pair: true, weak: None },
    Profile { name: "azure", title: "Azure VPN Gateway",
        ike: &["aes256gcm16-prfsha384-prfsha256-ecp384-ecp256-modp2048", "aes256-sha384-sha256-ecp384-ecp256-modp2048",
            "aes256-aes128-sha256-sha1-modp1024"],
        esp: &["aes256gcm16", "aes256-sha256", "aes256-sha1"],
        ike_hours: 7, child_minutes: 400, dpd_seconds: 30, takes_one_pair: false,
        weak: Some("Azure's default policy has the group modp1024, which large attackers can break: give the connection a \
            custom policy with ECP384 and GCMAES256, then write `ike = [\"aes256gcm16-prfsha384-ecp384\"]`") },
    Profile { name: "gcp", title: "Google Cloud VPN",
        ike: &["aes256gcm16-prfsha512-prfsha384-prfsha256-ecp384-ecp256-modp4096-modp2048"],
        esp: &["aes256gcm16-ecp384-ecp256-modp4096-modp2048"],
        ike_hours: 9, child_minutes: 150, dpd_seconds: 30, takes_one_pair: false, weak: None },
    Profile { name: "cloudflare", title: "Cloudflare Magic WAN",
        ike: &["aes256gcm16-prfsha512-prfsha384-prfsha256-ecp384-ecp256-modp2048"],
        esp: &["aes256gcm16-aes128gcm16-ecp384-ecp256-modp2048"],
        ike_hours: 7, child_minutes: 50, dpd_seconds: 30, takes_one_pair: false, weak: None },
    Profile { name: "windows", title: "Windows",
        ike: &["aes256gcm16-prfsha384-ecp384-modp2048", "aes256-sha384-sha256-ecp384-modp2048-modp1024"],
        esp: &["aes256gcm16-aes128gcm16", "aes256-aes128-sha256-sha1"],
        ike_hours: 7, child_minutes: 50, dpd_seconds: 60, takes_one_pair: false,
        weak: Some("Windows has the group modp1024 alone until it is told otherwise: run \
            `Set-VpnConnectionIPsecConfiguration … -DHGroup ECP384` there, then write \
            `ike = [\"aes256-sha384-ecp384\"]`") },
    Profile { name: "apple", title: "iOS and macOS",
        ike: &["aes256gcm16-prfsha256-ecp256-modp2048", "aes256-sha256-ecp256-modp2048"],
        esp: &["aes256gcm16-noesn", "aes256-sha256-noesn"],
        ike_hours: 24, child_minutes: 480, dpd_seconds: 60, takes_one_pair: false, weak: None },
    Profile { name: "fortinet", title: "FortiOS",
        ike: &["aes256gcm16-prfsha384-ecp384-ecp521-modp2048", "aes128gcm16-prfsha256-ecp384-ecp521-modp2048",
            "aes256-aes128-sha256-ecp384-ecp521-modp2048"],
        esp: &["aes256gcm16-aes128gcm16-chacha20poly1305-ecp384-ecp521-modp2048",
            "aes256-aes128-sha256-ecp384-ecp521-modp2048"],
        ike_hours: 22, child_minutes: 660, dpd_seconds: 30, takes_one_pair: false, weak: None },
    Profile { name: "cisco-asa", title: "Cisco ASA",
        ike: &["aes256gcm16-prfsha512-prfsha384-ecp256-ecp521-modp2048", "aes256-sha512-sha384-ecp256-ecp521-modp2048"],
        esp: &["aes256gcm16", "aes256-sha512-sha256"],
        ike_hours: 22, child_minutes: 50, dpd_seconds: 30, takes_one_pair: true, weak: None },
];

impl Profile {
    /// The profile that a peer names.
    pub(super) fn of(table: Table<'_>) -> Option<&'static Self> {
        let text = table.text("profile")?;
        let found = PROFILES.iter().find(|profile| profile.name == text.text);
        if found.is_none() {
            let names = PROFILES.each_ref().map(|profile| profile.name);
            let problem = Problem::new(text.at, format!("there is no profile `{}`", text.text));
            table
                .findings()
                .problem(problem.advise(instead_of(text.text, &names)));
        }
        found
    }

    /// Sets what such a peer needs in the IKE SA.
    pub(super) fn apply(&self, connection: &mut Connection) {
        connection.ike = offers(self.ike, Protocol::IKE);
        connection.ike_lifetime = Duration::from_secs(self.ike_hours * 3600);
        connection.dpd = Some(Duration::from_secs(self.dpd_seconds));
    }

    /// Sets what such a peer needs in a child.
    pub(super) fn apply_to_child(&self, child: &mut Child) {
        child.offers = offers(self.esp, Protocol::ESP);
        child.lifetime.soft = Duration::from_secs(self.child_minutes * 60);
    }

    /// Warns of what is weak about such peers.
    pub(super) fn warn(&self, at: Span, findings: &Findings) {
        if let Some(weak) = self.weak {
            findings.warn(at, weak);
        }
    }
}

/// INVARIANT: a test reads the suites of every profile.
fn offers(texts: &[&str], protocol: Protocol) -> Vec<Offer> {
    let offers = texts
        .iter()
        .filter_map(|text| Offer::parse(text, protocol).ok());
    offers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_of_every_profile_can_be_read_and_weak_ones_are_named() {
        for profile in &PROFILES {
            assert_eq!(
                offers(profile.ike, Protocol::IKE).len(),
                profile.ike.len(),
                "{}",
                profile.name
            );
            assert_eq!(
                offers(profile.esp, Protocol::ESP).len(),
                profile.esp.len(),
                "{}",
                profile.name
            );
            let all = profile.ike.concat();
            assert_eq!(
                all.contains("modp1024"),
                profile.weak.is_some(),
                "{}",
                profile.name
            );
        }
    }
}
