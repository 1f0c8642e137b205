//! Trusted roots: the proofs of peers that have certificates.

use super::{Output, Work, WorkError};
use crate::{
    authentication::check_signature,
    certificate::{Certificate, Trust, UnixTime},
    identity::Identity,
};
use std::{collections::HashMap, time::Duration};

/// What checks certificates and signatures. It holds no secret.
#[derive(Default)]
pub struct Verifier {
    trusts: HashMap<u32, Trust>,
}

impl Verifier {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the trusted roots of this number.
    pub fn add_trust(&mut self, number: u32, trust: Trust) {
        self.trusts.insert(number, trust);
    }

    /// Does one work at `unix_time` (seconds): [`Work::Verify`] alone.
    pub fn perform(&self, work: Work, unix_time: u64) -> Result<Output, WorkError> {
        let Work::Verify {
            trust,
            chain,
            claimed,
            auth,
            octets,
        } = work
        else {
            return Err(WorkError::Algorithm);
        };
        let trust = self.trusts.get(&trust).ok_or(WorkError::Unknown(trust))?;
        verify(trust, &chain, &claimed, (auth, &octets), unix_time)
    }
}

fn verify(
    trust: &Trust,
    chain: &[Vec<u8>],
    claimed: &Identity,
    ((method, data), octets): ((u8, Vec<u8>), &[u8]),
    unix_time: u64,
) -> Result<Output, WorkError> {
    let certificate = |why: String| WorkError::Certificate(why);
    let read = |(number, der): (usize, &Vec<u8>)| {
        let why = |error| certificate(format!("certificate {number} of the peer's: {error}"));
        Certificate::from_der(der).map_err(why)
    };
    let chain = (1..).zip(chain).map(read).collect::<Result<Vec<_>, _>>()?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(unix_time));
    let key = trust
        .authenticate(&chain, claimed, now)
        .map_err(|failure| certificate(failure.to_string()))?;
    let scheme = check_signature(key, method, &data, octets)
        .map_err(|error| WorkError::Authentication(error.to_string()))?;
    Ok(Output::Verified {
        scheme: scheme.to_string(),
        subject: chain.first().map(Certificate::subject).unwrap_or_default(),
    })
}
