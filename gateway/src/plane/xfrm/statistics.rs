//! The kernel's counters of packets that its IPsec has dropped, by our reasons. They are of the whole network
//! namespace, not of one gateway.

use ipsec::dropped::Dropped;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The file is a page at most: some thirty counters.
const MAX_BYTES: usize = 4096;

/// Which way a counter belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Outbound,
    Inbound,
}

/// Each counter of `net/xfrm/xfrm_proc.c`, and what a gateway of its own plane would call it.
const COUNTERS: [(&str, Way, Dropped); 32] = [
    ("XfrmInError", Way::Inbound, Dropped::Malformed),
    ("XfrmInBufferError", Way::Inbound, Dropped::NoBuffer),
    ("XfrmInHdrError", Way::Inbound, Dropped::Malformed),
    ("XfrmInNoStates", Way::Inbound, Dropped::NoSa),
    ("XfrmInStateProtoError", Way::Inbound, Dropped::BadIcv),
    ("XfrmInStateModeError", Way::Inbound, Dropped::BadInner),
    ("XfrmInStateSeqError", Way::Inbound, Dropped::Replayed),
    ("XfrmInStateExpired", Way::Inbound, Dropped::LifetimeOver),
    (
        "XfrmInStateMismatch",
        Way::Inbound,
        Dropped::WrongEncapsulation,
    ),
    ("XfrmInStateInvalid", Way::Inbound, Dropped::NoSa),
    ("XfrmInTmplMismatch", Way::Inbound, Dropped::PolicyMismatch),
    ("XfrmInNoPols", Way::Inbound, Dropped::NoPolicy),
    ("XfrmInPolBlock", Way::Inbound, Dropped::PolicyDiscard),
    ("XfrmInPolError", Way::Inbound, Dropped::PolicyMismatch),
    ("XfrmOutError", Way::Outbound, Dropped::Malformed),
    ("XfrmOutBundleGenError", Way::Outbound, Dropped::NoBuffer),
    ("XfrmOutBundleCheckError", Way::Outbound, Dropped::Acquire),
    ("XfrmOutNoStates", Way::Outbound, Dropped::Acquire),
    ("XfrmOutStateProtoError", Way::Outbound, Dropped::Malformed),
    ("XfrmOutStateModeError", Way::Outbound, Dropped::TooBig),
    ("XfrmOutStateSeqError", Way::Outbound, Dropped::SequenceOver),
    ("XfrmOutStateExpired", Way::Outbound, Dropped::LifetimeOver),
    ("XfrmOutPolBlock", Way::Outbound, Dropped::PolicyDiscard),
    ("XfrmOutPolDead", Way::Outbound, Dropped::PolicyDiscard),
    ("XfrmOutPolError", Way::Outbound, Dropped::PolicyDiscard),
    ("XfrmFwdHdrError", Way::Inbound, Dropped::Malformed),
    ("XfrmOutStateInvalid", Way::Outbound, Dropped::Acquire),
    ("XfrmAcquireError", Way::Outbound, Dropped::Acquire),
    ("XfrmInIptfsError", Way::Inbound, Dropped::BadInner),
    ("XfrmOutNoQueueSpace", Way::Outbound, Dropped::NoBuffer),
    ("XfrmInStateDirError", Way::Inbound, Dropped::NoSa),
    ("XfrmOutStateDirError", Way::Outbound, Dropped::Acquire),
];

/// Dropped packets by [`Dropped::index`].
pub(crate) type DropsByReason = [u64; Dropped::ALL.len()];

/// The file with the counters, and what they were when the gateway began.
pub(crate) struct Statistics {
    file: File,
    before: [DropsByReason; 2],
}

impl Statistics {
    /// Opens the file; fails on kernels without CONFIG_XFRM_STATISTICS.
    pub(crate) fn open() -> io::Result<Self> {
        let file = File::open("/proc/self/net/xfrm_stat")?;
        let before = read(&file)?;
        Ok(Self { file, before })
    }

    /// What was dropped since it was opened: outbound, then inbound.
    pub(crate) fn drops(&self) -> [DropsByReason; 2] {
        // A file that cannot be read shows nothing new.
        let mut now = read(&self.file).unwrap_or(self.before);
        for (now, before) in now.iter_mut().flatten().zip(self.before.iter().flatten()) {
            *now = now.saturating_sub(*before);
        }
        now
    }
}

fn read(file: &File) -> io::Result<[DropsByReason; 2]> {
    let mut bytes = [0; MAX_BYTES];
    let len = file.read_at(&mut bytes, 0)?;
    Ok(parse(&String::from_utf8_lossy(&bytes[..len])))
}

fn parse(text: &str) -> [DropsByReason; 2] {
    let mut drops = [[0; Dropped::ALL.len()]; 2];
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(count)) = (words.next(), words.next()) else {
            continue;
        };
        let known = COUNTERS.iter().find(|(known, ..)| *known == name);
        if let (Some((_, way, reason)), Ok(count)) = (known, count.parse::<u64>()) {
            drops[usize::from(*way == Way::Inbound)][reason.index()] += count;
        }
    }
    drops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_our_reasons_in_each_way() {
        let text = "XfrmInNoStates          \t7\nXfrmInStateInvalid      \t1\nXfrmOutNoStates         \t3\n\
                    XfrmAcquireError        \t2\nXfrmNewerThanThis\t9\nXfrmInError\n";
        let [outbound, inbound] = parse(text);
        assert_eq!(inbound[Dropped::NoSa.index()], 8);
        assert_eq!(outbound[Dropped::Acquire.index()], 5);
        assert_eq!(inbound.iter().chain(&outbound).sum::<u64>(), 13);
    }
}
