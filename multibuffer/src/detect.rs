//! Which of this crate's kernels this processor runs.
//!
//! Determined once per process. Where a feature is missing, or the processor is of another family, the libraries
//! compute. [`WITHOUT_VARIABLE`] switches features off, so that every path can be tested on one machine, and a
//! suspected kernel can be disabled without a new build.

use crate::features::{Features, detected};
use std::sync::OnceLock;

/// The environment variable that names features to do without, with commas between: `aesni`, `vaes`, `clmul`, `vclmul`,
/// `avx2`, `sha`, `avx512`, `ifma`, `bitslice`, or `all`.
const WITHOUT_VARIABLE: &str = "MULTIBUFFER_WITHOUT";

/// State of a feature that kernels can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureState {
    /// The kernels use it.
    Used,
    /// The processor lacks it.
    Missing,
    /// It was switched off by name.
    SwitchedOff,
    /// Its kernels gave a wrong result on this processor and are not used.
    Unproven,
}

/// The state of every feature, by the name that switches it off.
pub fn feature_states() -> Vec<(&'static str, FeatureState)> {
    let used = features();
    let asked = detected().without(&switched_off());
    let states = detected().named().into_iter().zip(asked.named());
    let state = |(((name, has), (_, asked)), (_, used))| {
        let state = match (has, asked, used) {
            (_, _, true) => FeatureState::Used,
            (false, ..) => FeatureState::Missing,
            (_, false, _) => FeatureState::SwitchedOff,
            _ => FeatureState::Unproven,
        };
        (name, state)
    };
    states.zip(used.named()).map(state).collect()
}

/// The features of this processor, less those that [`WITHOUT_VARIABLE`] names.
pub(crate) fn features() -> Features {
    static FEATURES: OnceLock<Features> = OnceLock::new();
    *FEATURES.get_or_init(|| proven(detected().without(&switched_off())))
}

fn switched_off() -> String {
    std::env::var(WITHOUT_VARIABLE).unwrap_or_default()
}

/// The features whose kernels have passed their test on this processor.
#[cfg(target_arch = "x86_64")]
fn proven(mut features: Features) -> Features {
    use crate::kernels::{chacha, self_test, wide::AesLevel};
    // SAFETY: each test is for vectors that the processor has.
    unsafe {
        features.avx512 = features.avx512 && self_test::avx512_is_right();
        if AesLevel::for_aes(features) == Some(AesLevel::Four) {
            features.avx512 &= self_test::aes_is_right(AesLevel::Four);
        }
        features.avx512 =
            features.avx512 && self_test::chacha_is_right(chacha::ChaChaLevel::Avx512);
        features.ifma = features.avx512
            && features.ifma
            && self_test::chacha_is_right(chacha::ChaChaLevel::Avx512Ifma);
        features.vaes = features.aesni && features.vaes && self_test::aes_is_right(AesLevel::Two);
        features.aesni = features.aesni && self_test::aes_is_right(AesLevel::One);
        if AesLevel::for_gcm(features) == Some(AesLevel::Four) {
            features.vclmul &= self_test::gcm_is_right(AesLevel::Four);
        }
        if features.vaes && features.vclmul {
            features.vclmul &= self_test::gcm_is_right(AesLevel::Two);
        }
        features.clmul = features.aesni && features.clmul && self_test::gcm_is_right(AesLevel::One);
    }
    features
}

#[cfg(not(target_arch = "x86_64"))]
fn proven(features: Features) -> Features {
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_processor_has_passes_its_test() {
        assert_eq!(proven(detected()), detected());
    }
}
