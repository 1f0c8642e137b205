//! CBC mode over bitsliced DES and Triple DES: which block stands in which lane.

use zeroize::Zeroize;

use super::engine::{Engine, MAX_LANES, PlaneWidth};
use crate::kernels::aws_lc::{DesKey, TripleDesKey};

/// With fewer blocks than this the library is done before a pass over all lanes is.
pub(crate) const MIN_LANE_BLOCKS: usize = 12;

/// A DES or Triple DES key, for lanes and for the library.
pub(crate) struct DesKeys {
    keys: [u64; 3],
    library: Library,
}

#[expect(
    clippy::large_enum_variant,
    reason = "the key is boxed as a whole, and single DES is rare"
)]
enum Library {
    Single(DesKey),
    Triple(TripleDesKey),
}

impl DesKeys {
    /// A DES key.
    pub(crate) fn single(key: &[u8; 8]) -> Self {
        Self {
            keys: [u64::from_be_bytes(*key), 0, 0],
            library: Library::Single(DesKey::new(key)),
        }
    }

    /// A Triple DES key.
    pub(crate) fn triple(key: &[u8; 24]) -> Self {
        let (thirds, _) = key.as_chunks::<8>();
        let keys = [0, 1, 2].map(|third| u64::from_be_bytes(thirds[third]));
        Self {
            keys,
            library: Library::Triple(TripleDesKey::new(key)),
        }
    }

    /// Whether this is Triple DES.
    pub(crate) fn is_triple(&self) -> bool {
        matches!(self.library, Library::Triple(_))
    }

    /// Encrypts one text, whole blocks, in place.
    pub(crate) fn cbc_encrypt(&self, iv: &[u8; 8], text: &mut [u8]) {
        match &self.library {
            Library::Single(key) => key.cbc_encrypt(iv, text),
            Library::Triple(key) => key.cbc_encrypt(iv, text),
        }
    }

    /// Decrypts one text, whole blocks, in place.
    pub(crate) fn cbc_decrypt(&self, iv: &[u8; 8], text: &mut [u8]) {
        match &self.library {
            Library::Single(key) => key.cbc_decrypt(iv, text),
            Library::Triple(key) => key.cbc_decrypt(iv, text),
        }
    }
}

impl Drop for DesKeys {
    fn drop(&mut self) {
        self.keys.zeroize();
    }
}

/// One packet.
pub(crate) struct DesCbcJob<'a> {
    pub(crate) keys: &'a DesKeys,
    pub(crate) iv: [u8; 8],
    /// Whole blocks.
    pub(crate) text: &'a mut [u8],
}

impl<'a> DesCbcJob<'a> {
    fn blocks(self) -> &'a mut [[u8; 8]] {
        let (blocks, rest) = self.text.as_chunks_mut();
        assert!(rest.is_empty(), "CBC text is whole blocks");
        blocks
    }
}

/// Decrypts all jobs: all are of Triple DES if `triple`, else all of DES.
///
/// # Safety
/// The processor has words of this width.
pub(in crate::kernels) unsafe fn cbc_decrypt<'a>(
    width: PlaneWidth,
    triple: bool,
    jobs: impl Iterator<Item = DesCbcJob<'a>>,
) {
    decrypt(width, triple, jobs);
}

/// Encrypts all jobs: all are of Triple DES if `triple`, else all of DES.
///
/// # Safety
/// The processor has words of this width.
pub(in crate::kernels) unsafe fn cbc_encrypt<'a>(
    width: PlaneWidth,
    triple: bool,
    jobs: impl Iterator<Item = DesCbcJob<'a>>,
) {
    encrypt(width, triple, jobs);
}

/// Blocks of one packet to decrypt, and the ciphertext before them.
struct Stretch<'a> {
    keys: &'a DesKeys,
    chain: u64,
    blocks: &'a mut [[u8; 8]],
}

fn decrypt<'a>(width: PlaneWidth, triple: bool, jobs: impl Iterator<Item = DesCbcJob<'a>>) {
    let mut engine = Engine::new(width, triple, true);
    let mut rests = jobs.map(|job| {
        let (keys, chain) = (job.keys, u64::from_be_bytes(job.iv));
        Stretch {
            keys,
            chain,
            blocks: job.blocks(),
        }
    });
    let mut rest = rests.next();
    let mut placed: [Option<Stretch<'_>>; MAX_LANES] = [const { None }; MAX_LANES];
    loop {
        let (mut filled, mut stretches) = (0, 0);
        while filled < engine.lanes()
            && let Some(whole) = rest
        {
            let (now, later) = split(whole, engine.lanes() - filled);
            rest = later.or_else(|| rests.next());
            if now.blocks.is_empty() {
                continue;
            }
            for block in &*now.blocks {
                engine.set_keys(filled, &now.keys.keys);
                engine.text[filled] = u64::from_be_bytes(*block);
                filled += 1;
            }
            placed[stretches] = Some(now);
            stretches += 1;
        }
        let current = placed[..stretches].iter_mut().flat_map(Option::take);
        if filled < MIN_LANE_BLOCKS {
            return current.for_each(|stretch| {
                stretch.keys.cbc_decrypt(
                    &stretch.chain.to_be_bytes(),
                    stretch.blocks.as_flattened_mut(),
                );
            });
        }
        engine.run();
        let mut texts = engine.text.iter();
        for stretch in current {
            let mut chain = stretch.chain;
            for (block, text) in stretch.blocks.iter_mut().zip(&mut texts) {
                let sealed = u64::from_be_bytes(*block);
                *block = (text ^ std::mem::replace(&mut chain, sealed)).to_be_bytes();
            }
        }
    }
}

/// The first `room` blocks of a stretch, and what follows if anything does.
fn split(whole: Stretch<'_>, room: usize) -> (Stretch<'_>, Option<Stretch<'_>>) {
    let (keys, chain) = (whole.keys, whole.chain);
    let (now, later) = whole.blocks.split_at_mut(room.min(whole.blocks.len()));
    let later = match now.last() {
        Some(last) if !later.is_empty() => Some(Stretch {
            keys,
            chain: u64::from_be_bytes(*last),
            blocks: later,
        }),
        _ => None,
    };
    (
        Stretch {
            keys,
            chain,
            blocks: now,
        },
        later,
    )
}

fn encrypt<'a>(width: PlaneWidth, triple: bool, jobs: impl Iterator<Item = DesCbcJob<'a>>) {
    let mut engine = Engine::new(width, triple, false);
    let mut jobs = jobs.filter(|job| !job.text.is_empty()).fuse();
    let mut placed: [Option<Stretch<'_>>; MAX_LANES] = [const { None }; MAX_LANES];
    let mut lanes = 0;
    loop {
        for (lane, rest) in placed[..engine.lanes()].iter_mut().enumerate() {
            if rest.is_none()
                && let Some(job) = jobs.next()
            {
                engine.set_keys(lane, &job.keys.keys);
                *rest = Some(Stretch {
                    keys: job.keys,
                    chain: u64::from_be_bytes(job.iv),
                    blocks: job.blocks(),
                });
                lanes = lanes.max(lane + 1);
            }
        }
        let current = placed[..lanes].iter_mut();
        if current.as_slice().iter().flatten().count() < MIN_LANE_BLOCKS {
            return current.flatten().for_each(|rest| {
                rest.keys
                    .cbc_encrypt(&rest.chain.to_be_bytes(), rest.blocks.as_flattened_mut());
            });
        }
        for (rest, text) in placed[..lanes].iter().zip(&mut engine.text) {
            if let Some(rest) = rest {
                *text = u64::from_be_bytes(rest.blocks[0]) ^ rest.chain;
            }
        }
        engine.run();
        for (rest, text) in placed[..lanes].iter_mut().zip(&engine.text) {
            *rest = rest.take().and_then(|rest| advanced(rest, *text));
        }
    }
}

/// The rest of a packet after its first block became `sealed`, if there is any.
fn advanced(rest: Stretch<'_>, sealed: u64) -> Option<Stretch<'_>> {
    let (first, blocks) = rest.blocks.split_first_mut()?;
    *first = sealed.to_be_bytes();
    (!blocks.is_empty()).then_some(Stretch {
        chain: sealed,
        blocks,
        ..rest
    })
}

#[cfg(test)]
mod tests;
