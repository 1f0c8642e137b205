//! This project's crate.

use multibuffer::{Iv, Key, OpenJob, SealJob, Verdict};

use crate::{AAD, clock, suites::Suite};

pub struct Ours {
    key: Key,
}

impl Ours {
    pub fn new(suite: &Suite) -> Self {
        let key = Key::new(
            suite.cipher,
            &suite.key(),
            suite.integrity,
            &suite.mac_key(),
            suite.icv_len,
        );
        Self {
            key: key.expect("a legal key"),
        }
    }

    pub fn block_len(&self) -> usize {
        self.key.block_len()
    }

    pub fn iv_len(&self) -> usize {
        self.key.iv_len()
    }

    /// Packets to be sealed.
    pub fn packets(&self, len: usize, batch: usize) -> Vec<Vec<u8>> {
        let whole = AAD + self.iv_len() + len;
        let packet = |number: usize| {
            let mut packet: Vec<u8> = (0..whole).map(|at| (at * 31 + number) as u8).collect();
            packet.resize(whole + self.key.icv_len(), 0);
            packet
        };
        (0..batch).map(packet).collect()
    }

    /// The same packets, sealed.
    pub fn sealed(&self, len: usize, batch: usize) -> Vec<Vec<u8>> {
        let plain = self.packets(len, batch);
        let mut sealed = plain.clone();
        multibuffer::seal(&mut self.seal_jobs(&plain, &mut sealed, len));
        sealed
    }

    /// Seconds for `repeats` batches.
    pub fn time(&self, sealed: &[Vec<u8>], len: usize, sealing: bool, repeats: usize) -> f64 {
        let mut batches = vec![sealed.to_vec(); repeats];
        if sealing {
            let jobs = batches
                .iter_mut()
                .map(|batch| self.seal_jobs(sealed, batch, len));
            let mut jobs: Vec<Vec<SealJob<'_>>> = jobs.collect();
            let start = clock::now();
            jobs.iter_mut().for_each(|jobs| multibuffer::seal(jobs));
            return clock::now() - start;
        }
        let jobs = batches.iter_mut().map(|batch| self.open_jobs(batch));
        let mut jobs: Vec<Vec<OpenJob<'_>>> = jobs.collect();
        let start = clock::now();
        jobs.iter_mut().for_each(|jobs| multibuffer::open(jobs));
        let time = clock::now() - start;
        let mut all = jobs.iter().flatten();
        assert!(all.all(|job| job.verdict == Verdict::Genuine));
        time
    }

    fn seal_jobs<'a>(
        &'a self,
        plain: &'a [Vec<u8>],
        sealed: &'a mut [Vec<u8>],
        len: usize,
    ) -> Vec<SealJob<'a>> {
        let header = AAD + self.iv_len();
        let packets = plain.iter().zip(sealed);
        let job = |(plain, sealed): (&'a Vec<u8>, &'a mut Vec<u8>)| SealJob {
            key: &self.key,
            aad: &plain[..AAD],
            aad_tail: &[],
            iv: Iv::new(&plain[AAD..header]),
            // A tunnel's inner header, the payload, a trailer.
            input: [
                &plain[header..header + 20],
                &plain[header + 20..header + len - 10],
                &plain[header + len - 10..header + len],
            ],
            output: &mut sealed[header..],
        };
        packets.map(job).collect()
    }

    fn open_jobs<'a>(&'a self, packets: &'a mut [Vec<u8>]) -> Vec<OpenJob<'a>> {
        let header = AAD + self.iv_len();
        let job = |packet: &'a mut Vec<u8>| {
            let (before, text) = packet.split_at_mut(header);
            OpenJob {
                key: &self.key,
                aad: &before[..AAD],
                aad_tail: &[],
                iv: Iv::new(&before[AAD..]),
                text,
                verdict: Verdict::Pending,
            }
        };
        packets.iter_mut().map(job).collect()
    }
}
