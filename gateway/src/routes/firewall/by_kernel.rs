//! Rules for traffic that the kernel's own IPsec carries: there is no device that it comes from or goes to, but packets
//! that the kernel has opened, and those that it is about to seal, are distinguished from others.
//!
//! ```text
//!   leaving      a redirect -> drop; a packet that the kernel is about to seal: marked "inside", pass
//!   translated   after source NAT: marked "inside" and not about to be sealed any more -> drop
//!   arriving     a packet that the kernel has opened: pass; its XFRM policies have checked by which association
//!   passing      the same
//! ```
//!
//! `passing` does not ask whether a packet is about to be sealed: what comes in clear from one protected network is
//! dropped, although it goes to another.

use super::condition::when;
use super::devices::by_tunnel;
use super::exceptions::{ICMP, ICMP6};
use crate::routes::Site;
use crate::routes::nftables::rule::{Field, Rule, Term};
use crate::routes::nftables::{Chain, Hook};
use crate::routes::plan::{Family, Plan};

/// Source NAT has 100.
const BEHIND_SOURCE_NAT: i32 = 150;

/// Where hosts and router are on the same link, the kernel tells a host to send to the router itself what it seals for
/// that host: the host would send it in clear, past this one.
pub(super) fn redirects(plan: &Plan) -> Vec<Rule> {
    if !plan.planes.by_kernel() {
        return Vec::new();
    }
    let kinds = [(Family::V4, ICMP, 5), (Family::V6, ICMP6, 137)];
    kinds
        .map(|(family, number, kind)| {
            let message = when().family(family).protocols(&[number]);
            message.is(Field::IcmpType, [kind]).drop()
        })
        .into()
}

/// Passes what the kernel is about to seal. The mark shows [`translated`] that it was.
pub(super) fn sealed(site: &Site, plan: &Plan) -> Option<Rule> {
    let sealed = || {
        when()
            .ipsec(Field::Sealed, true)
            .and(Term::AddMark(site.inside_mark()))
            .accept()
    };
    plan.planes.by_kernel().then(sealed)
}

/// Passes what the kernel has opened.
pub(super) fn opened(plan: &Plan) -> Option<Rule> {
    let opened = || when().ipsec(Field::Opened, true).accept();
    plan.planes.by_kernel().then(opened)
}

/// Which packets have their MSS clamped.
pub(super) fn both_ways(plan: &Plan) -> Vec<Rule> {
    if !plan.planes.by_kernel() {
        return Vec::new();
    }
    [Field::Opened, Field::Sealed]
        .map(|field| when().ipsec(field, true))
        .into()
}

/// Source NAT (`masquerade`) of another program changes a packet that is about to be sealed. If no policy names the new
/// source, the kernel sends it in clear, and no address shows any more that it was protected. Outer packets carry the
/// mark "outside" beside; what enters a device of the tunnel is sealed behind it.
pub(super) fn translated(site: &Site, plan: &Plan, counter: &'static str) -> Option<Chain> {
    let both = (site.inside_mark() | site.outside_mark()).to_ne_bytes();
    let inside = site.inside_mark().to_ne_bytes();
    let astray = || {
        by_tunnel(site, plan, Field::OutDevice, true)
            .unwrap_or_default()
            .bits(Field::Mark, &both, &inside, false)
            .ipsec(Field::Sealed, false)
            .and(Term::Count(counter))
            .drop()
    };
    let chain = || Chain {
        name: "translated".to_owned(),
        kind: "filter",
        hook: Hook::Postrouting,
        priority: BEHIND_SOURCE_NAT,
        rules: vec![astray()],
    };
    plan.planes.by_kernel().then(chain)
}
