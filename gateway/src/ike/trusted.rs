//! The trusted roots and revocation lists of the configuration, as the verifier takes them.

use super::message::Trusted;
use ikev2::certificate::Trust;

/// What is damaged is left out: the main process has checked the files.
pub(super) fn trust(files: &Trusted) -> Trust {
    let mut trust = Trust::default();
    trust.revocation = files.revocation;
    let mut outcomes = Vec::new();
    for file in &files.roots {
        outcomes.push(trust.add_roots(file));
    }
    for file in &files.lists {
        outcomes.push(trust.add_revocation_lists(file));
    }
    for error in outcomes.into_iter().filter_map(Result::err) {
        eprintln!("esplanade: trusted roots {}: {error}", files.number);
    }
    trust
}
