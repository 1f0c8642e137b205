//! Suites: what is proposed and accepted, and what is weak about what was named.

use crate::config::table::{Table, Text};
use ikev2::groups::Group;
use ikev2::message::payload::{Protocol, TransformType};
use ikev2::negotiation::{Algorithm, NAMED_SUITES, Offer, OfferError};
use ipsec::setkey::{Problem, Span, nearest};

/// The suites of a key, each a text.
pub(super) fn read(table: Table<'_>, name: &str, protocol: Protocol) -> Option<Vec<Offer>> {
    let texts = table.texts(name)?;
    let findings = table.findings();
    let offers: Vec<_> = texts
        .iter()
        .map(|text| findings.keep(offer(*text, protocol)))
        .collect();
    for (text, offer) in texts.iter().zip(&offers) {
        for (algorithm, why) in offer.iter().flat_map(weaknesses) {
            let at = part(*text, algorithm.name());
            findings.warn(at, format!("{algorithm} is weak: {why}"));
        }
    }
    offers.into_iter().collect()
}

/// Every algorithm of an offer that has a known weakness, and which.
fn weaknesses(offer: &Offer) -> Vec<(Algorithm, &'static str)> {
    let kinds = [
        TransformType::ENCRYPTION,
        TransformType::INTEGRITY,
        TransformType::KEY_EXCHANGE,
    ];
    let algorithms = kinds.into_iter().flat_map(|kind| offer.of(kind));
    algorithms
        .filter_map(|algorithm| Some((algorithm, weakness(&algorithm)?)))
        .collect()
}

fn weakness(algorithm: &Algorithm) -> Option<&'static str> {
    match algorithm.kind {
        TransformType::KEY_EXCHANGE => Group::from_transform(algorithm.id)?.weakness(),
        TransformType::INTEGRITY => algorithm.integrity()?.weakness,
        _ => algorithm.encryption()?.0.weakness,
    }
}

fn offer(text: Text<'_>, protocol: Protocol) -> Result<Offer, Problem> {
    Offer::parse(text.text, protocol).map_err(|error| {
        let at = place(text, &error);
        let problem = Problem::new(at, one_line(&error));
        match advice(text.text, &error, protocol) {
            Some(advice) => problem.advise(advice),
            None => problem,
        }
    })
}

fn one_line(error: &OfferError) -> String {
    match error {
        OfferError::Unknown(name) => format!("no algorithm is called `{name}`"),
        other => other.to_string(),
    }
}

/// The place of what an error is about.
fn place(text: Text<'_>, error: &OfferError) -> Span {
    let name = match error {
        OfferError::Unknown(name) => Some(name.as_str()),
        OfferError::OutOfPlace(algorithm, _) | OfferError::NotForIke(algorithm) => algorithm.name(),
        _ => None,
    };
    part(text, name)
}

/// The place of the algorithm of this name, else of the suite.
fn part(text: Text<'_>, name: Option<&str>) -> Span {
    let mut start = 0;
    for part in text.text.split('-') {
        if name == Some(part) {
            return text.part(start, part.len());
        }
        start += part.len() + 1;
    }
    text.at
}

fn advice(suite: &str, error: &OfferError, protocol: Protocol) -> Option<String> {
    let example = match protocol {
        Protocol::IKE => "aes256gcm16-prfsha384-ecp384",
        Protocol::AH => "sha256",
        _ => "aes256gcm16-ecp384",
    };
    match error {
        OfferError::Unknown(name) => {
            let known: Vec<_> = Algorithm::all()
                .filter_map(|algorithm| algorithm.name())
                .collect();
            let suites = NAMED_SUITES.iter().map(|suite| suite.name);
            let near = nearest(name, known).or_else(|| nearest(suite, suites));
            Some(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("a suite is written like \"{example}\""),
            })
        }
        OfferError::Missing(..) => Some(format!(
            "a suite for {protocol} is written like \"{example}\""
        )),
        _ => None,
    }
}
