//! Algorithms and keys that fit each other.

use super::{Lower, Lowering, unsupported};
use crate::algorithm::{self, Encryption, Integrity};
use crate::sa::Protocol as SaProtocol;
use crate::setkey::ast::*;
use crate::setkey::spelling::nearest;
use crate::setkey::{Problem, Span};
use crate::suite::{CompressionAlgorithm, NAMED_SUITES, NamedSuite, Secret, Suite, SuiteError};

type Encrypting = (Encryption, Secret);
type Authenticating = (Integrity, Secret);

impl Lowering<'_> {
    /// The suite of an entry. A problem with one algorithm does not hide one with the other.
    pub(super) fn suite(
        &mut self,
        entry: &SaEntry,
        protocol: SaProtocol,
        icv: Option<At<usize>>,
    ) -> Option<Suite> {
        if protocol == SaProtocol::IpComp {
            let compression = compression(entry, icv);
            return self.note(compression).map(Suite::of_compression);
        }
        let (encryption, integrity) = self.algorithms(entry);
        let fits = check_protocol(entry, protocol);
        self.note(fits)?;
        let suite = Suite::new(encryption?, integrity?, icv.map(|at| at.node));
        let suite = suite.map_err(|error| suite_problem(&error, entry, icv));
        let suite = self.note(suite)?;
        for warning in suite.warnings() {
            let is_about_integrity = suite
                .integrity()
                .is_some_and(|(row, _)| warning.starts_with(row.name));
            let algorithm = if is_about_integrity {
                &entry.integrity
            } else {
                &entry.encryption
            };
            let span = algorithm
                .as_ref()
                .map_or(entry.name.protocol.span, |at| at.node.name.span);
            self.warn(span, warning);
        }
        Some(suite)
    }

    /// Both algorithms with their keys; `None` for one with a problem.
    fn algorithms(
        &mut self,
        entry: &SaEntry,
    ) -> (Option<Option<Encrypting>>, Option<Option<Authenticating>>) {
        if let Some(algorithm) = &entry.encryption
            && let Some(suite) = NamedSuite::named(&algorithm.node.name.node)
        {
            let both = self.note(named(suite, algorithm, entry.integrity.as_ref()));
            let (encryption, integrity) = both.unzip();
            return (encryption.map(Some), integrity);
        }
        let encryption = entry.encryption.as_ref().map(encryption).transpose();
        let encryption = self.note(encryption);
        let integrity = entry.integrity.as_ref().map(integrity).transpose();
        let integrity = self.note(integrity.map(Option::flatten));
        (encryption, integrity)
    }
}

/// Cuts the one key of a named suite in two.
fn named(
    suite: &'static NamedSuite,
    algorithm: &At<Algorithm>,
    beside: Option<&At<Algorithm>>,
) -> Lower<(Encrypting, Option<Authenticating>)> {
    if let Some(beside) = beside {
        let message = format!("`{}` says already what authenticates", suite.name);
        let problem = Problem::new(beside.node.name.span, message);
        return Err(problem.advise("leave out `-A`; its key stands behind the one that encrypts"));
    }
    let (row, cut) = suite.encryption();
    let key = fitting_key(algorithm, suite.name, &[suite.key_len()], row.salt_len);
    let key = key.map_err(|problem| match suite.integrity() {
        Some(integrity) => problem.advise(format!(
            "first the {cut} bytes of {}, then the {} of {}",
            row.name, integrity.key_len, integrity.name
        )),
        None => problem,
    })?;
    let (first, rest) = key.expose().split_at(cut);
    let secret = |bytes: &[u8]| Secret::new(bytes.to_vec());
    let integrity = suite.integrity().map(|row| (row, secret(rest)));
    Ok(((row, secret(first)), integrity))
}

/// Which algorithms a protocol needs and which it has no room for.
fn check_protocol(entry: &SaEntry, protocol: SaProtocol) -> Lower<()> {
    let named_null = |algorithm: &At<Algorithm>| algorithm.node.name.node == "null";
    if let Some(compression) = &entry.compression {
        let problem = Problem::new(compression.span, "`-C` belongs to `ipcomp`");
        return Err(problem.advise("leave it out"));
    }
    match (protocol, &entry.encryption, &entry.integrity) {
        (SaProtocol::Esp, Some(_), _) => Ok(()),
        (SaProtocol::Esp, None, _) => {
            let problem = Problem::new(
                entry.name.protocol.span,
                "ESP needs an encryption algorithm",
            );
            Err(problem.advise("add `-E`; `-E null` encrypts nothing"))
        }
        (SaProtocol::Ah, Some(encryption), _) => {
            let problem = Problem::new(encryption.span, "AH does not encrypt");
            Err(problem.advise("leave out `-E`, or use `esp`"))
        }
        (SaProtocol::Ah, None, Some(integrity)) if !named_null(integrity) => Ok(()),
        (SaProtocol::Ah, None, _) => {
            let problem = Problem::new(entry.name.protocol.span, "AH needs an integrity algorithm");
            Err(problem.advise("add `-A`"))
        }
        (SaProtocol::IpComp, _, _) => Ok(()),
    }
}

/// The algorithm of IPComp, which has no keys. `-R` changes nothing, as on Linux: the CPI is always the one given.
fn compression(entry: &SaEntry, icv: Option<At<usize>>) -> Lower<CompressionAlgorithm> {
    let algorithms = [&entry.encryption, &entry.integrity].into_iter().flatten();
    let keyed = algorithms.map(|at| at.span).chain(icv.map(|at| at.span));
    if let Some(span) = keyed.into_iter().next() {
        let problem = Problem::new(span, "IPComp neither encrypts nor authenticates");
        return Err(problem.advise("leave it out, and put `esp` or `ah` around it in the policy"));
    }
    let Some(compression) = &entry.compression else {
        let span = entry.name.protocol.span;
        let problem = Problem::new(span, "IPComp needs a compression algorithm");
        return Err(problem.advise("add `-C deflate`"));
    };
    let name = &compression.node.name;
    match &*name.node {
        "deflate" => Ok(CompressionAlgorithm::Deflate),
        _ => Err(unsupported::compression(name)),
    }
}

fn encryption(algorithm: &At<Algorithm>) -> Lower<(Encryption, Secret)> {
    let name = &algorithm.node.name;
    let row = Encryption::named(&name.node).ok_or_else(|| {
        let is_other = Integrity::named(&name.node).is_some();
        let named = NAMED_SUITES.iter().map(|suite| suite.name);
        let known = algorithm::ENCRYPTION
            .iter()
            .map(|row| row.name)
            .chain(named);
        unknown_algorithm(name, "encryption", is_other.then_some("-A"), known)
    })?;
    let key = fitting_key(algorithm, row.name, row.key_lens, row.salt_len)?;
    Ok((row, key))
}

/// `-A null` is the absence of an integrity algorithm.
fn integrity(algorithm: &At<Algorithm>) -> Lower<Option<(Integrity, Secret)>> {
    let name = &algorithm.node.name;
    if name.node == "null" {
        return fitting_key(algorithm, "null", &[0], 0).map(|_| None);
    }
    let row = Integrity::named(&name.node).ok_or_else(|| {
        let is_other =
            Encryption::named(&name.node).is_some() || NamedSuite::named(&name.node).is_some();
        let known = algorithm::INTEGRITY.iter().map(|row| row.name);
        unknown_algorithm(name, "integrity", is_other.then_some("-E"), known)
    })?;
    let key = fitting_key(algorithm, row.name, &[row.key_len], row.salt_len)?;
    Ok(Some((row, key)))
}

fn unknown_algorithm<'a>(
    name: &At<String>,
    kind: &str,
    other_flag: Option<&str>,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Problem {
    if let Some(problem) = unsupported::algorithm(name) {
        return problem;
    }
    let shown = crate::setkey::shown(&name.node);
    let problem = Problem::new(name.span, format!("`{shown}` is no {kind} algorithm"));
    if kind == "integrity" && name.node == "aes-gmac" {
        return problem.advise(
            "AH has one name for each length of key: `aes-128-gmac`, `aes-192-gmac`, `aes-256-gmac`",
        );
    }
    match (other_flag, nearest(&name.node, known.clone())) {
        (Some(flag), _) => problem.advise(format!("give it with `{flag}`")),
        (None, Some(near)) => problem.advise(format!("did you mean `{near}`?")),
        (None, None) => problem.advise(format!(
            "it is one of {}",
            known.collect::<Vec<_>>().join(", ")
        )),
    }
}

/// The key of `algorithm` if it has one of the `lengths`, the last `salt` bytes of which are no key proper.
fn fitting_key(
    algorithm: &At<Algorithm>,
    name: &str,
    lengths: &[usize],
    salt: usize,
) -> Lower<Secret> {
    let key = algorithm.node.key.as_ref();
    let given = key.map_or(0, |key| key.node.secret().expose().len());
    match key {
        Some(key) if lengths.contains(&given) => Ok(key.node.secret().clone()),
        None if lengths.contains(&0) => Ok(Secret::new(Vec::new())),
        None => {
            let message = format!("{name} needs a key of {}", in_words(lengths));
            Err(Problem::new(algorithm.node.name.span, message).advise(how_to_write(lengths, salt)))
        }
        Some(key) => {
            let message = match lengths {
                [0] => format!("{name} takes no key"),
                _ => format!(
                    "{name} takes a key of {}, this one has {given}",
                    in_words(lengths)
                ),
            };
            Err(Problem::new(key.span, message).advise(advice_on_length(&key.node, lengths, salt)))
        }
    }
}

fn advice_on_length(key: &Key, lengths: &[usize], salt: usize) -> String {
    let bytes = key.secret().expose();
    let given = bytes.len();
    let is_digits = bytes.iter().all(u8::is_ascii_hexdigit);
    if lengths == [0] {
        "leave the key out".to_owned()
    } else if salt > 0 && lengths.contains(&(given + salt)) {
        format!("behind the key itself stand {salt} bytes of salt, the same on both sides")
    } else if matches!(key, Key::Quoted(_)) && is_digits && lengths.contains(&(given / 2)) {
        "in quotes each character is a byte; for digits write `0x` in front and no quotes"
            .to_owned()
    } else {
        how_to_write(lengths, salt)
    }
}

fn how_to_write(lengths: &[usize], salt: usize) -> String {
    let first = lengths.first().copied().unwrap_or_default();
    let digits = first * 2;
    let salted = match salt {
        0 => String::new(),
        _ => format!(" (the last {salt} are salt)"),
    };
    format!(
        "{first} bytes{salted} are {digits} digits behind `0x`, or {first} characters in quotes"
    )
}

/// "16, 24 or 32 bytes"; a run of numbers by its ends.
fn in_words(lengths: &[usize]) -> String {
    match lengths {
        [] => "no bytes".to_owned(),
        [one] => format!("{one} bytes"),
        [first, .., last] if lengths.len() > 3 && last - first + 1 == lengths.len() => {
            format!("{first} to {last} bytes")
        }
        [firsts @ .., last] => {
            let firsts: Vec<_> = firsts.iter().map(usize::to_string).collect();
            format!("{} or {last} bytes", firsts.join(", "))
        }
    }
}

/// The problem of algorithms that do not go together.
fn suite_problem(error: &SuiteError, entry: &SaEntry, icv: Option<At<usize>>) -> Problem {
    let span = match error {
        SuiteError::AeadWithIntegrity(_) | SuiteError::OnlyForAh(_) => {
            entry.integrity.as_ref().map(|at| at.node.name.span)
        }
        SuiteError::IcvLength(_) => icv.map(|at| at.span),
        _ => None,
    };
    let problem = Problem::new(span.unwrap_or(algorithms_span(entry)), error.to_string());
    match error {
        SuiteError::IcvLength(_) => problem.advise("`icv` is in bytes: 8 to the length of the hash, and fixed where the cipher authenticates"),
        SuiteError::AeadWithIntegrity(_) => problem.advise("leave out `-A`"),
        SuiteError::OnlyForAh(_) => {
            problem.advise("in ESP `-E aes-gmac` with the same key does it, without `-A`")
        }
        _ => problem,
    }
}

/// From the first algorithm's name to the last's.
fn algorithms_span(entry: &SaEntry) -> Span {
    let names = [&entry.encryption, &entry.integrity].into_iter().flatten();
    let spans: Vec<_> = names.map(|at| at.node.name.span).collect();
    match (spans.first(), spans.last()) {
        (Some(&first), Some(&last)) => first.to(last),
        _ => entry.name.protocol.span,
    }
}
