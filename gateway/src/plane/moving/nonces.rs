//! Whether a counter nonce comes twice where both planes use an association under one key (`--same-keys`).
//!
//! ```text
//!   our own data plane    IV = start + sequence number        (modulo 2^64)
//!   the kernel            IV = salt XOR sequence number       a new salt each time that it gets the association
//! ```
//!
//! Each number is used once, so an IV comes twice only where the two ways, or two salts, meet.

/// The IVs that the kernel has used while it carried an association once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelIvs {
    pub(crate) salt: u64,
    /// Its first sequence number.
    pub(crate) first: u64,
    /// Its last one.
    pub(crate) last: u64,
}

/// What was used under one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UsedIvs {
    /// The IV of our own data plane that belongs to the sequence number 0.
    pub(crate) start: u64,
    /// The last sequence number that it may have used.
    pub(crate) sent: u64,
    /// What the kernel has used.
    pub(crate) by_kernel: Vec<KernelIvs>,
}

impl UsedIvs {
    /// The least sequence number from `first` on with which the kernel, with this salt, would use an IV again.
    pub(crate) fn repeated_by_kernel(&self, salt: u64, first: u64) -> Option<u64> {
        let own = between(self.start.wrapping_add(1), self.sent);
        let own = own.into_iter().map(|(low, high)| (salt, low, high));
        // Two salts give one IV for two numbers whose XOR is theirs.
        let before = self.by_kernel.iter();
        let before = before.map(|used| (salt ^ used.salt, used.first, used.last));
        let found = own.chain(before);
        found
            .filter_map(|(flipped, low, high)| least_flipped(flipped, first, low, high))
            .min()
    }

    /// The least sequence number from `first` on with which our own data plane would use an IV of the kernel's again.
    pub(crate) fn repeated_by_user(&self, first: u64) -> Option<u64> {
        let blocks = self.by_kernel.iter().flat_map(|used| {
            let blocks = blocks(used.first, used.last);
            blocks.map(|(low, size)| ((low ^ used.salt) & !(size - 1), size))
        });
        let numbers = blocks.flat_map(|(iv, size)| between(iv.wrapping_sub(self.start), size));
        least(numbers, first)
    }
}

/// The least number from `first` on that is in one of these ranges.
fn least(ranges: impl Iterator<Item = (u64, u64)>, first: u64) -> Option<u64> {
    let reached = ranges.filter(|(_, high)| *high >= first);
    reached.map(|(low, _)| low.max(first)).min()
}

/// `count` numbers from `low` on, modulo 2^64, as one or two ranges: their lowest and highest number.
fn between(low: u64, count: u64) -> Vec<(u64, u64)> {
    let Some(more) = count.checked_sub(1) else {
        return Vec::new();
    };
    match low.checked_add(more) {
        Some(high) => vec![(low, high)],
        None => vec![(low, u64::MAX), (0, low.wrapping_add(more))],
    }
}

/// The least number from `first` on that, XORed with `flipped`, is between `low` and `high`.
fn least_flipped(flipped: u64, first: u64, low: u64, high: u64) -> Option<u64> {
    let numbers = blocks(low, high).map(|(low, size)| {
        let low = (low ^ flipped) & !(size - 1);
        (low, low + (size - 1))
    });
    least(numbers, first)
}

/// The range as blocks whose size is a power of two that divides their lowest number: XOR makes such a block of such a
/// block.
fn blocks(low: u64, high: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut next = Some(low);
    std::iter::from_fn(move || {
        let low = next.filter(|low| *low <= high)?;
        let most = (high - low)
            .checked_add(1)
            .map_or(1 << 63, |count| 1 << count.ilog2());
        let aligned = 1_u64.checked_shl(low.trailing_zeros()).unwrap_or(1 << 63);
        let size = most.min(aligned);
        next = low.checked_add(size);
        Some((low, size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By trying each number of a small range.
    fn tried(used: &UsedIvs, first: u64, iv: impl Fn(u64) -> u64, is_kernel: bool) -> Option<u64> {
        let own: Vec<u64> = (1..=used.sent)
            .map(|number| used.start.wrapping_add(number))
            .collect();
        let kernels = used.by_kernel.iter();
        let kernels =
            kernels.flat_map(|used| (used.first..=used.last).map(|number| used.salt ^ number));
        let kernels: Vec<u64> = kernels.collect();
        (first..first + 600).find(|number| {
            kernels.contains(&iv(*number)) || is_kernel && own.contains(&iv(*number))
        })
    }

    #[test]
    fn the_least_number_that_repeats_an_iv_is_found_on_either_plane() {
        // A small generator: salts and starts close to each other, and around the end of 64 bits.
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut repeated, mut never) = (0, 0);
        for turn in 0..3000 {
            let near = [0, 1 << 20, u64::MAX - 300][turn % 3];
            let kernel = |first: u64, random: &mut dyn FnMut(u64) -> u64| KernelIvs {
                salt: near.wrapping_add(random(512)),
                first,
                last: first + random(40),
            };
            let sent = 1 + random(60);
            let used = UsedIvs {
                start: near.wrapping_add(random(512)),
                sent,
                by_kernel: vec![
                    kernel(sent + 1, &mut random),
                    kernel(sent + 80, &mut random),
                ],
            };
            let first = sent + 130;
            let salt = near.wrapping_add(random(512));
            let by_kernel = used.repeated_by_kernel(salt, first);
            let by_user = used.repeated_by_user(first);
            for (found, expected) in [
                (by_kernel, tried(&used, first, |number| salt ^ number, true)),
                (
                    by_user,
                    tried(
                        &used,
                        first,
                        |number| used.start.wrapping_add(number),
                        false,
                    ),
                ),
            ] {
                let found = found.filter(|number| *number < first + 600);
                assert_eq!(found, expected, "{used:?}, salt {salt:#x}, from {first} on");
                repeated += usize::from(found.is_some());
                never += usize::from(found.is_none());
            }
        }
        assert!(repeated > 300 && never > 300, "{repeated} and {never}");
    }

    #[test]
    fn whole_ranges_are_possible() {
        let all: Vec<_> = blocks(0, u64::MAX).collect();
        assert_eq!(all, [(0, 1 << 63), (1 << 63, 1 << 63)]);
        assert_eq!(blocks(5, 4).count(), 0);
        assert_eq!(between(u64::MAX, 2), [(u64::MAX, u64::MAX), (0, 0)]);
        assert_eq!(between(7, 0), []);
    }
}
