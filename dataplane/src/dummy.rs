//! Packets that carry nothing, so that silence does not tell what it would tell (RFC 4303 2.6).

use crate::iv::IvSource;
use ipsec::Dropped;
use ipsec::esp::OutboundEsp;
use ipsec::sa::Sa;

/// The next header of a packet that carries nothing.
const NOTHING_INSIDE: u8 = 59;

/// The shortest and, less one byte's chance, the longest plaintext; `tfc` pads it as any other.
const MIN_PLAINTEXT_LEN: usize = 40;

/// One dummy packet of `sa`, from SPI to ICV. Its length is chosen at random, and so is what it is filled with, which a
/// cipher that does not encrypt would show.
pub fn seal(sa: &Sa, random: &mut IvSource, now: u64) -> Result<Vec<u8>, Dropped> {
    let mut more = [0];
    random.fill(&mut more);
    let mut plaintext = vec![0; MIN_PLAINTEXT_LEN + usize::from(more[0])];
    random.fill(&mut plaintext);
    let bytes = plaintext.len() as u64;
    let (sequence, _) = sa.state.reserve(&sa.config, 1, bytes, now)?;
    let iv = sa.iv_for(sequence, &mut |bytes| random.fill(bytes));
    let stamp = OutboundEsp::new(sa, sequence, iv, NOTHING_INSIDE, plaintext.len());
    let mut packet = vec![0; stamp.packet_len()];
    let job = stamp.job(sa, &[], &plaintext, &mut packet);
    multibuffer::seal(&mut [job]);
    Ok(packet)
}
