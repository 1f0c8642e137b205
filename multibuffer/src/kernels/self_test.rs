//! Self-test: compares the kernels that few machines have run with the library on this very processor, before they are
//! first used: AVX-512, and AES with carry-less products in vectors of every width.

use super::{
    aesni,
    aws_lc::{self, Aead, AeadAlgorithm, AesKey, Hash},
    bitslice,
    chacha::{self, ChaChaKey, ChaChaPackets},
    gcm::GcmKey,
    hash_lanes::{self, HashWidth, HmacJob, Lanes},
    nonce::Nonce,
    streams,
    wide::AesLevel,
};
use crate::hmac::HmacKey;

/// # Safety
/// The processor has AVX-512 F, BW and VL.
pub(crate) unsafe fn avx512_is_right() -> bool {
    // SAFETY: the caller answers for the processor.
    unsafe {
        bitslice::avx512_is_right()
            && hmac_is_right::<aws_lc::Md5, hash_lanes::Md5>()
            && hmac_is_right::<aws_lc::Sha1, hash_lanes::Sha1>()
            && hmac_is_right::<aws_lc::Ripemd160, hash_lanes::Ripemd160>()
            && hmac_is_right::<aws_lc::Sha256, hash_lanes::Sha256>()
            && hmac_is_right::<aws_lc::Sha384, hash_lanes::Sha384>()
            && hmac_is_right::<aws_lc::Sha512, hash_lanes::Sha512>()
    }
}

/// Lengths on either side of whole vectors and of as many as go together.
const LENGTHS: [usize; 9] = [0, 1, 15, 33, 64, 95, 257, 511, 1048];

/// Compares GCM with the library.
///
/// # Safety
/// The processor has the vectors of `level`, and carry-less products.
pub(crate) unsafe fn gcm_is_right(level: AesLevel) -> bool {
    let (key, nonce, aad) = ([0x5a; 16], Nonce::new([7; 4], [6; 8]), [9; 12]);
    let library = Aead::new(AeadAlgorithm::AesGcm, &key, 16).expect("a legal key");
    // SAFETY: as the caller promises.
    let ours = unsafe { GcmKey::for_level(level, &key) };
    LENGTHS.into_iter().all(|len| {
        let plain = text(len);
        let (mut expected, mut tag) = (plain.clone(), [0; 16]);
        library.seal(&nonce.to_bytes(), &aad, &mut expected, &mut tag);
        let (first, second) = plain.split_at(len / 3);
        let mut sealed = vec![0; len];
        let sealing = ours.seal(nonce, &aad, [first, second, &[]], &mut sealed);
        let right = sealed == expected && sealing == tag;
        let opening = ours.open(nonce, &aad, &mut sealed);
        right && opening == tag && sealed == plain
    })
}

/// Compares ChaCha20-Poly1305 with the library.
///
/// # Safety
/// The processor has the vectors of `level`.
pub(crate) unsafe fn chacha_is_right(level: chacha::ChaChaLevel) -> bool {
    let (key, nonce, aad) = ([0x3c; 32], Nonce::new([5; 4], [4; 8]), [8; 28]);
    let library = Aead::new(AeadAlgorithm::ChaCha20Poly1305, &key, 16).expect("a legal key");
    // SAFETY: as the caller promises.
    let ours = unsafe { ChaChaKey::for_level(level, key) };
    let (mut sealed, mut tags) = (LENGTHS.map(|len| vec![0; len]), [[0; 16]; LENGTHS.len()]);
    let plain = LENGTHS.map(text);
    let mut packets = ChaChaPackets::none();
    for ((plain, sealed), tag) in plain.iter().zip(&mut sealed).zip(&mut tags) {
        let (first, second) = plain.split_at(plain.len() / 3);
        packets.add(
            &ours,
            (nonce, &aad[plain.len() % 29..]),
            [first, second, &[]],
            sealed,
            tag,
        );
    }
    packets.seal();
    plain
        .into_iter()
        .zip(sealed)
        .zip(tags)
        .all(|((mut plain, sealed), sealing)| {
            let (aad, mut tag) = (&aad[plain.len() % 29..], [0; 16]);
            library.seal(&nonce.to_bytes(), aad, &mut plain, &mut tag);
            plain == sealed && tag == sealing
        })
}

/// Compares counter mode and CBC decryption with the library.
///
/// # Safety
/// The processor has the vectors of `level`.
pub(crate) unsafe fn aes_is_right(level: AesLevel) -> bool {
    let (key, block) = ([0xa5; 32], [3; 16]);
    let encrypting = AesKey::encrypting(&key).expect("a legal key");
    // SAFETY: the caller promises AES instructions.
    let keys = unsafe { aesni::expand(&key) };
    let inverse = streams::inverse(&keys);
    let (nonce, number) = (Nonce::new([3; 4], [3; 8]), u32::from_be_bytes([3; 4]));
    LENGTHS.into_iter().all(|len| {
        let plain = text(len);
        let (mut ours, mut expected) = (vec![0; len], plain.clone());
        let (first, second) = plain.split_at(len / 3);
        let input = [first, second, &[]];
        // SAFETY: as the caller promises.
        unsafe { streams::ctr_on(level, &keys, nonce, number, input, &mut ours) };
        encrypting.ctr(&block, &mut expected);
        let whole = len / 16 * 16;
        let mut chained = plain[..whole].to_vec();
        encrypting.cbc(&block, &mut chained);
        // SAFETY: as above, and these are whole blocks.
        unsafe { streams::cbc_decrypt_on(level, &inverse, &block, &mut chained) };
        ours == expected && chained == plain[..whole]
    })
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * at / 7) as u8).collect()
}

/// Messages, more than there are lanes.
const MESSAGES: usize = 19;

/// Compares the lanes with the library.
///
/// # Safety
/// The processor has AVX-512 F and BW.
unsafe fn hmac_is_right<H, A>() -> bool
where
    H: Hash<State: AsRef<[A::Element]>>,
    A: Lanes,
{
    let key = HmacKey::<H>::new(b"any key will do");
    let text: [u8; 512] = std::array::from_fn(|at| (at * at / 7) as u8);
    let message = |at: usize| [&text[at..2 * at], &text[..at * at], &[], &text[at..at + 4]];
    let mut icvs = [[0; 16]; MESSAGES];
    let [inner, outer] = key.states().map(AsRef::as_ref);
    let jobs = icvs.iter_mut().enumerate().map(|(at, icv)| HmacJob {
        inner,
        outer,
        message: message(at),
        icv,
    });
    // SAFETY: the caller answers for the processor.
    unsafe { A::sign_in_vectors(HashWidth::Avx512, jobs) };
    icvs.iter()
        .enumerate()
        .all(|(at, icv)| key.sign(&message(at))[..16] == *icv)
}
