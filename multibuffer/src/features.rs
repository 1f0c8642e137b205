//! The instructions that kernels may use, by the names that switch them off.

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

impl Features {
    pub(crate) fn named(self) -> [(&'static str, bool); 9] {
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

    pub(crate) fn without(self, names: &str) -> Self {
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

/// What this processor has.
#[cfg(target_arch = "x86_64")]
pub(crate) fn detected() -> Features {
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

/// What this processor has.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn detected() -> Features {
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
