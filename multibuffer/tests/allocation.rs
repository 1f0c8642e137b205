//! The heap is for keys: sealing, opening and signing allocate nothing once a thread has run each suite once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use multibuffer::{Cipher, Integrity, Iv, Key, OpenJob, SealJob, SignJob, Verdict};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, and the block came from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn keys() -> Vec<Key> {
    let ciphers = [
        (Cipher::Null, 0),
        (Cipher::DesCbc, 8),
        (Cipher::TripleDesCbc, 24),
        (Cipher::AesCbc, 16),
        (Cipher::AesCtr, 20),
        (Cipher::CamelliaCbc, 16),
        (Cipher::BlowfishCbc, 16),
        (Cipher::Cast128Cbc, 16),
    ];
    let integrities = [
        (Integrity::None, 0, 0),
        (Integrity::HmacMd5, 16, 12),
        (Integrity::HmacSha1, 20, 12),
        (Integrity::HmacRipemd160, 20, 12),
        (Integrity::HmacSha256, 32, 16),
        (Integrity::HmacSha384, 48, 24),
        (Integrity::HmacSha512, 64, 32),
        (Integrity::AesXcbc, 16, 12),
        (Integrity::AesCmac, 16, 12),
    ];
    let aeads = [
        (Cipher::AesGcm { icv_len: 16 }, 20),
        (Cipher::AesGcm { icv_len: 8 }, 36),
        (Cipher::AesGmac, 20),
        (Cipher::AesCcm { icv_len: 12 }, 19),
        (Cipher::ChaCha20Poly1305, 36),
    ];
    let mut keys = Vec::new();
    for (cipher, key_len) in ciphers {
        for (integrity, mac_len, icv_len) in integrities {
            let (key, mac_key) = (vec![1; key_len], vec![2; mac_len]);
            keys.push(Key::new(cipher, &key, integrity, &mac_key, icv_len).expect("a legal key"));
        }
    }
    keys.push(Key::new(Cipher::Null, &[], Integrity::AesGmac, &[2; 20], 16).expect("a legal key"));
    for (cipher, key_len) in aeads {
        let icv_len = if let Cipher::AesGcm { icv_len } | Cipher::AesCcm { icv_len } = cipher {
            icv_len.into()
        } else {
            16
        };
        keys.push(
            Key::new(cipher, &vec![1; key_len], Integrity::None, &[], icv_len)
                .expect("a legal key"),
        );
    }
    keys
}

/// Seals, opens, opens altered packets, and signs. Returns the number of heap allocations.
fn allocations(key: &Key, room: &mut [Vec<u8>]) -> u64 {
    let (plain, iv) = ([5; 1408], Iv::new(&[6; 16][..key.iv_len()]));
    let before = ALLOCATIONS.get();
    let mut rest = room.iter_mut();
    let mut jobs: [SealJob<'_>; 20] = std::array::from_fn(|_| {
        let output = &mut rest.next().expect("a room for each job")[..1408 + key.icv_len()];
        SealJob {
            key,
            aad: &[7; 8],
            aad_tail: &[],
            iv,
            input: [&plain[..20], &plain[20..1400], &plain[1400..]],
            output,
        }
    });
    multibuffer::seal(&mut jobs);
    for expected in [Verdict::Genuine, Verdict::BadIcv] {
        let mut rest = room.iter_mut();
        let mut jobs: [OpenJob<'_>; 20] = std::array::from_fn(|_| {
            let text = &mut rest.next().expect("a room for each job")[..1408 + key.icv_len()];
            OpenJob {
                key,
                aad: &[7; 8],
                aad_tail: &[],
                iv,
                text,
                verdict: Verdict::Pending,
            }
        });
        multibuffer::open(&mut jobs);
        assert!(key.icv_len() == 0 || jobs.iter().all(|job| job.verdict == expected));
        jobs.iter_mut().for_each(|job| job.text[3] ^= 1);
    }
    if key.icv_len() > 0 && (!key.cipher().is_aead() || key.cipher() == Cipher::AesGmac) {
        let mut icv = [0; 64];
        let icv = &mut icv[..key.icv_len()];
        multibuffer::sign(&mut [SignJob {
            key,
            input: [&plain[..20], &plain[20..], &[]],
            iv,
            icv,
        }]);
    }
    ALLOCATIONS.get() - before
}

#[test]
fn nothing_is_allocated_per_packet() {
    let mut room = vec![vec![0; 1408 + 64]; 20];
    for key in keys() {
        allocations(&key, &mut room);
        assert_eq!(
            allocations(&key, &mut room),
            0,
            "{:?} {:?}",
            key.cipher(),
            key.integrity()
        );
    }
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
