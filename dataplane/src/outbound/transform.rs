//! The middle step outbound, on any thread: ESP headers, heads and checksums of segments, then the ciphers, straight
//! from the super-packet into the buffer that is sent.

mod headers;
mod nested;

use super::OutboundBatch;
use super::batch::{JOBS_PER_CALL, SequenceReservation};
use crate::buffers::{prefix_mut, recycle};
use crate::pipeline::lane::Transform;
use headers::protected_part;
use ipsec::database::Snapshot;
use ipsec::esp::OutboundEsp;
use ipsec::sa::Sa;

impl Transform for OutboundBatch {
    fn arrived(&self) -> u64 {
        self.counts.arrived
    }

    fn transform(&mut self) {
        let Some(snapshot) = self.snapshot.take() else {
            return;
        };
        self.make_headers(&snapshot);
        self.seal(&snapshot);
        let nested = &mut self.planned.nested;
        nested::transform(nested, &snapshot, &self.intake.bytes, &self.made);
        self.snapshot = Some(snapshot);
    }
}

impl OutboundBatch {
    /// Makes the ESP headers of all packets with one header.
    fn make_headers(&mut self, snapshot: &Snapshot) {
        let planned = &self.planned;
        for items in planned.items.chunks(JOBS_PER_CALL) {
            let sas = items.iter().map(|item| planned.plans[item.plan].sa);
            snapshot.prefetch_associations(sas);
        }
        self.esp_headers.clear();
        let mut reservations = planned.reservations.iter();
        for item in &planned.items {
            let plan = &planned.plans[item.plan];
            let sa = snapshot.sa(plan.sa);
            let of_item = reservations.by_ref().take(item.assigned as usize);
            self.esp_headers
                .extend(of_item.map(|reservation| reservation.header(sa, plan.next_header)));
        }
    }

    /// Writes heads and checksums of segments and encrypts, many packets at once.
    fn seal(&mut self, snapshot: &Snapshot) {
        let planned = &self.planned;
        let mut at_once = JOBS_PER_CALL;
        let mut jobs = recycle(std::mem::take(&mut self.jobs));
        let mut heads = prefix_mut(&mut self.heads, planned.heads_len);
        let mut sealed = prefix_mut(&mut self.sealed, planned.sealed_len);
        let mut esp_headers = self.esp_headers.iter();
        for esp_item in &planned.items {
            let plan = &planned.plans[esp_item.plan];
            let sa = snapshot.sa(plan.sa);
            let item = &esp_item.item;
            let segments = &item.segments;
            let bytes = if item.is_made {
                &self.made[item.range.clone()]
            } else {
                &self.intake.bytes[item.range.clone()]
            };
            at_once = at_once.max(sa.key.jobs_at_once());
            for (number, esp) in (0..esp_item.assigned).zip(&mut esp_headers) {
                let (head, out);
                (head, heads) = heads.split_at_mut(segments.head_len());
                (out, sealed) = sealed.split_at_mut(esp.packet_len());
                segments.write_head(bytes, number, head);
                let payload = &bytes[segments.payload(number)];
                let (head, payload) = protected_part(plan.outside, head, payload);
                jobs.push(esp.job(sa, head, payload, out));
                if jobs.len() >= at_once {
                    multibuffer::seal(&mut jobs);
                    jobs.clear();
                }
            }
        }
        multibuffer::seal(&mut jobs);
        self.jobs = recycle(jobs);
    }
}

impl SequenceReservation {
    fn header(&self, sa: &Sa, next_header: u8) -> OutboundEsp {
        let iv = if sa.has_random_ivs() {
            self.iv
        } else {
            sa.derived_iv(self.sequence)
        };
        OutboundEsp::new(sa, self.sequence, iv, next_header, self.plaintext_len)
    }
}
