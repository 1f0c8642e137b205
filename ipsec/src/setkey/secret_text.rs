//! Text that holds keys.

use std::fmt;

use zeroize::Zeroizing;

/// Text that grows without leaving copies behind: a `Vec` that grows by itself frees its old bytes unzeroed.
#[derive(Default)]
pub(super) struct SecretText(Zeroizing<Vec<u8>>);

impl SecretText {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.0.capacity() - self.0.len() < bytes.len() {
            let mut larger = Vec::with_capacity((self.0.len() + bytes.len()) * 2);
            larger.extend_from_slice(&self.0);
            self.0 = Zeroizing::new(larger);
        }
        self.0.extend_from_slice(bytes);
    }

    pub fn push_hexadecimal(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for &byte in bytes {
            let (high, low) = (byte >> 4, byte & 15);
            self.push(&[DIGITS[usize::from(high)], DIGITS[usize::from(low)]]);
        }
    }

    pub fn last_byte(&self) -> Option<&u8> {
        self.0.last()
    }

    pub fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}

impl fmt::Write for SecretText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}
