//! Who both sides are. Authorization is by connection: the peer has to prove the identity that the connection names.

use super::proofs::Proofs;
use super::settings::Addresses;
use crate::config::table::{Table, Text};
use ikev2::certificate::Certificate;
use ikev2::connection::Connection;
use ikev2::identity::{Identity, Pattern};
use ikev2::message::payload::AddressRange;
use ipsec::setkey::Problem;

/// `local_id`; left out, what the certificate names, or the local address.
pub(super) fn local(
    table: Table<'_>,
    addresses: Option<&Addresses>,
    proofs: Option<&Proofs>,
) -> Option<Identity> {
    let findings = table.findings();
    let certificate = proofs.and_then(|proofs| proofs.certificate.as_ref());
    if table.has("local_id") {
        let text = table.text("local_id")?;
        let identity = findings.keep(one_identity(text))?;
        findings.keep(certificate.map_or(Ok(()), |found| is_named(text, &identity, found)));
        return Some(identity);
    }
    if let Some(certificate) = certificate {
        return findings.keep(of_certificate(table, certificate));
    }
    let address = addresses?.local.first();
    if address.is_none() && proofs.is_some() {
        let problem = Problem::new(
            table.at,
            "this peer has no `local_id`, and no `local` address to be one",
        );
        findings.problem(
            problem.advise("add `local_id = \"a.example.org\"`, or `local = \"192.0.2.1\"`"),
        );
    }
    address.copied().map(Identity::Address)
}

/// `remote_id`, which every peer has.
pub(super) fn remote(table: Table<'_>, proofs: Option<&Proofs>) -> Option<Pattern> {
    let findings = table.findings();
    if !table.has("remote_id") {
        let problem = Problem::new(
            table.at,
            "this peer has no `remote_id`: its identity would not be checked",
        );
        findings.problem(problem.advise(
            "add `remote_id = \"b.example.org\"` (or its address): the identity that the peer has to prove",
        ));
        return None;
    }
    let text = table.text("remote_id")?;
    let parsed = text.text.parse::<Pattern>();
    let pattern = findings.keep(parsed.map_err(|error| no_identity(text, &error)))?;
    let shares_key = proofs.is_some_and(|proofs| proofs.trust.is_none());
    if shares_key && !matches!(pattern, Pattern::Exactly(_)) {
        let problem = Problem::new(
            text.at,
            "several peers cannot share one pre-shared key: each could pose as any other",
        );
        findings.problem(problem.advise(
            "name one identity, with a key for each peer; or use certificates: `certificate`, `key` and `ca`",
        ));
    }
    Some(pattern)
}

/// A peer that may have any identity is narrowed by CA and networks. The CA is there where the proof is no PSK.
pub(super) fn check_any(table: Table<'_>, connection: &Connection) -> Result<(), Problem> {
    if connection.remote_id != Pattern::Any {
        return Ok(());
    }
    let everything = |range: AddressRange| match range.bounds() {
        (std::net::IpAddr::V4(first), std::net::IpAddr::V4(last)) => {
            first.is_unspecified() && last.is_broadcast()
        }
        (first, std::net::IpAddr::V6(last)) => {
            first.is_unspecified() && last.to_bits() == u128::MAX
        }
        _ => false,
    };
    let mut traffic = connection.children.iter().flat_map(|child| &child.remote);
    if traffic.any(|traffic| everything(traffic.addresses)) {
        let problem = table.problem_at(
                "remote_id",
                "`remote_id = \"any\"` with all addresses as remote network lets every holder of a certificate of \
                 the CA take over all traffic",
            );
        Err(problem.advise("write the remote networks that these peers may have, or name the peer"))
    } else {
        Ok(())
    }
}

fn one_identity(text: Text<'_>) -> Result<Identity, Problem> {
    match text.text.parse() {
        Ok(Pattern::Exactly(identity)) => Ok(identity),
        Ok(_) => {
            let problem = Problem::new(text.at, "`local_id` has to be one identity");
            Err(problem.advise("write this side's name or address, without `any` and `*`"))
        }
        Err(error) => Err(no_identity(text, &error)),
    }
}

fn no_identity(text: Text<'_>, error: &ikev2::identity::IdentityError) -> Problem {
    Problem::new(text.at, format!("\"{}\" is no identity", text.text)).advise(error.to_string())
}

/// RFC 7296 3.5 and RFC 4945 3.1: the identity has to be in the certificate, else the peer refuses it.
fn is_named(text: Text<'_>, identity: &Identity, certificate: &Certificate) -> Result<(), Problem> {
    if certificate.identities().contains(identity) {
        return Ok(());
    }
    let problem = Problem::new(
        text.at,
        format!("the certificate does not name {identity}: the peer would refuse it"),
    );
    Err(problem.advise(named(certificate)))
}

/// A domain name of the certificate rather than its subject, because peers are configured by it.
fn of_certificate(table: Table<'_>, certificate: &Certificate) -> Result<Identity, Problem> {
    let identities = certificate.identities();
    let domain = identities
        .iter()
        .find(|identity| matches!(identity, Identity::Fqdn(_)));
    domain.or(identities.first()).cloned().ok_or_else(|| {
        table
            .problem_at("certificate", "the certificate names no identity")
            .advise("use one with a subject or a subjectAltName")
    })
}

fn named(certificate: &Certificate) -> String {
    let names: Vec<_> = certificate
        .identities()
        .iter()
        .map(Identity::to_string)
        .collect();
    format!("the certificate names {}", names.join("; "))
}
