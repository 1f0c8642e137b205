//! Watches what keeps traffic protected: after the kernel's notifications, and each second without any, all of it is
//! compared with the kernel's state, and what another program has removed is restored. Without notifications thousands
//! of routes are compared less often.
//!
//! The gateway's own changes cause notifications too: the comparison that follows finds nothing missing, and that ends
//! it.

use super::Gateway;
use crate::events::What;
use crate::run::interface;
use crate::status::{BarrierStatus, Restorations};
use std::io;
use std::time::Instant;

impl Gateway {
    pub(super) fn handle_notifications(&mut self) {
        let own = self.plane.kernel().installed().ports();
        let news = self.monitor.take(own);
        self.addresses_changed |= news.addresses || news.lost;
        if news.installed || news.addresses || news.lost {
            self.reach_new_devices();
            self.plane.kernel().installed().compare_steering_next();
            self.removals.suspect(Instant::now());
        }
    }

    /// A new device has no filters yet, and none were removed: adding them does not wait for the comparison.
    fn reach_new_devices(&mut self) {
        let installed = self.plane.kernel().installed();
        let outcome = installed.reach_new();
        for fault in installed.faults() {
            (self.warnings.warn_once())(&format!(
                "one barrier against unencrypted traffic is missing: {fault}"
            ));
        }
        if let Err(error) = outcome {
            (self.warnings.warn_once())(&format!(
                "a new device has no filters yet and is covered by the other barrier only: {error}"
            ));
        }
    }

    pub(super) fn compare(&mut self) {
        self.removals.compared(Instant::now());
        self.reach_new_devices();
        if std::mem::take(&mut self.addresses_changed) {
            self.refresh();
        }
        match self.missing() {
            Ok(missing) if missing.is_empty() => self.removals.nothing(),
            Ok(missing) if self.removals.may_restore(Instant::now()) => self.put_back(&missing),
            Ok(missing) => self.hold_back(&missing),
            Err(error) => (self.warnings.warn())(&format!(
                "cannot compare the kernel's state with the wanted one: {error}"
            )),
        }
    }

    fn put_back(&mut self, missing: &[String]) {
        let outcome = self.restore();
        // If that cannot be determined, nothing counts as restored.
        let left = self.missing().unwrap_or_else(|_| missing.to_vec());
        let back: Vec<_> = missing
            .iter()
            .filter(|what| !left.contains(what))
            .cloned()
            .collect();
        if !back.is_empty() {
            self.report_restored(back.join(", "));
        }
        match (left.is_empty(), outcome) {
            (true, _) => {}
            (false, Ok(())) => self.report_missing(left.join(", ")),
            (false, Err(why)) => self.report_missing(format!("{}: {why}", left.join(", "))),
        }
    }

    /// Too much was removed in too short a time. If nothing else would block unencrypted traffic meanwhile, the
    /// barriers are restored without waiting.
    fn hold_back(&mut self, missing: &[String]) {
        let installed = self.plane.kernel().installed();
        if installed.is_open()
            && let Err(error) = installed.restore_barriers()
        {
            self.report_missing(format!("{}: {error}", missing.join(", ")));
        }
        (self.warnings.warn_once())(
            "another program repeatedly removes what keeps traffic protected: it is now restored once per second, \
             and nothing passes unencrypted meanwhile; see `esplanade events`",
        );
    }

    fn missing(&mut self) -> io::Result<Vec<String>> {
        let mut words = self.plane.kernel().missing()?;
        let strict = interface::devices_with_strict_rp_filter(&self.record).into_iter();
        words.extend(strict.map(|device| format!("rp_filter of {device} set to strict")));
        Ok(words)
    }

    fn restore(&mut self) -> io::Result<()> {
        let outcome = self.plane.kernel().restore();
        let strict = interface::devices_with_strict_rp_filter(&self.record);
        let loosened: io::Result<Vec<()>> = strict
            .iter()
            .map(|device| interface::relax_rp_filter_again(device))
            .collect();
        outcome.and(loosened.map(drop))
    }

    fn report_restored(&mut self, what: String) {
        let times = self.removals.restored(Instant::now(), what.clone());
        (self.warnings.warn_once())(
            "another program removed what keeps traffic protected, and it was restored: see `esplanade events` for \
             what and when, `esplanade status` for how often",
        );
        self.report_event(What::Restored { what, times });
    }

    fn report_missing(&mut self, what: String) {
        if self.removals.stands(&what) {
            self.report_event(What::Missing { what });
        }
    }

    pub(super) fn barriers(&mut self) -> Vec<BarrierStatus> {
        let states = self.plane.kernel().installed().barriers();
        states
            .into_iter()
            .map(|state| BarrierStatus {
                name: state.name.to_owned(),
                holds: state.faults.is_empty(),
                faults: state.faults,
                gaps: state.gaps.map(str::to_owned),
            })
            .collect()
    }

    pub(super) fn restorations(&mut self) -> Restorations {
        let now = Instant::now();
        let held_back = self.removals.is_held_back(now);
        let (times, last) = self.removals.summary(now);
        Restorations {
            times,
            seconds_ago: last.map(|(seconds, _)| seconds),
            last: last.map(|(_, what)| what.to_owned()),
            missing: self.removals.standing().map(str::to_owned),
            held_back,
        }
    }
}
