//! A TUN device with virtio headers: the kernel hands over super-packets as they are and takes them back as they are.
//!
//! ```text
//!   kernel ──► readv: header + packet ──► Offload, bytes in the buffer          TunSource
//!   kernel ◄── writev: header + pieces ◄── Offload, pieces of a Delivery        TunSink
//! ```
//!
//! Each offload is tried with a real packet at start ([`TunOffloads`]); what fails is done without, and said aloud. With
//! several queues the kernel spreads flows over them by itself; each queue is a source and a sink of its own.

mod device;
mod ioctl;
mod options;
mod probe;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub use device::Tun;
pub use options::{TunOffloads, TunOptions};
pub use sink::TunSink;
pub use source::TunSource;
