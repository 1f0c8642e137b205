//! Unpredictable bits.

/// Bits of the system's generator.
pub(crate) fn system_random() -> u64 {
    let mut bytes = [0; 8];
    fill_with_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Fills all of it from the system's generator.
pub(crate) fn fill_with_random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        // The system's generator is ready after boot and fails only when interrupted.
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .unwrap_or(0);
    }
}
