//! Big-endian fields of headers whose lengths were checked when the segments were planned.

/// Protocol numbers.
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
/// Bytes of a UDP header.
pub const UDP_HEADER_LEN: usize = 8;
/// Where the flags stand in a TCP header.
pub const TCP_FLAGS: usize = 13;
/// Where the checksums stand in their headers.
pub const TCP_CHECKSUM: usize = 16;
pub const UDP_CHECKSUM: usize = 6;
/// TCP's flags.
pub const FIN: u8 = 0x01;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const CWR: u8 = 0x80;

/// The 16 bits at `at`.
pub fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The 32 bits at `at`.
pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes 16 bits at `at`.
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes 32 bits at `at`.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
