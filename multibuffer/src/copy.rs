//! Copies of a few bytes, which are most of what is put together for a packet: a header, an IV, a trailer.
//!
//! A call that copies any number of bytes takes a short packet longer than the bytes themselves.

/// Copies `from` to `to`.
///
/// # Panics
/// If `to` is not as long.
#[inline]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
    match from.len() {
        33.. => to.copy_from_slice(from),
        16.. => ends::<16>(from, to),
        8.. => ends::<8>(from, to),
        4.. => ends::<4>(from, to),
        _ => {
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        }
    }
}

/// Both ends of what has at least `N` bytes and at most twice as many; they may overlap.
#[inline(always)]
fn ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        to[..N].copy_from_slice(first);
        let behind = to.len() - N;
        to[behind..].copy_from_slice(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_whole() {
        for len in 0..=200 {
            let from: Vec<u8> = (1..=len as u8).collect();
            let mut to = vec![0; len];
            copy(&from, &mut to);
            assert_eq!(from, to);
        }
    }
}
