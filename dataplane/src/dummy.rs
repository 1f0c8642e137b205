//! Dummy packets, which hide idle periods from an observer (RFC 4303 2.6).

use crate::iv::IvSource;
use ipsec::Dropped;
use ipsec::esp::OutboundEsp;
use ipsec::sa::Sa;
use ipsec::wire::ip::number::NO_NEXT;

/// The shortest plaintext in bytes; up to 255 random more are added. TFC padding applies as to every packet.
const MIN_PLAINTEXT_LEN: usize = 40;

/// One dummy packet of `sa`, from SPI to ICV. Length and content are random; the content would be visible under a suite
/// that does not encrypt.
pub fn seal(sa: &Sa, random: &mut IvSource, now: u64) -> Result<Vec<u8>, Dropped> {
    let mut more = [0];
    random.fill(&mut more);
    let mut plaintext = vec![0; MIN_PLAINTEXT_LEN + usize::from(more[0])];
    random.fill(&mut plaintext);
    let bytes = plaintext.len() as u64;
    let (sequence, _) = sa.state.reserve(&sa.config, 1, bytes, now)?;
    let iv = sa.iv_for(sequence, &mut |bytes| random.fill(bytes));
    let esp = OutboundEsp::new(sa, sequence, iv, NO_NEXT, plaintext.len());
    let mut packet = vec![0; esp.packet_len()];
    let job = esp.job(sa, &[], &plaintext, &mut packet);
    multibuffer::seal(&mut [job]);
    Ok(packet)
}
