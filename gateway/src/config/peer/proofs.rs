//! How both sides prove their identities: by one pre-shared key, or by certificates.

use crate::config::checked::{Credential, TrustFiles};
use crate::config::surroundings::Surroundings;
use crate::config::table::{Table, Text};
use crate::local_time::utc_offset;
use ikev2::certificate::{Certificate, Revocation, Trust, certificates};
use ikev2::connection::{LocalProof, RemoteProof};
use ikev2::signatures::choice::{RsaPadding, choose};
use ikev2::signatures::{Hash, PrivateKey};
use ipsec::setkey::{Problem, local_time};
use ipsec::suite::Secret;
use zeroize::Zeroizing;

/// A pre-shared key with fewer characters draws a warning: from 20 characters on, one that is made by a program cannot
/// be guessed.
const MIN_GOOD_PSK_CHARACTERS: usize = 20;

/// Everything about the proofs of one peer.
pub(super) struct Proofs {
    /// This side's, as the connection has it.
    pub(super) local: LocalProof,
    /// The peer's, as the connection has it.
    pub(super) remote: RemoteProof,
    /// The secret of this side.
    pub(super) credential: Credential,
    /// What the peer's certificates are checked by.
    pub(super) trust: Option<TrustFiles>,
    /// This side's certificate, for its identities.
    pub(super) certificate: Option<Certificate>,
}

const CERTIFICATE_KEYS: [&str; 6] = [
    "certificate",
    "key",
    "rsa_padding",
    "ca",
    "crl",
    "crl_required",
];

/// Reads the keys of one of the two ways.
pub(super) fn read(table: Table<'_>, number: u32, around: &Surroundings<'_>) -> Option<Proofs> {
    let psks: Vec<_> = ["psk", "psk_file"]
        .into_iter()
        .filter(|key| table.has(key))
        .collect();
    let others: Vec<_> = CERTIFICATE_KEYS
        .into_iter()
        .filter(|key| table.has(key))
        .collect();
    let problem = match (psks.as_slice(), others.as_slice()) {
        ([key], []) => return shared_secret(table, key, number, around),
        ([], [_, ..]) => return certificate(table, number, around),
        ([], []) => Problem::new(table.at, "nothing proves who this peer is").advise(
            "add `psk_file = \"office.psk\"` (`esplanade init` makes one), or `certificate`, `key` and `ca`",
        ),
        ([_, second, ..], _) => table
            .problem_at(second, "a peer has one pre-shared key")
            .advise("keep `psk_file`, and remove `psk`"),
        (_, [other, ..]) => table
            .problem_at(other, "a peer has either a pre-shared key or certificates")
            .advise("remove one of them: with both, the weaker one would decide"),
    };
    table.findings().problem(problem);
    None
}

fn shared_secret(
    table: Table<'_>,
    key: &str,
    number: u32,
    around: &Surroundings<'_>,
) -> Option<Proofs> {
    let text = table.text(key)?;
    let findings = table.findings();
    let octets = match key {
        "psk" => Zeroizing::new(text.text.as_bytes().to_vec()),
        _ => without_line_end(findings.keep(around.files.secret(text, findings))?),
    };
    if octets.is_empty() {
        let problem = Problem::new(text.at, "the pre-shared key is empty");
        findings.problem(problem.advise("`esplanade init` makes one of 32 random bytes"));
        return None;
    }
    let characters = String::from_utf8_lossy(&octets).chars().count();
    if characters < MIN_GOOD_PSK_CHARACTERS {
        findings.warn(
            text.at,
            format!(
                "the pre-shared key has {characters} characters: an attacker who answers once in the peer's place can \
                 then test guesses of it offline, at full speed. `esplanade init` makes one of 32 random bytes"
            ),
        );
    }
    Some(Proofs {
        local: LocalProof::SharedSecret(number),
        remote: RemoteProof::SharedSecret(number),
        credential: Credential::SharedSecret(Secret::new(octets.to_vec())),
        trust: None,
        certificate: None,
    })
}

/// Editors end the last line, which is no part of the key.
fn without_line_end(mut octets: Zeroizing<Vec<u8>>) -> Zeroizing<Vec<u8>> {
    let end = [&b"\r\n"[..], b"\n"]
        .into_iter()
        .find(|end| octets.ends_with(end));
    let len = octets.len() - end.map_or(0, <[u8]>::len);
    octets.truncate(len);
    octets
}

fn certificate(table: Table<'_>, number: u32, around: &Surroundings<'_>) -> Option<Proofs> {
    let findings = table.findings();
    for key in ["certificate", "key", "ca"] {
        if !table.has(key) {
            let problem = Problem::new(
                table.at,
                format!("this peer uses certificates and has no `{key}`"),
            );
            findings.problem(problem.advise(match key {
                "certificate" => "add `certificate = \"FILE\"`: this side's own, in PEM, intermediate ones behind it",
                "key" => "add `key = \"FILE\"`: the private key of this side's certificate, in PEM",
                _ => "add `ca = \"FILE\"`: the CA that signed the peer's certificate",
            }));
        }
    }
    let chain = chain(table, around);
    let key = private_key(table, around);
    let trust = trust(table, around);
    let paddings = [("pss", RsaPadding::Pss), ("pkcs1", RsaPadding::Pkcs1)];
    let padding = table.choice("rsa_padding", &paddings).unwrap_or_default();
    let (chain, (pem, key), (files, trust)) = (chain?, key?, trust?);
    let own = chain.first()?.clone();
    findings.keep(belong_together(table, &own, &key))?;
    Some(Proofs {
        local: LocalProof::Certificate {
            key: number,
            chain: chain
                .iter()
                .map(|certificate| certificate.der().to_vec())
                .collect(),
            padding,
        },
        remote: RemoteProof::Certificate {
            trust: number,
            authorities: trust.key_hashes(),
        },
        credential: Credential::PrivateKey(pem),
        trust: Some(files),
        certificate: Some(own),
    })
}

fn chain(table: Table<'_>, around: &Surroundings<'_>) -> Option<Vec<Certificate>> {
    let text = table.text("certificate")?;
    let findings = table.findings();
    let file = findings.keep(around.files.read(text))?;
    let chain = certificates(&file).map_err(|error| unusable(text, &error));
    let chain = findings.keep(chain)?;
    if let Some(own) = chain.first() {
        warn_of_validity(table, text, own, around.now);
    }
    Some(chain)
}

fn warn_of_validity(table: Table<'_>, text: Text<'_>, certificate: &Certificate, now: u64) {
    let (from, until) = certificate.validity();
    let date = |moment: u64| local_time(moment, utc_offset(moment));
    let doubt = match now {
        _ if now < from => format!("is not valid before {}", date(from)),
        _ if now > until => format!("has expired on {}", date(until)),
        _ => return,
    };
    table
        .findings()
        .warn(text.at, format!("the certificate {doubt}: peers refuse it"));
}

fn private_key(
    table: Table<'_>,
    around: &Surroundings<'_>,
) -> Option<(Zeroizing<Vec<u8>>, PrivateKey)> {
    let text = table.text("key")?;
    let findings = table.findings();
    let pem = findings.keep(around.files.secret(text, findings))?;
    let key = PrivateKey::from_pem(&pem).map_err(|error| {
        Problem::new(text.at, format!("{} is no usable private key", text.text))
            .advise(error.to_string())
    });
    Some((pem.clone(), findings.keep(key)?))
}

/// Whether the certificate's key checks what the private key signs.
fn belong_together(
    table: Table<'_>,
    certificate: &Certificate,
    key: &PrivateKey,
) -> Result<(), Problem> {
    let wrong = |message: String, advice: &str| table.problem_at("key", message).advise(advice);
    let public = certificate.key().map_err(|error| {
        wrong(
            error.to_string(),
            "use a certificate with another kind of key",
        )
    })?;
    let hashes = Hash::ANNOUNCED.map(Hash::number);
    let scheme = choose(key, Some(&hashes), RsaPadding::Pss)
        .map(|(_, scheme)| scheme)
        .map_err(|error| wrong(error.to_string(), "use another key"))?;
    let test = b"a certificate and its key";
    let signature = key.sign(scheme, test);
    let is_same =
        signature.is_some_and(|signature| public.verify(scheme, test, &signature).is_ok());
    if is_same {
        Ok(())
    } else {
        Err(wrong(
            format!(
                "the key does not belong to the certificate of {}",
                certificate.subject()
            ),
            "`certificate` has to begin with the certificate of this key, others behind it",
        ))
    }
}

fn trust(table: Table<'_>, around: &Surroundings<'_>) -> Option<(TrustFiles, Trust)> {
    let findings = table.findings();
    let mut trust = Trust::default();
    if table.flag("crl_required") == Some(true) {
        trust.revocation = Revocation::Required;
        if !table.has("crl") {
            let problem = table.problem_at(
                "crl_required",
                "`crl_required` without a revocation list refuses every peer",
            );
            findings.problem(problem.advise("add `crl = \"FILE\"`"));
        }
    }
    let mut add =
        |key: &str, take: fn(&mut Trust, &[u8]) -> Result<(), ikev2::certificate::TrustError>| {
            let texts = if table.has(key) {
                table.texts(key)?
            } else {
                Vec::new()
            };
            let files = texts.iter().map(|text| {
                let file = findings.keep(around.files.read(*text))?;
                findings.keep(take(&mut trust, &file).map_err(|error| unusable(*text, &error)))?;
                Some(file)
            });
            files.collect::<Option<Vec<_>>>()
        };
    let roots = add("ca", Trust::add_roots);
    let lists = add("crl", Trust::add_revocation_lists);
    let files = TrustFiles {
        roots: roots?,
        lists: lists?,
        revocation: trust.revocation,
    };
    (!files.roots.is_empty()).then_some((files, trust))
}

fn unusable(text: Text<'_>, error: &ikev2::certificate::TrustError) -> Problem {
    Problem::new(text.at, format!("{} cannot be used: {error}", text.text))
        .advise("`openssl x509 -in FILE -text` (or `openssl crl`) shows what a file has")
}
