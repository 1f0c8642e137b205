//! THE table: every algorithm, one row each. Its setkey name, IKEv2 transform, kernel (XFRM) name, and the lengths that
//! make a packet. A new algorithm is one row here, its kernel in `multibuffer` and a vector.

use multibuffer::{Cipher, Integrity as Mac};

/// One encryption algorithm.
#[derive(Debug)]
pub struct EncryptionRow {
    /// The name setkey prints.
    pub name: &'static str,
    /// Other names setkey accepts.
    pub aliases: &'static [&'static str],
    /// IKEv2 transform id (RFC 7296 3.3.2, transform type 1), where one is assigned.
    pub ike: Option<u16>,
    /// The Linux kernel's name for it, as `ip xfrm` takes it.
    pub xfrm: &'static str,
    /// What computes it.
    pub cipher: Cipher,
    /// Key lengths in bytes, salt or nonce included.
    pub key_lens: &'static [usize],
    /// How many of the key's last bytes are salt or nonce.
    pub salt_len: usize,
    /// Bytes of explicit IV in the packet.
    pub iv_len: usize,
    /// Padding granularity of the cipher in bytes; ESP itself never goes below 4 (RFC 4303 2.4).
    pub block_len: usize,
    /// Bytes of ICV of an AEAD algorithm, else 0.
    pub icv_len: usize,
    /// Why one should not use it for anything of value.
    pub weakness: Option<&'static str>,
}

/// One integrity algorithm.
#[derive(Debug)]
pub struct IntegrityRow {
    /// The name setkey prints.
    pub name: &'static str,
    /// Other names setkey accepts.
    pub aliases: &'static [&'static str],
    /// IKEv2 transform id (RFC 7296 3.3.2, transform type 3), where one is assigned.
    pub ike: Option<u16>,
    /// The Linux kernel's name for it, as `ip xfrm` takes it.
    pub xfrm: &'static str,
    /// What computes it.
    pub mac: Mac,
    /// Key length in bytes, salt included; IPsec fixes one for each algorithm.
    pub key_len: usize,
    /// How many of the key's last bytes are salt. Only an algorithm that has one needs an IV, and it is for AH alone.
    pub salt_len: usize,
    /// Bytes of explicit IV in the packet.
    pub iv_len: usize,
    /// Bytes of ICV on the wire.
    pub icv_len: usize,
    /// Bytes of the untruncated output.
    pub output_len: usize,
    /// Why one should not use it for anything of value.
    pub weakness: Option<&'static str>,
}

// ESP pads by masks.
const _: () = {
    let mut place = 0;
    while place < ENCRYPTION.len() {
        assert!(ENCRYPTION[place].block_len.is_power_of_two());
        place += 1;
    }
};

/// An encryption algorithm: a row of [`ENCRYPTION`].
#[derive(Clone, Copy)]
pub struct Encryption(&'static EncryptionRow);

/// An integrity algorithm: a row of [`INTEGRITY`].
#[derive(Clone, Copy)]
pub struct Integrity(&'static IntegrityRow);

macro_rules! row_handle {
    ($handle:ident, $row:ident, $table:ident) => {
        impl $handle {
            /// The algorithm of this name or alias, as setkey spells it.
            pub fn named(name: &str) -> Option<Self> {
                $table
                    .iter()
                    .find(|row| row.name == name || row.aliases.contains(&name))
                    .map(Self)
            }

            /// All of them, in the table's order.
            pub fn all() -> impl Iterator<Item = Self> {
                $table.iter().map(Self)
            }
        }

        impl std::ops::Deref for $handle {
            type Target = $row;
            fn deref(&self) -> &$row {
                self.0
            }
        }

        impl PartialEq for $handle {
            fn eq(&self, other: &Self) -> bool {
                std::ptr::eq(self.0, other.0)
            }
        }

        impl Eq for $handle {}

        impl std::fmt::Debug for $handle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0.name)
            }
        }
    };
}

row_handle!(Encryption, EncryptionRow, ENCRYPTION);
row_handle!(Integrity, IntegrityRow, INTEGRITY);

const SWEET32: &str = "its 64-bit blocks repeat after some gigabytes under one key (Sweet32)";

/// Every encryption algorithm.
#[rustfmt::skip]
pub static ENCRYPTION: [EncryptionRow; 17] = [
    EncryptionRow { name: "null", aliases: &["none"], ike: Some(11), xfrm: "ecb(cipher_null)", cipher: Cipher::Null,
        key_lens: &[0], salt_len: 0, iv_len: 0, block_len: 1, icv_len: 0, weakness: Some("NULL does not encrypt: the traffic can be read on the path") },
    EncryptionRow { name: "des-cbc", aliases: &[], ike: Some(2), xfrm: "cbc(des)", cipher: Cipher::DesCbc,
        key_lens: &[8], salt_len: 0, iv_len: 8, block_len: 8, icv_len: 0, weakness: Some("DES keys of 56 bits are found by trying them all") },
    EncryptionRow { name: "3des-cbc", aliases: &[], ike: Some(3), xfrm: "cbc(des3_ede)", cipher: Cipher::TripleDesCbc,
        key_lens: &[24], salt_len: 0, iv_len: 8, block_len: 8, icv_len: 0, weakness: Some(SWEET32) },
    EncryptionRow { name: "aes-cbc", aliases: &["rijndael-cbc"], ike: Some(12), xfrm: "cbc(aes)", cipher: Cipher::AesCbc,
        key_lens: &[16, 24, 32], salt_len: 0, iv_len: 16, block_len: 16, icv_len: 0, weakness: None },
    EncryptionRow { name: "aes-ctr", aliases: &[], ike: Some(13), xfrm: "rfc3686(ctr(aes))", cipher: Cipher::AesCtr,
        key_lens: &[20, 28, 36], salt_len: 4, iv_len: 8, block_len: 1, icv_len: 0, weakness: None },
    EncryptionRow { name: "aes-gcm-16", aliases: &["aes-gcm"], ike: Some(20), xfrm: "rfc4106(gcm(aes))", cipher: Cipher::AesGcm { icv_len: 16 },
        key_lens: &[20, 28, 36], salt_len: 4, iv_len: 8, block_len: 1, icv_len: 16, weakness: None },
    EncryptionRow { name: "aes-gcm-12", aliases: &[], ike: Some(19), xfrm: "rfc4106(gcm(aes))", cipher: Cipher::AesGcm { icv_len: 12 },
        key_lens: &[20, 28, 36], salt_len: 4, iv_len: 8, block_len: 1, icv_len: 12, weakness: None },
    EncryptionRow { name: "aes-gcm-8", aliases: &[], ike: Some(18), xfrm: "rfc4106(gcm(aes))", cipher: Cipher::AesGcm { icv_len: 8 },
        key_lens: &[20, 28, 36], salt_len: 4, iv_len: 8, block_len: 1, icv_len: 8, weakness: None },
    EncryptionRow { name: "aes-gmac", aliases: &[], ike: Some(21), xfrm: "rfc4543(gcm(aes))", cipher: Cipher::AesGmac,
        key_lens: &[20, 28, 36], salt_len: 4, iv_len: 8, block_len: 1, icv_len: 16, weakness: Some("AES-GMAC does not encrypt: the traffic can be read on the path") },
    EncryptionRow { name: "aes-ccm-16", aliases: &["aes-ccm"], ike: Some(16), xfrm: "rfc4309(ccm(aes))", cipher: Cipher::AesCcm { icv_len: 16 },
        key_lens: &[19, 27, 35], salt_len: 3, iv_len: 8, block_len: 1, icv_len: 16, weakness: None },
    EncryptionRow { name: "aes-ccm-12", aliases: &[], ike: Some(15), xfrm: "rfc4309(ccm(aes))", cipher: Cipher::AesCcm { icv_len: 12 },
        key_lens: &[19, 27, 35], salt_len: 3, iv_len: 8, block_len: 1, icv_len: 12, weakness: None },
    EncryptionRow { name: "aes-ccm-8", aliases: &[], ike: Some(14), xfrm: "rfc4309(ccm(aes))", cipher: Cipher::AesCcm { icv_len: 8 },
        key_lens: &[19, 27, 35], salt_len: 3, iv_len: 8, block_len: 1, icv_len: 8, weakness: None },
    EncryptionRow { name: "chacha20-poly1305", aliases: &[], ike: Some(28), xfrm: "rfc7539esp(chacha20,poly1305)", cipher: Cipher::ChaCha20Poly1305,
        key_lens: &[36], salt_len: 4, iv_len: 8, block_len: 1, icv_len: 16, weakness: None },
    EncryptionRow { name: "camellia-cbc", aliases: &[], ike: Some(23), xfrm: "cbc(camellia)", cipher: Cipher::CamelliaCbc,
        key_lens: &[16, 24, 32], salt_len: 0, iv_len: 16, block_len: 16, icv_len: 0, weakness: None },
    EncryptionRow { name: "blowfish-cbc", aliases: &[], ike: Some(7), xfrm: "cbc(blowfish)", cipher: Cipher::BlowfishCbc,
        key_lens: &BLOWFISH_KEY_LENS, salt_len: 0, iv_len: 8, block_len: 8, icv_len: 0, weakness: Some(SWEET32) },
    EncryptionRow { name: "cast128-cbc", aliases: &[], ike: Some(6), xfrm: "cbc(cast5)", cipher: Cipher::Cast128Cbc,
        key_lens: &[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], salt_len: 0, iv_len: 8, block_len: 8, icv_len: 0, weakness: Some(SWEET32) },
    // RFC 8750: the IV is the sequence number and does not travel.
    EncryptionRow { name: "aes-gcm-16-iiv", aliases: &[], ike: Some(30), xfrm: "", cipher: Cipher::AesGcm { icv_len: 16 },
        key_lens: &[20, 28, 36], salt_len: 4, iv_len: 0, block_len: 1, icv_len: 16, weakness: None },
];

const BLOWFISH_KEY_LENS: [usize; 52] = {
    let mut lens = [0; 52];
    let mut index = 0;
    while index < lens.len() {
        lens[index] = index + 5;
        index += 1;
    }
    lens
};

/// Every integrity algorithm.
#[rustfmt::skip]
pub static INTEGRITY: [IntegrityRow; 11] = [
    IntegrityRow { name: "hmac-md5", aliases: &[], ike: Some(1), xfrm: "hmac(md5)", mac: Mac::HmacMd5,
        key_len: 16, salt_len: 0, iv_len: 0, icv_len: 12, output_len: 16, weakness: Some("MD5 is broken as a hash; HMAC-MD5 has no known forgery but no future") },
    IntegrityRow { name: "hmac-sha1", aliases: &["hmac-sha1-96"], ike: Some(2), xfrm: "hmac(sha1)", mac: Mac::HmacSha1,
        key_len: 20, salt_len: 0, iv_len: 0, icv_len: 12, output_len: 20, weakness: None },
    IntegrityRow { name: "hmac-ripemd160", aliases: &["hmac-rmd160"], ike: None, xfrm: "hmac(rmd160)", mac: Mac::HmacRipemd160,
        key_len: 20, salt_len: 0, iv_len: 0, icv_len: 12, output_len: 20, weakness: None },
    IntegrityRow { name: "hmac-sha2-256", aliases: &["hmac-sha256"], ike: Some(12), xfrm: "hmac(sha256)", mac: Mac::HmacSha256,
        key_len: 32, salt_len: 0, iv_len: 0, icv_len: 16, output_len: 32, weakness: None },
    IntegrityRow { name: "hmac-sha2-384", aliases: &["hmac-sha384"], ike: Some(13), xfrm: "hmac(sha384)", mac: Mac::HmacSha384,
        key_len: 48, salt_len: 0, iv_len: 0, icv_len: 24, output_len: 48, weakness: None },
    IntegrityRow { name: "hmac-sha2-512", aliases: &["hmac-sha512"], ike: Some(14), xfrm: "hmac(sha512)", mac: Mac::HmacSha512,
        key_len: 64, salt_len: 0, iv_len: 0, icv_len: 32, output_len: 64, weakness: None },
    IntegrityRow { name: "aes-xcbc-mac", aliases: &["aes-xcbc"], ike: Some(5), xfrm: "xcbc(aes)", mac: Mac::AesXcbc,
        key_len: 16, salt_len: 0, iv_len: 0, icv_len: 12, output_len: 16, weakness: None },
    IntegrityRow { name: "aes-cmac", aliases: &["aes-cmac-96"], ike: Some(8), xfrm: "cmac(aes)", mac: Mac::AesCmac,
        key_len: 16, salt_len: 0, iv_len: 0, icv_len: 12, output_len: 16, weakness: None },
    IntegrityRow { name: "aes-128-gmac", aliases: &[], ike: Some(9), xfrm: "", mac: Mac::AesGmac,
        key_len: 20, salt_len: 4, iv_len: 8, icv_len: 16, output_len: 16, weakness: None },
    IntegrityRow { name: "aes-192-gmac", aliases: &[], ike: Some(10), xfrm: "", mac: Mac::AesGmac,
        key_len: 28, salt_len: 4, iv_len: 8, icv_len: 16, output_len: 16, weakness: None },
    IntegrityRow { name: "aes-256-gmac", aliases: &[], ike: Some(11), xfrm: "", mac: Mac::AesGmac,
        key_len: 36, salt_len: 4, iv_len: 8, icv_len: 16, output_len: 16, weakness: None },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_alias_leads_to_one_row() {
        let mut names = Vec::new();
        for row in &ENCRYPTION {
            names.push(row.name);
            names.extend(row.aliases);
        }
        for name in &names {
            assert!(Encryption::named(name).is_some());
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for row in &INTEGRITY {
            assert!(Integrity::named(row.name) == Some(Integrity(row)));
        }
    }

    #[test]
    fn icvs_of_sha_2_are_half_the_output_by_rfc_4868() {
        for name in ["hmac-sha2-256", "hmac-sha2-384", "hmac-sha2-512"] {
            let row = Integrity::named(name).unwrap();
            assert_eq!(row.icv_len * 2, row.output_len);
        }
    }
}
