//! A load of blocks with their keys, and the pass of DES or Triple DES over them.

use std::ptr;

use zeroize::Zeroize;

use crate::features::Features;

use super::{
    des::{Planes, des, transpose},
    word::Word,
};

/// Lanes of the widest word.
pub(super) const MAX_LANES: usize = 512;

/// The widest words that this processor has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaneWidth {
    /// 64 blocks in ordinary integers.
    Any,
    /// 256 blocks in AVX2 vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 256 blocks in vectors of the same length, with the three-input logic of AVX-512: the fastest single pass.
    #[cfg(target_arch = "x86_64")]
    Avx512Half,
    /// 512 blocks in AVX-512 vectors: the most blocks in a given time.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl PlaneWidth {
    /// Every width that this processor has, the widest last.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Self> {
        let mut widths = vec![Self::Any];
        #[cfg(target_arch = "x86_64")]
        {
            let features = crate::detect::features();
            widths.extend(features.avx2.then_some(Self::Avx2));
            widths.extend(features.avx512.then_some(Self::Avx512Half));
            widths.extend(features.avx512.then_some(Self::Avx512));
        }
        widths
    }

    /// The best for passes that are full.
    pub(crate) fn for_many(features: Features) -> Self {
        #[cfg(target_arch = "x86_64")]
        if features.avx512 {
            return Self::Avx512;
        }
        Self::for_few(features)
    }

    /// The best for up to 256 blocks at a time, where how long a pass takes is what counts.
    pub(crate) fn for_few(features: Features) -> Self {
        #[cfg(target_arch = "x86_64")]
        match features {
            features if features.avx512 => return Self::Avx512Half,
            features if features.avx2 => return Self::Avx2,
            _ => {}
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = features;
        Self::Any
    }

    fn lanes(self) -> usize {
        match self {
            Self::Any => 64,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Avx512Half => 256,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 512,
        }
    }
}

/// Blocks as big-endian numbers, lane by lane.
pub(super) type Lanes = [u64; MAX_LANES];

/// Blocks, keys and what is to be done with them.
///
/// INVARIANT: `width` is one that this processor has.
pub(super) struct Engine<'a> {
    width: PlaneWidth,
    triple: bool,
    decrypting: bool,
    /// What `run` replaces.
    pub(super) text: Lanes,
    loaded: [Option<&'a [u64; 3]>; MAX_LANES],
    keys: [Lanes; 3],
    /// `keys` as bit planes.
    planes: [Lanes; 3],
    /// Whether `keys` has changed since `planes` was made.
    stale: bool,
}

impl<'a> Engine<'a> {
    pub(super) fn new(width: PlaneWidth, triple: bool, decrypting: bool) -> Self {
        let none = [0; MAX_LANES];
        Self {
            width,
            triple,
            decrypting,
            text: none,
            loaded: [None; MAX_LANES],
            keys: [none; 3],
            planes: [none; 3],
            stale: true,
        }
    }

    pub(super) fn lanes(&self) -> usize {
        self.width.lanes()
    }

    /// Sets the keys for the blocks in `lane`, until the next call.
    pub(super) fn set_keys(&mut self, lane: usize, keys: &'a [u64; 3]) {
        if self.loaded[lane].is_some_and(|loaded| ptr::eq(loaded, keys)) {
            return;
        }
        self.loaded[lane] = Some(keys);
        self.stale = true;
        for (lanes, key) in self.keys.iter_mut().zip(keys) {
            lanes[lane] = *key;
        }
    }

    /// Enciphers the block in every lane.
    pub(super) fn run(&mut self) {
        match self.width {
            PlaneWidth::Any => pass::<u64>(self),
            // SAFETY: the processor has this width.
            #[cfg(target_arch = "x86_64")]
            PlaneWidth::Avx2 => unsafe { x86_64::pass_256(self) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            PlaneWidth::Avx512Half => unsafe { x86_64::pass_256_ternary(self) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            PlaneWidth::Avx512 => unsafe { x86_64::pass_512(self) },
        }
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        self.keys.zeroize();
        self.planes.zeroize();
    }
}

/// Compares the AVX-512 passes with the portable one.
///
/// # Safety
/// The processor has AVX-512 F and VL.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn avx512_is_right() -> bool {
    let any = |lane: usize| (lane as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let keys: [[u64; 3]; 5] =
        std::array::from_fn(|key| std::array::from_fn(|third| any(key + 5 * third)));
    let passed = |width: PlaneWidth, lanes: std::ops::Range<usize>| {
        // INVARIANT: the caller answers for the widths.
        let mut engine = Engine::new(width, true, false);
        for (place, lane) in lanes.enumerate() {
            engine.set_keys(place, &keys[lane % 5]);
            engine.text[place] = any(lane);
        }
        engine.run();
        engine.text
    };
    [PlaneWidth::Avx512Half, PlaneWidth::Avx512]
        .into_iter()
        .all(|width| {
            let wide = passed(width, 0..width.lanes());
            let mut starts = (0..width.lanes()).step_by(64);
            starts
                .all(|from| passed(PlaneWidth::Any, from..from + 64)[..64] == wide[from..from + 64])
        })
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{
        super::word::{Wide256, Wide512},
        Engine, pass,
    };

    #[target_feature(enable = "avx2")]
    pub(super) fn pass_256(engine: &mut Engine<'_>) {
        pass::<Wide256>(engine);
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn pass_256_ternary(engine: &mut Engine<'_>) {
        pass::<Wide256>(engine);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn pass_512(engine: &mut Engine<'_>) {
        pass::<Wide512>(engine);
    }
}

#[inline(always)]
fn pass<W: Word>(engine: &mut Engine<'_>) {
    if engine.stale {
        for (planes, keys) in engine.planes.iter_mut().zip(&engine.keys) {
            let mut rows = load::<W>(keys);
            transpose(&mut rows);
            store(&rows, planes);
        }
        engine.stale = false;
    }
    let keys: [Planes<W>; 3] = [
        load(&engine.planes[0]),
        load(&engine.planes[1]),
        load(&engine.planes[2]),
    ];
    let mut text = load::<W>(&engine.text);
    transpose(&mut text);
    // Triple DES is encrypt, decrypt, encrypt; backwards it is decrypt, encrypt, decrypt from the last key.
    for step in 0..if engine.triple { 3 } else { 1 } {
        let key = if engine.triple && engine.decrypting {
            2 - step
        } else {
            step
        };
        des(&mut text, &keys[key], engine.decrypting ^ (step == 1));
    }
    transpose(&mut text);
    store(&text, &mut engine.text);
}

/// Row *n* holds the lanes from `n * ELEMENTS` on: which lane is which bit of which element does not matter, as long as
/// it is the same for text and keys.
#[inline(always)]
fn load<W: Word>(lanes: &Lanes) -> Planes<W> {
    let mut rows = [W::splat(0); 64];
    for (row, elements) in rows.iter_mut().zip(lanes.chunks_exact(W::ELEMENTS)) {
        *row = W::load(elements);
    }
    rows
}

#[inline(always)]
fn store<W: Word>(rows: &Planes<W>, lanes: &mut Lanes) {
    for (row, elements) in rows.iter().zip(lanes.chunks_exact_mut(W::ELEMENTS)) {
        row.store(elements);
    }
}
