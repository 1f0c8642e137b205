//! The two rivals that are C, by way of `rivals.c`.

use std::ffi::{CString, c_char, c_int, c_void};

use multibuffer::{Cipher, Integrity};

use crate::{Rival, suites::Suite};

#[repr(C)]
struct CSuite {
    cipher: *const c_char,
    mac: *const c_char,
    digest: *const c_char,
    key: [u8; 64],
    key_len: usize,
    salt: [u8; 4],
    salt_len: usize,
    mac_key: [u8; 64],
    mac_key_len: usize,
    iv_len: usize,
    icv_len: usize,
    aead: c_int,
    counter: c_int,
}

unsafe extern "C" {
    fn evp_prepare();
    fn evp_new(suite: *const CSuite) -> *mut c_void;
    fn evp_run(
        state: *mut c_void,
        packets: *mut *mut u8,
        n: usize,
        len: usize,
        seal: c_int,
    ) -> c_int;
    fn imb_new(suite: *const CSuite, cipher: c_int, hash: c_int) -> *mut c_void;
    fn imb_cipher(which: c_int) -> c_int;
    fn imb_hash(which: c_int) -> c_int;
    fn imb_run(
        state: *mut c_void,
        packets: *mut *mut u8,
        n: usize,
        len: usize,
        seal: c_int,
    ) -> c_int;
}

/// A state that lives as long as the program.
struct Foreign {
    name: &'static str,
    state: *mut c_void,
    run: Run,
}

/// Seals or opens `n` packets of `len` bytes; 1 if all went well.
type Run = unsafe extern "C" fn(
    state: *mut c_void,
    packets: *mut *mut u8,
    n: usize,
    len: usize,
    seal: c_int,
) -> c_int;

impl Foreign {
    /// `None` where the library made no state of the suite.
    fn rival(name: &'static str, state: *mut c_void, run: Run) -> Option<Box<dyn Rival>> {
        let foreign = || -> Box<dyn Rival> { Box::new(Self { name, state, run }) };
        (!state.is_null()).then(foreign)
    }

    fn go(&mut self, packets: &mut [Vec<u8>], len: usize, seal: bool) -> bool {
        let mut pointers = [std::ptr::null_mut(); 256];
        for (pointer, packet) in pointers.iter_mut().zip(packets.iter_mut()) {
            *pointer = packet.as_mut_ptr();
        }
        // SAFETY: every packet holds header, IV, `len` bytes and the ICV, and the state is of this library.
        unsafe {
            (self.run)(
                self.state,
                pointers.as_mut_ptr(),
                packets.len(),
                len,
                seal.into(),
            ) == 1
        }
    }
}

impl Rival for Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    fn seal(&mut self, packets: &mut [Vec<u8>], len: usize) {
        assert!(self.go(packets, len, true), "{} fails to seal", self.name);
    }

    fn open(&mut self, packets: &mut [Vec<u8>], len: usize) -> bool {
        self.go(packets, len, false)
    }
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

fn c_suite(suite: &Suite) -> CSuite {
    let (key, salt) = suite.split_key();
    let mac_key = suite.mac_key();
    let (mac, digest) = match suite.integrity {
        Integrity::None | Integrity::AesXcbc | Integrity::AesGmac => ("", ""),
        Integrity::HmacMd5 => ("HMAC", "MD5"),
        Integrity::HmacSha1 => ("HMAC", "SHA1"),
        Integrity::HmacRipemd160 => ("HMAC", "RIPEMD160"),
        Integrity::HmacSha256 => ("HMAC", "SHA256"),
        Integrity::HmacSha384 => ("HMAC", "SHA384"),
        Integrity::HmacSha512 => ("HMAC", "SHA512"),
        Integrity::AesCmac => ("CMAC", "AES-128-CBC"),
    };
    // Names live as long as the program; there are a few dozen.
    let name = |name: &str| match name {
        "" => std::ptr::null(),
        name => CString::new(name).expect("no zero").into_raw().cast_const(),
    };
    CSuite {
        cipher: name(suite.evp),
        mac: name(mac),
        digest: name(digest),
        key: padded(&key),
        key_len: key.len(),
        salt: padded(&salt),
        salt_len: salt.len(),
        mac_key: padded(&mac_key),
        mac_key_len: mac_key.len(),
        iv_len: crate::ours::Ours::new(suite).iv_len(),
        icv_len: suite.icv_len,
        aead: suite.cipher.is_aead().into(),
        counter: (suite.cipher == Cipher::AesCtr).into(),
    }
}

/// OpenSSL's EVP.
pub fn evp(suite: &Suite) -> Option<Box<dyn Rival>> {
    if suite.integrity == Integrity::AesXcbc {
        return None;
    }
    // SAFETY: providers may be loaded any number of times; the suite lives during the call, which copies it.
    let state = unsafe {
        evp_prepare();
        evp_new(&c_suite(suite))
    };
    Foreign::rival("openssl", state, evp_run)
}

/// Intel's multi-buffer library, with the manager that it finds best.
pub fn ipsec_mb(suite: &Suite) -> Option<Box<dyn Rival>> {
    let (cipher, hash) = suite.imb;
    if cipher < 0 || hash < 0 {
        return None;
    }
    // SAFETY: both are places in the tables; the suite lives during the call, which copies it.
    let state = unsafe { imb_new(&c_suite(suite), imb_cipher(cipher), imb_hash(hash)) };
    Foreign::rival("ipsec-mb", state, imb_run)
}
