//! Suites, packets and chance for the other modules.

use multibuffer::{Cipher, Integrity, Iv, Key, OpenJob, SealJob, SignJob, Verdict, VerifyJob};

/// One combination of algorithms with its keys.
#[derive(Clone)]
pub struct Suite {
    pub cipher: Cipher,
    pub cipher_key: Vec<u8>,
    pub integrity: Integrity,
    pub integrity_key: Vec<u8>,
    pub icv_len: usize,
}

impl Suite {
    pub fn key(&self) -> Key {
        Key::new(
            self.cipher,
            &self.cipher_key,
            self.integrity,
            &self.integrity_key,
            self.icv_len,
        )
        .unwrap_or_else(|error| panic!("{}: {error}", self.name()))
    }

    pub fn key_by_library(&self) -> Key {
        Key::by_library(
            self.cipher,
            &self.cipher_key,
            self.integrity,
            &self.integrity_key,
            self.icv_len,
        )
        .expect("a legal key")
    }

    pub fn name(&self) -> String {
        let (cipher, bytes) = (self.cipher, self.cipher_key.len());
        format!(
            "{cipher:?}/{bytes} + {:?} to {} bytes",
            self.integrity, self.icv_len
        )
    }

    /// The same algorithms under other keys.
    pub fn rekeyed(&self, chance: &mut Chance) -> Self {
        let mut suite = self.clone();
        chance.fill(&mut suite.cipher_key);
        chance.fill(&mut suite.integrity_key);
        suite
    }

    pub fn is_aead(&self) -> bool {
        self.cipher.is_aead()
    }

    pub fn authenticates(&self) -> bool {
        self.icv_len > 0
    }
}

/// Every cipher with every key length, and every integrity algorithm with every truncation that IPsec knows.
pub fn suites() -> Vec<Suite> {
    let mut chance = Chance::new(1);
    let mut suites = Vec::new();
    for (cipher, key_len) in ciphers() {
        let icv_lens = aead_icv(cipher).map_or(
            vec![(Integrity::None, 0), (Integrity::HmacSha1, 12)],
            |len| vec![(Integrity::None, len)],
        );
        for (integrity, icv_len) in icv_lens {
            suites.push(suite(cipher, key_len, integrity, icv_len, &mut chance));
        }
    }
    for (integrity, icv_len) in integrities() {
        for (cipher, key_len) in [
            (Cipher::Null, 0),
            (Cipher::AesCbc, 16),
            (Cipher::TripleDesCbc, 24),
        ] {
            suites.push(suite(cipher, key_len, integrity, icv_len, &mut chance));
        }
    }
    suites
}

fn suite(
    cipher: Cipher,
    key_len: usize,
    integrity: Integrity,
    icv_len: usize,
    chance: &mut Chance,
) -> Suite {
    let (cipher_key, integrity_key) = (
        chance.bytes(key_len),
        chance.bytes(integrity_key_len(integrity)),
    );
    Suite {
        cipher,
        cipher_key,
        integrity,
        integrity_key,
        icv_len,
    }
}

fn ciphers() -> Vec<(Cipher, usize)> {
    let mut ciphers = vec![
        (Cipher::Null, 0),
        (Cipher::DesCbc, 8),
        (Cipher::TripleDesCbc, 24),
    ];
    ciphers.extend([16, 24, 32].map(|len| (Cipher::AesCbc, len)));
    ciphers.extend([16, 24, 32].map(|len| (Cipher::AesCtr, len + 4)));
    ciphers.extend([16, 24, 32].map(|len| (Cipher::CamelliaCbc, len)));
    ciphers.extend([5, 8, 16, 56].map(|len| (Cipher::BlowfishCbc, len)));
    ciphers.extend([5, 10, 11, 16].map(|len| (Cipher::Cast128Cbc, len)));
    ciphers.extend([16, 24, 32].map(|len| (Cipher::AesGmac, len + 4)));
    for icv_len in [8, 12, 16] {
        ciphers.extend([16, 24, 32].map(|len| (Cipher::AesGcm { icv_len }, len + 4)));
        ciphers.extend([16, 24, 32].map(|len| (Cipher::AesCcm { icv_len }, len + 3)));
    }
    ciphers.push((Cipher::ChaCha20Poly1305, 36));
    ciphers
}

fn aead_icv(cipher: Cipher) -> Option<usize> {
    match cipher {
        Cipher::AesGcm { icv_len } | Cipher::AesCcm { icv_len } => Some(icv_len.into()),
        Cipher::AesGmac | Cipher::ChaCha20Poly1305 => Some(16),
        _ => None,
    }
}

pub fn integrities() -> Vec<(Integrity, usize)> {
    vec![
        (Integrity::HmacMd5, 12),
        (Integrity::HmacMd5, 16),
        (Integrity::HmacSha1, 12),
        (Integrity::HmacSha1, 20),
        (Integrity::HmacRipemd160, 12),
        (Integrity::HmacSha256, 12),
        (Integrity::HmacSha256, 16),
        (Integrity::HmacSha384, 24),
        (Integrity::HmacSha512, 32),
        (Integrity::HmacSha512, 64),
        (Integrity::AesXcbc, 12),
        (Integrity::AesCmac, 12),
    ]
}

pub fn integrity_key_len(integrity: Integrity) -> usize {
    match integrity {
        Integrity::None => 0,
        Integrity::HmacMd5 | Integrity::AesXcbc | Integrity::AesCmac => 16,
        Integrity::HmacSha1 | Integrity::HmacRipemd160 | Integrity::AesGmac => 20,
        Integrity::HmacSha256 => 32,
        Integrity::HmacSha384 => 48,
        Integrity::HmacSha512 => 64,
    }
}

/// What is sealed beside its key.
#[derive(Clone)]
pub struct Packet {
    pub aad: Vec<u8>,
    pub aad_tail: Vec<u8>,
    pub iv: Iv,
    pub plain: Vec<u8>,
    /// Where the plaintext is cut into three.
    pub cuts: [usize; 2],
}

impl Packet {
    /// A packet of about `len` bytes of plaintext, rounded down to the blocks of `key`.
    pub fn new(suite: &Suite, key: &Key, len: usize, chance: &mut Chance) -> Self {
        let len = len - len % key.block_len();
        let with_tail = !suite.is_aead() && chance.below(2) == 1;
        let mut cuts = [chance.below(len + 1), chance.below(len + 1)];
        cuts.sort_unstable();
        let aad_len = 8 + 4 * chance.below(2);
        Self {
            aad: chance.bytes(aad_len),
            aad_tail: chance.bytes(if with_tail { 4 } else { 0 }),
            iv: Iv::new(&chance.bytes(key.iv_len())),
            plain: chance.bytes(len),
            cuts,
        }
    }

    pub fn input(&self) -> [&[u8]; 3] {
        let [first, second] = self.cuts;
        [
            &self.plain[..first],
            &self.plain[first..second],
            &self.plain[second..],
        ]
    }
}

/// How often a single packet is put into a batch, so that it stands in every lane of the kernels for many.
const COPIES: usize = 20;

/// Ciphertext and ICV of one packet, alone and in a batch.
pub fn seal_one(key: &Key, packet: &Packet) -> Vec<u8> {
    let alone = seal_all(&[(key, packet)]).remove(0);
    let together = seal_all(&[(key, packet); COPIES]);
    assert!(
        together.iter().all(|sealed| *sealed == alone),
        "sealed otherwise in a batch"
    );
    alone
}

/// Seals a batch; every output begins at another alignment.
pub fn seal_all(packets: &[(&Key, &Packet)]) -> Vec<Vec<u8>> {
    let mut rooms: Vec<Vec<u8>> = packets
        .iter()
        .enumerate()
        .map(|(i, (key, p))| vec![0xEE; i % 17 + p.plain.len() + key.icv_len() + 5])
        .collect();
    let mut jobs: Vec<SealJob<'_>> = packets
        .iter()
        .zip(&mut rooms)
        .enumerate()
        .map(|(i, (&(key, p), room))| SealJob {
            key,
            aad: &p.aad,
            aad_tail: &p.aad_tail,
            iv: p.iv,
            input: p.input(),
            output: &mut room[i % 17..][..p.plain.len() + key.icv_len()],
        })
        .collect();
    multibuffer::seal(&mut jobs);
    rooms
        .iter()
        .enumerate()
        .for_each(|(i, room)| assert_untouched(room, i % 17));
    let cut = |(i, room): (usize, Vec<u8>)| room[i % 17..room.len() - 5].to_vec();
    rooms.into_iter().enumerate().map(cut).collect()
}

fn assert_untouched(room: &[u8], before: usize) {
    let outside = room[..before].iter().chain(&room[room.len() - 5..]);
    assert!(
        outside.copied().all(|byte| byte == 0xEE),
        "a byte beside the output was written"
    );
}

/// Opens one packet, alone and in a batch; its plaintext if it was genuine.
pub fn open_one(key: &Key, packet: &Packet, sealed: &[u8]) -> Option<Vec<u8>> {
    let alone = open_all(&[(key, packet, sealed)]).remove(0);
    let together = open_all(&[(key, packet, sealed); COPIES]);
    assert!(
        together.iter().all(|plain| *plain == alone),
        "opened otherwise in a batch"
    );
    alone
}

/// Opens a batch; the plaintext of each that was genuine.
pub fn open_all(packets: &[(&Key, &Packet, &[u8])]) -> Vec<Option<Vec<u8>>> {
    let mut rooms: Vec<Vec<u8>> = packets
        .iter()
        .enumerate()
        .map(|(i, (_, _, sealed))| [&vec![0xEE; i % 13], *sealed, &[0xEE; 5]].concat())
        .collect();
    let mut jobs: Vec<OpenJob<'_>> = packets
        .iter()
        .zip(&mut rooms)
        .enumerate()
        .map(|(i, (&(key, p, sealed), room))| OpenJob {
            key,
            aad: &p.aad,
            aad_tail: &p.aad_tail,
            iv: p.iv,
            text: &mut room[i % 13..][..sealed.len()],
            verdict: Verdict::Pending,
        })
        .collect();
    multibuffer::open(&mut jobs);
    let plaintext =
        |(job, (key, _, sealed)): (&OpenJob<'_>, &(&Key, &Packet, &[u8]))| match job.verdict {
            Verdict::Genuine => Some(job.text[..sealed.len() - key.icv_len()].to_vec()),
            Verdict::BadIcv => None,
            Verdict::Pending => panic!("a job was left without a verdict"),
        };
    let plain = jobs.iter().zip(packets).map(plaintext).collect();
    rooms
        .iter()
        .enumerate()
        .for_each(|(i, room)| assert_untouched(room, i % 13));
    plain
}

/// The ICV of one message in three pieces, alone and in a batch.
pub fn sign_one(key: &Key, iv: Iv, input: [&[u8]; 3]) -> Vec<u8> {
    let alone = sign_copies(key, iv, input, 1).remove(0);
    let together = sign_copies(key, iv, input, COPIES);
    assert!(
        together.iter().all(|icv| *icv == alone),
        "signed otherwise in a batch"
    );
    alone
}

fn sign_copies(key: &Key, iv: Iv, input: [&[u8]; 3], copies: usize) -> Vec<Vec<u8>> {
    let mut icvs = vec![vec![0; key.icv_len()]; copies];
    let mut jobs: Vec<SignJob<'_>> = icvs
        .iter_mut()
        .map(|icv| SignJob {
            key,
            input,
            iv,
            icv,
        })
        .collect();
    multibuffer::sign(&mut jobs);
    assert!(verify_copies(key, iv, input, &icvs, None));
    assert!(verify_copies(key, iv, input, &icvs, Some(copies / 2)));
    icvs
}

/// Whether every ICV is found genuine but the one at `spoilt`, of which a bit is changed.
fn verify_copies(
    key: &Key,
    iv: Iv,
    input: [&[u8]; 3],
    icvs: &[Vec<u8>],
    spoilt: Option<usize>,
) -> bool {
    let mut icvs = icvs.to_vec();
    if let Some(spoilt) = spoilt {
        icvs[spoilt][0] ^= 1;
    }
    let mut jobs: Vec<_> = icvs
        .iter()
        .map(|icv| VerifyJob {
            key,
            input,
            iv,
            icv,
            verdict: Verdict::Pending,
        })
        .collect();
    multibuffer::verify(&mut jobs);
    let expected = |place| {
        if spoilt == Some(place) {
            Verdict::BadIcv
        } else {
            Verdict::Genuine
        }
    };
    jobs.iter()
        .enumerate()
        .all(|(place, job)| job.verdict == expected(place))
}

/// A small repeatable source of bytes (splitmix64).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes
            .chunks_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]));
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// Bytes of a hexadecimal string.
pub fn hex(text: &str) -> Vec<u8> {
    assert!(
        text.len().is_multiple_of(2),
        "an odd number of digits: {text}"
    );
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

/// A file of `tests/vectors`.
pub fn vector_file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
