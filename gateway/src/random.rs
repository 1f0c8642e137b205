//! Unpredictable bits.

/// Bits of the system's generator.
pub(crate) fn system_random() -> u64 {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        // The system's generator is ready after boot and fails only when interrupted.
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .unwrap_or(0);
    }
    u64::from_ne_bytes(bytes)
}
