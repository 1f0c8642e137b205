//! How often and how long the gateways were stopped because their share of the processors was used up. Reads nothing
//! where they have no share.

use std::time::Instant;

use super::readings::{Meter, MeterContext, Readings, difference};
use crate::fault::Fault;
use crate::gateway::Side;

/// `left.share.given_s`: the processor time that the share is worth over the load; `left.share.periods_count`,
/// `left.share.throttled_count`: the kernel's periods, and those at whose end the gateway was stopped;
/// `left.share.throttled_s`: for how long, summed over processors.
#[derive(Default)]
pub struct Share {
    before: Readings,
    began: Option<Instant>,
}

impl Meter for Share {
    fn id(&self) -> &'static str {
        "share"
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        self.before = read_counters(context)?;
        self.began = Some(Instant::now());
        Ok(())
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        let mut readings = difference(&self.before, &read_counters(context)?);
        let (Some(throttle), Some(began)) = (&context.topology.throttle, self.began) else {
            return Ok(readings);
        };
        let given = throttle.share() * began.elapsed().as_secs_f64();
        let names = Side::BOTH.map(|side| format!("{}.share.given_s", side.name()));
        readings.extend(names.map(|name| (name, given)));
        Ok(readings)
    }
}

fn read_counters(context: &MeterContext<'_>) -> Result<Readings, Fault> {
    let mut all = Readings::new();
    let Some(throttle) = &context.topology.throttle else {
        return Ok(all);
    };
    for side in Side::BOTH {
        let (held, side) = (throttle.counts(side)?, side.name());
        all.insert(format!("{side}.share.periods_count"), held.periods);
        all.insert(format!("{side}.share.throttled_count"), held.stopped);
        all.insert(format!("{side}.share.throttled_s"), held.stopped_s);
    }
    Ok(all)
}
