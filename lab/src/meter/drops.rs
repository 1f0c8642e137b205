//! What the contender itself counted while the load ran: packets dropped, by its own names, and renewals of its keys.

use super::readings::{Meter, MeterContext, Readings, difference};
use crate::fault::Fault;

/// `drops.<reason>`, `tunnel.<count>`; nothing at all for a contender that does not count.
#[derive(Default)]
pub struct Drops {
    before: Readings,
}

impl Meter for Drops {
    fn id(&self) -> &'static str {
        "drops"
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        self.before = read_counters(context)?;
        Ok(())
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        Ok(difference(&self.before, &read_counters(context)?))
    }
}

fn read_counters(context: &MeterContext<'_>) -> Result<Readings, Fault> {
    let drops = context.tunnel.drops(context.topology)?.unwrap_or_default();
    let named = drops
        .into_iter()
        .map(|(reason, count)| (format!("drops.{reason}"), count as f64));
    let mut all: Readings = named.collect();
    let counts = context.tunnel.counts()?.into_iter();
    all.extend(counts.map(|(name, count)| (format!("tunnel.{name}"), count)));
    Ok(all)
}
