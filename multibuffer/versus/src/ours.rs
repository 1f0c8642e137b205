//! This project's crate.

use std::time::Instant;

use multibuffer::{Iv, Key, OpenJob, SealJob, Verdict};

use crate::{AAD, suites::Suite};

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
        self.seal(&plain, &mut sealed, len);
        sealed
    }

    /// Seconds for `repeats` batches.
    pub fn time(&self, sealed: &[Vec<u8>], len: usize, sealing: bool, repeats: usize) -> f64 {
        let plain = sealed.to_vec();
        let mut total = 0.0;
        for _ in 0..repeats {
            let mut packets = sealed.to_vec();
            total += if sealing {
                self.seal(&plain, &mut packets, len)
            } else {
                self.open(&mut packets, len)
            };
        }
        total
    }

    fn seal(&self, plain: &[Vec<u8>], sealed: &mut [Vec<u8>], len: usize) -> f64 {
        let header = AAD + self.iv_len();
        let mut jobs: Vec<SealJob<'_>> = plain
            .iter()
            .zip(sealed)
            .map(|(plain, sealed)| SealJob {
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
            })
            .collect();
        let start = Instant::now();
        multibuffer::seal(&mut jobs);
        start.elapsed().as_secs_f64()
    }

    fn open(&self, packets: &mut [Vec<u8>], _len: usize) -> f64 {
        let header = AAD + self.iv_len();
        let mut jobs: Vec<OpenJob<'_>> = packets
            .iter_mut()
            .map(|packet| {
                let (before, text) = packet.split_at_mut(header);
                OpenJob {
                    key: &self.key,
                    aad: &before[..AAD],
                    aad_tail: &[],
                    iv: Iv::new(&before[AAD..]),
                    text,
                    verdict: Verdict::Pending,
                }
            })
            .collect();
        let start = Instant::now();
        multibuffer::open(&mut jobs);
        let time = start.elapsed().as_secs_f64();
        assert!(jobs.iter().all(|job| job.verdict == Verdict::Genuine));
        time
    }
}
