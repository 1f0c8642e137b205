//! Unpredictable IVs for CBC suites (RFC 3602 3), cheap enough for one per packet: AES-256 in counter mode under a key
//! that the system's random generator chose, drawn in order, so that one seed always gives the same packets.

use multibuffer::{Cipher, Integrity, Iv, Key, SealJob};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// Random bytes made at a time.
const BLOCK_LEN: usize = 4096;

/// Bytes of a seed: an AES-256 key and a nonce.
pub const SEED_LEN: usize = 36;

/// A stream of unpredictable bytes.
pub struct IvSource {
    key: Key,
    /// Every value makes one block; 2^64 of them are never used up.
    counter: u64,
    block: [u8; BLOCK_LEN],
    used: usize,
}

impl IvSource {
    /// One seeded by the system.
    pub fn from_system() -> io::Result<Self> {
        let mut seed = [0; SEED_LEN];
        let mut filled = 0;
        while filled < SEED_LEN {
            filled += getrandom(&mut seed[filled..], GetRandomFlags::empty())?;
        }
        Ok(Self::seeded(&seed))
    }

    /// One with a given seed, for tests and repeatable captures.
    pub fn seeded(seed: &[u8; SEED_LEN]) -> Self {
        // INVARIANT: 32 bytes of key and 4 of nonce are what AES-256 in counter mode takes.
        let key = Key::new(Cipher::AesCtr, seed, Integrity::None, &[], 0)
            .expect("a seed is an AES-256-CTR key");
        Self {
            key,
            counter: 0,
            block: [0; BLOCK_LEN],
            used: BLOCK_LEN,
        }
    }

    /// Fills `out`, at most 4096 bytes, with bytes that were not used before.
    pub fn fill(&mut self, out: &mut [u8]) {
        if self.used + out.len() > BLOCK_LEN {
            self.refill();
        }
        let end = self.used + out.len();
        out.copy_from_slice(&self.block[self.used..end]);
        self.used = end;
    }

    fn refill(&mut self) {
        self.counter += 1;
        self.used = 0;
        multibuffer::seal(&mut [SealJob {
            key: &self.key,
            aad: &[],
            aad_tail: &[],
            iv: Iv::new(&self.counter.to_be_bytes()),
            input: [&[0; BLOCK_LEN], &[], &[]],
            output: &mut self.block,
        }]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn draw(source: &mut IvSource, count: usize) -> Vec<[u8; 16]> {
        let mut iv = [0; 16];
        (0..count)
            .map(|_| {
                source.fill(&mut iv);
                iv
            })
            .collect()
    }

    #[test]
    fn one_seed_gives_one_stream_and_another_seed_another() {
        let ivs = |seed: u8| draw(&mut IvSource::seeded(&[seed; SEED_LEN]), 1000);
        assert_eq!(ivs(1), ivs(1));
        assert_ne!(ivs(1), ivs(2));
    }

    #[test]
    fn no_iv_comes_twice_and_its_bits_are_balanced() {
        let ivs = draw(&mut IvSource::from_system().unwrap(), 20_000);
        assert_eq!(ivs.iter().collect::<HashSet<_>>().len(), ivs.len());
        let ones: u32 = ivs.iter().flatten().map(|byte| byte.count_ones()).sum();
        // Half of 2.56 million bits, within seven standard deviations.
        assert!((1_274_400..1_285_600).contains(&ones), "{ones}");
    }
}
