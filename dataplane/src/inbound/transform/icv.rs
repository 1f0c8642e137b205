//! The ciphers of one chunk of packets in one call, and what they found of each ICV.

use crate::buffers::{RangeSplitter, recycle};
use crate::inbound::layer::{LayerState, NestedLayer};
use crate::inbound::packet::{InboundPacket, LayerHeader, Outcome};
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::esp;
use multibuffer::{OpenJob, Verdict};
use std::ops::Range;

/// Jobs per call of the ciphers. MEASURED: enough for every multi-buffer kernel, and so many packets stay in a 512 KiB
/// L2 cache until the packets inside are processed.
pub(super) const JOBS_PER_CALL: usize = 64;

/// An ESP layer that is to be decrypted in place.
pub(super) struct EspLayer<'a> {
    header: &'a esp::InboundEsp,
    sa: SaIndex,
    range: Range<usize>,
}

/// A packet, or one of its layers, whose ICV is checked.
pub(super) trait Authenticated {
    /// Its ESP layer, if it has one in the intake or, where `rebuilt`, in the rebuilt bytes.
    fn esp(&self, rebuilt: bool) -> Option<EspLayer<'_>>;

    /// Sets whether its ICV was right.
    fn set_genuine(&mut self, is_genuine: bool);
}

impl Authenticated for InboundPacket {
    #[inline]
    fn esp(&self, _: bool) -> Option<EspLayer<'_>> {
        match &self.header {
            LayerHeader::Esp(header) => Some(EspLayer {
                header,
                sa: self.sa,
                range: self.range.clone(),
            }),
            LayerHeader::Ah(_) | LayerHeader::IpComp(_) | LayerHeader::Inside => None,
        }
    }

    fn set_genuine(&mut self, is_genuine: bool) {
        self.outcome = if is_genuine {
            Outcome::Genuine(Err(Dropped::BadInner))
        } else {
            Outcome::Forged
        };
    }
}

impl Authenticated for NestedLayer {
    #[inline]
    fn esp(&self, rebuilt: bool) -> Option<EspLayer<'_>> {
        match &self.header {
            LayerHeader::Esp(header) if self.span.rebuilt == rebuilt => Some(EspLayer {
                header,
                sa: self.sa,
                range: self.body(),
            }),
            _ => None,
        }
    }

    fn set_genuine(&mut self, is_genuine: bool) {
        self.state = if is_genuine {
            LayerState::Genuine
        } else {
            LayerState::Failed(Dropped::BadIcv)
        };
    }
}

/// Decrypts all ESP layers of `layers` that lie in `bytes`, in one call, and sets whether their ICVs were right.
/// Borrows `memory` for the jobs.
pub(super) fn open<L: Authenticated>(
    snapshot: &Snapshot,
    layers: &mut [L],
    (bytes, rebuilt): (&mut [u8], bool),
    memory: Vec<OpenJob<'static>>,
) -> Vec<OpenJob<'static>> {
    let mut jobs = recycle(memory);
    let mut splitter = RangeSplitter::new(bytes);
    for layer in layers.iter().filter_map(|layer| layer.esp(rebuilt)) {
        let text = splitter.take(layer.range);
        jobs.push(layer.header.job(snapshot.sa(layer.sa), text));
    }
    multibuffer::open(&mut jobs);
    let verdicts = verdicts(jobs.iter().map(|job| job.verdict));
    let memory = recycle(jobs);
    let opened = layers
        .iter_mut()
        .filter(|layer| layer.esp(rebuilt).is_some());
    apply(verdicts, opened);
    memory
}

/// The verdicts of one call, copied out of its jobs, which borrow the layers.
pub(super) fn verdicts(of_jobs: impl Iterator<Item = Verdict>) -> [Verdict; JOBS_PER_CALL] {
    let mut verdicts = [Verdict::Pending; JOBS_PER_CALL];
    for (verdict, of_job) in verdicts.iter_mut().zip(of_jobs) {
        *verdict = of_job;
    }
    verdicts
}

/// Gives each layer its verdict; they are in the order of the jobs.
pub(super) fn apply<'l, L: Authenticated + 'l>(
    verdicts: [Verdict; JOBS_PER_CALL],
    layers: impl Iterator<Item = &'l mut L>,
) {
    for (layer, verdict) in layers.zip(verdicts) {
        layer.set_genuine(verdict == Verdict::Genuine);
    }
}
