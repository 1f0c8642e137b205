//! Two endpoints on a virtual clock: every exchange under seeded loss, duplication, reordering, delay, a NAT, and a
//! third party that replays, changes and forges datagrams.
//!
//! ```text
//!   world      clock, queue of what happens next, both hosts
//!   network    what becomes of a datagram             hostile   what a third party makes of it
//!   plane      a data plane that stamps frames: lost and duplicated ones are counted
//!   agreement  whether both ends have the same associations, and nothing else
//! ```
//!
//! Seeds are few here; `ESPLANADE_IKE_SEEDS=5000 cargo test -p ikev2 --test endpoints` runs that many of each kind.

mod agreement;
mod both_begin;
mod child_delete;
mod child_rekey;
mod child_rekey_collisions;
mod hostile;
mod ike_rekey;
mod network;
mod plane;
mod random;
mod rekeys_under_loss;
mod restarted;
mod seeds;
mod world;
