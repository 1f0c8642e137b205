//! Which of our own kernels this processor runs.
//!
//! Asked once per process. Where the answer is no, or the processor is of another family, the libraries compute.
//! [`WITHOUT`] switches features off, so that every path can be tested on one machine, and a suspected kernel can
//! be taken out of service without a new build.

use std::sync::OnceLock;

/// The environment variable that names features to do without, with commas between: `aesni`, `vaes`, `clmul`, `vclmul`,
/// `avx2`, `sha`, `avx512`, `ifma`, `bitslice`, or `all`.
const WITHOUT: &str = "MULTIBUFFER_WITHOUT";

/// What the kernels may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Features {
    /// AES instructions on one block.
    pub(crate) aesni: bool,
    /// AES instructions on two blocks.
    pub(crate) vaes: bool,
    /// Carry-less products of one block.
    pub(crate) clmul: bool,
    /// Carry-less products of two blocks.
    pub(crate) vclmul: bool,
    /// Vectors of 256 bits.
    pub(crate) avx2: bool,
    /// SHA-1 and SHA-256 instructions.
    pub(crate) sha: bool,
    /// Vectors of 512 bits with three-input logic and rotation.
    pub(crate) avx512: bool,
    /// Products of 52 bits in vectors of 512.
    pub(crate) ifma: bool,
    /// DES by logic on bit planes, in vectors or in ordinary integers: any processor can.
    pub(crate) bitslice: bool,
}

/// What became of a feature that kernels can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureState {
    /// The kernels use it.
    Used,
    /// The processor lacks it.
    Missing,
    /// It was switched off by name.
    SwitchedOff,
    /// Its kernels computed something wrong on this processor, and are not used.
    Unproven,
}

/// What the kernels make of this processor, by the names that switch features off.
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

/// The features of this processor, less those that [`WITHOUT`] names.
pub(crate) fn features() -> Features {
    static FEATURES: OnceLock<Features> = OnceLock::new();
    *FEATURES.get_or_init(|| proven(detected().without(&switched_off())))
}

fn switched_off() -> String {
    std::env::var(WITHOUT).unwrap_or_default()
}

impl Features {
    fn named(self) -> [(&'static str, bool); 9] {
        [
            ("aesni", self.aesni),
            ("vaes", self.vaes),
            ("clmul", self.clmul),
            ("vclmul", self.vclmul),
            ("avx2", self.avx2),
            ("sha", self.sha),
            ("avx512", self.avx512),
            ("ifma", self.ifma),
            ("bitslice", self.bitslice),
        ]
    }

    fn without(self, names: &str) -> Self {
        let keep = |name| {
            !names
                .split(',')
                .any(|off| matches!(off.trim(), "all") || off.trim() == name)
        };
        Self {
            aesni: self.aesni && keep("aesni"),
            vaes: self.vaes && keep("vaes"),
            clmul: self.clmul && keep("clmul"),
            vclmul: self.vclmul && keep("vclmul"),
            avx2: self.avx2 && keep("avx2"),
            sha: self.sha && keep("sha"),
            avx512: self.avx512 && keep("avx512"),
            ifma: self.ifma && keep("ifma"),
            bitslice: self.bitslice && keep("bitslice"),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Features {
    let aesni = is_x86_feature_detected!("aes") && is_x86_feature_detected!("sse4.1");
    let avx2 = is_x86_feature_detected!("avx2");
    Features {
        aesni,
        vaes: aesni && avx2 && is_x86_feature_detected!("vaes"),
        clmul: aesni && is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("ssse3"),
        vclmul: avx2
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("vpclmulqdq"),
        avx2,
        sha: is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1"),
        avx512: avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw"),
        ifma: is_x86_feature_detected!("avx512ifma"),
        bitslice: true,
    }
}

/// The features whose kernels have passed their test on this processor.
#[cfg(target_arch = "x86_64")]
fn proven(mut features: Features) -> Features {
    use crate::kernels::{chacha, self_test, wide::Level};
    // SAFETY: each test is for vectors that the processor has.
    unsafe {
        features.avx512 = features.avx512 && self_test::avx512_is_right();
        if Level::for_aes(features) == Some(Level::Four) {
            features.avx512 &= self_test::aes_is_right(Level::Four);
        }
        features.avx512 = features.avx512 && self_test::chacha_is_right(chacha::Level::Full);
        features.ifma = features.avx512
            && features.ifma
            && self_test::chacha_is_right(chacha::Level::FullWithProducts);
        features.vaes = features.aesni && features.vaes && self_test::aes_is_right(Level::Two);
        features.aesni = features.aesni && self_test::aes_is_right(Level::One);
        if Level::for_gcm(features) == Some(Level::Four) {
            features.vclmul &= self_test::gcm_is_right(Level::Four);
        }
        if features.vaes && features.vclmul {
            features.vclmul &= self_test::gcm_is_right(Level::Two);
        }
        features.clmul = features.aesni && features.clmul && self_test::gcm_is_right(Level::One);
    }
    features
}

#[cfg(not(target_arch = "x86_64"))]
fn proven(features: Features) -> Features {
    features
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Features {
    Features {
        bitslice: true,
        ..Features::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Features = Features {
        aesni: true,
        vaes: true,
        clmul: true,
        vclmul: true,
        avx2: true,
        sha: true,
        avx512: true,
        ifma: true,
        bitslice: true,
    };

    #[test]
    fn named_features_are_switched_off_and_no_others() {
        assert_eq!(EVERYTHING.without(""), EVERYTHING);
        assert_eq!(
            EVERYTHING.without("sha, vaes"),
            Features {
                sha: false,
                vaes: false,
                ..EVERYTHING
            }
        );
        assert_eq!(EVERYTHING.without("all"), Features::default());
    }

    #[test]
    fn what_this_processor_has_passes_its_test() {
        assert_eq!(proven(detected()), detected());
    }

    #[test]
    fn every_feature_has_the_name_that_switches_it_off() {
        for (at, (name, on)) in EVERYTHING.named().into_iter().enumerate() {
            assert!(on, "{name} is not told");
            let without = EVERYTHING.without(name).named();
            let off: Vec<usize> = (0..without.len())
                .filter(|&other| !without[other].1)
                .collect();
            assert_eq!(off, [at], "{name} switches something else off");
        }
    }

    #[test]
    fn a_feature_that_is_missing_is_not_switched_on() {
        assert_eq!(Features::default().without("sha"), Features::default());
    }
}
