//! Which algorithms and which traffic two ends agree on (RFC 7296 2.7, 2.9 and 3.3).
//!
//! ```text
//!   algorithm   one transform and its name           offer      what we propose and accept, in order; its text
//!   suites      names that RFCs give, our defaults   choose     the one proposal that is answered, or why none is
//!   confirm     whether an answer was offered        selectors  narrowing of traffic selectors
//! ```

mod algorithm;
mod choose;
mod confirm;
mod defaults;
mod difference;
mod offer;
mod selectors;
mod suites;

pub use algorithm::Algorithm;
pub use choose::{Chosen, KeyExchangeOffered, Outcome, choose};
pub use confirm::{UnfitAnswer, confirm};
pub use defaults::default_offers;
pub use difference::{Difference, Refused, Subject};
pub use offer::{Offer, OfferError};
pub use selectors::{Narrowed, is_within, narrow};
pub use suites::{NAMED_SUITES, NamedSuite};

#[cfg(test)]
mod tests;
