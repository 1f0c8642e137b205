//! Which MACs are computed in lanes, and for how many messages at least.

use super::{MacJob, MacKey};
use crate::kernels::{
    at_least::at_least,
    lanes::{self, HmacJob, Lanes},
};

impl MacKey {
    /// Signs every job; all keys are of the same algorithm as this one.
    pub(crate) fn sign_all<'a>(&self, jobs: impl Iterator<Item = MacJob<'a>>) {
        match self {
            MacKey::HmacMd5(_) => sign(jobs, MacJob::into_md5),
            MacKey::HmacSha1(_) => sign(jobs, MacJob::into_sha1),
            MacKey::HmacRipemd160(_) => sign(jobs, MacJob::into_ripemd160),
            MacKey::HmacSha256(_) => sign(jobs, MacJob::into_sha256),
            MacKey::HmacSha384(_) => sign(jobs, MacJob::into_sha384),
            MacKey::HmacSha512(_) => sign(jobs, MacJob::into_sha512),
            MacKey::CbcMac(key) if let Some(keys) = key.lanes() => {
                match at_least(MIN_CBC_MAC_LANE_JOBS, jobs) {
                    Ok(jobs) => lanes::cbc_mac(keys.rounds(), jobs.map(MacJob::into_cbc_mac)),
                    Err(few) => few.for_each(MacJob::alone),
                }
            }
            MacKey::None | MacKey::CbcMac(_) => jobs.for_each(MacJob::alone),
        }
    }
}

/// Signs in lanes if there are any and enough jobs for them, else one after the other.
fn sign<'a, A: Lanes>(
    jobs: impl Iterator<Item = MacJob<'a>>,
    into: impl Fn(MacJob<'a>) -> HmacJob<'a, A>,
) {
    let Some(many) = lanes::hmac_min_jobs::<A>() else {
        return jobs.for_each(MacJob::alone);
    };
    match at_least(many, jobs) {
        Ok(jobs) => lanes::hmac(jobs.map(into)),
        Err(few) => few.for_each(MacJob::alone),
    }
}

/// The fewest messages for which lanes are faster than the library for XCBC and CMAC.
const MIN_CBC_MAC_LANE_JOBS: usize = 2;

impl<'a> MacJob<'a> {
    fn into_cbc_mac(self) -> lanes::CbcMacJob<'a> {
        let MacKey::CbcMac(key) = self.key else {
            unreachable!("all jobs have one algorithm")
        };
        let keys = key
            .lanes()
            .expect("all keys were expanded on this processor");
        let [complete, padded] = key.masks();
        lanes::CbcMacJob {
            keys,
            complete,
            padded,
            message: self.message,
            icv: self.icv,
        }
    }
}

macro_rules! into_lane {
    ($($into:ident: $variant:ident $algorithm:ident;)*) => {
        impl<'a> MacJob<'a> {$(
            fn $into(self) -> lanes::HmacJob<'a, lanes::$algorithm> {
                let MacKey::$variant(key) = self.key else { unreachable!("all jobs have one algorithm") };
                let [inner, outer] = key.states();
                lanes::HmacJob { inner, outer, message: self.message, icv: self.icv }
            }
        )*}
    };
}

into_lane! {
    into_md5: HmacMd5 Md5;
    into_sha1: HmacSha1 Sha1;
    into_ripemd160: HmacRipemd160 Ripemd160;
    into_sha256: HmacSha256 Sha256;
    into_sha384: HmacSha384 Sha384;
    into_sha512: HmacSha512 Sha512;
}
