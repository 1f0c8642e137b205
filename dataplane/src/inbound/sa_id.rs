//! Which SA a packet names: RFC 4301 4.1, RFC 4303 3.4.2, RFC 4302 3.4.2.

use ipsec::Dropped;
use ipsec::ipcomp::cpi;
use ipsec::sa::{Protocol, SaId, Spi};
use ipsec::wire::ah::Ah;
use ipsec::wire::esp::Esp;
use std::net::IpAddr;

/// The id that destination address, protocol and the SPI at the start of `packet` make; `malformed` is the reason for a
/// packet that is too short.
pub(super) fn read_sa_id(
    destination: IpAddr,
    protocol: Protocol,
    packet: &[u8],
    malformed: Dropped,
) -> Result<SaId, Dropped> {
    let spi = match protocol {
        Protocol::Esp => Esp::new_checked(packet).map(|esp| esp.spi()),
        Protocol::Ah => Ah::new_checked(packet).map(|ah| ah.spi()),
        Protocol::IpComp => cpi(packet).ok_or(malformed),
    };
    Ok(SaId {
        destination,
        protocol,
        spi: Spi::new(spi.map_err(|_| malformed)?).ok_or(Dropped::NoSa)?,
    })
}
