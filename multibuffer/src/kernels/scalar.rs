//! Cipher block chaining, one block after the other, over any block cipher of the RustCrypto crates.
//!
//! For ciphers that only old peers use: Camellia, Blowfish and CAST-128.

use blowfish::cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, array::ArraySize,
};

/// Encrypts `text`, whole blocks, in place; `iv` is one block.
pub(crate) fn cbc_encrypt<C: BlockCipherEncrypt>(cipher: &C, iv: &[u8], text: &mut [u8]) {
    let mut chain = block_of::<C::BlockSize>(iv);
    for bytes in text.chunks_exact_mut(block_len::<C>()) {
        xor(&mut chain, bytes);
        cipher.encrypt_block(&mut chain);
        bytes.copy_from_slice(&chain);
    }
}

/// Decrypts `text`, whole blocks, in place; `iv` is one block.
pub(crate) fn cbc_decrypt<C: BlockCipherDecrypt>(cipher: &C, iv: &[u8], text: &mut [u8]) {
    let mut chain = block_of::<C::BlockSize>(iv);
    for bytes in text.chunks_exact_mut(block_len::<C>()) {
        let sealed = block_of::<C::BlockSize>(bytes);
        let mut block = sealed.clone();
        cipher.decrypt_block(&mut block);
        xor(&mut block, &chain);
        bytes.copy_from_slice(&block);
        chain = sealed;
    }
}

fn block_len<C: BlockSizeUser>() -> usize {
    C::block_size()
}

fn block_of<N: ArraySize>(bytes: &[u8]) -> Array<u8, N> {
    let mut block = Array::default();
    block.copy_from_slice(bytes);
    block
}

/// `to ^= from`, byte by byte; both are equally long.
pub(crate) fn xor(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}
