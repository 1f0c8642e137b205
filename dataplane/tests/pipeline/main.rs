//! The pipeline from end to end, in memory: two gateways, what they carry and what they refuse.

mod aggfrag;
mod bench;
mod compression;
mod ends;
mod faults;
mod layers;
mod moved;
mod order;
mod policy;
mod sizes;
mod spread;
mod tunnels;
mod world;
