//! A TUN device with virtio headers: trains (TSO, USO) pass in both directions without being segmented.
//!
//! ```text
//!   kernel ──► readv: header + packet ──► Offload, bytes in the buffer          TunSource
//!   kernel ◄── writev: header + pieces ◄── Offload, pieces of a Delivery        TunSink
//! ```
//!
//! Each offload is probed with a real packet at start ([`TunOffloads`]); what fails is not used, and a warning names
//! it. With several queues the kernel spreads flows over them; each queue is a source and a sink of its own.

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
