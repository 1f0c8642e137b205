//! One layer of a packet: what it adds, and the headers in front of it.

use crate::outbound::hops::Wrap;
use ipsec::database::SaIndex;
use ipsec::sa::{Sa, SequenceNumber};
use ipsec::wire::udp::UdpFields;
use ipsec::{ah, esp};
use multibuffer::Iv;
use std::ops::Range;

/// One layer of one packet.
pub(super) struct Layer {
    pub(super) sa: SaIndex,
    pub(super) wrap: Wrap,
    pub(super) stamp: Stamp,
    pub(super) identification: u16,
    pub(super) stage: usize,
    /// Bytes of IP headers that are written here, in front of the body.
    pub(super) headers: usize,
    /// From the layer's own header to the end, in the stage's buffer.
    pub(super) body: Range<usize>,
    /// Where AH's headers go as the ICV covers them.
    pub(super) covered: Range<usize>,
}

/// The header that the layer adds.
pub(super) enum Stamp {
    Esp(esp::Stamp),
    Ah(ah::Stamp),
}

impl Stamp {
    /// The stamp of one layer, and how many bytes the layer has from its own header on.
    pub(super) fn new(
        sa: &Sa,
        sequence: SequenceNumber,
        iv: Iv,
        next_header: u8,
        inside: usize,
    ) -> (Self, usize) {
        match sa.config.id.protocol {
            ipsec::sa::Protocol::Esp => {
                let stamp = esp::Stamp::new(sa, sequence, iv, next_header, inside);
                let len = stamp.packet_len();
                (Self::Esp(stamp), len)
            }
            ipsec::sa::Protocol::Ah => {
                let stamp = ah::Stamp::new(&sa.config, sequence, next_header);
                let len = stamp.header_len() + inside;
                (Self::Ah(stamp), len)
            }
        }
    }
}

impl Layer {
    /// The packet that the layer makes, its headers included.
    pub(super) fn packet(&self) -> Range<usize> {
        self.body.start - self.headers..self.body.end
    }

    /// Writes all headers in front of ESP; `inside` starts with the headers of the packet inside.
    pub(super) fn write_headers(&self, sa: &Sa, inside: &[u8], headers: &mut [u8]) {
        if headers.is_empty() {
            return;
        }
        let total_len = headers.len() + self.body.len();
        if let Wrap::Transport(outside) = &self.wrap {
            let (ip, udp) = headers.split_at_mut(outside.len);
            ip.copy_from_slice(&inside[..outside.len]);
            if let Some(ports) = sa.config.encapsulation.filter(|_| !udp.is_empty()) {
                let fields = UdpFields {
                    source_port: ports.source_port,
                    destination_port: ports.destination_port,
                    checksum: 0,
                };
                udp.copy_from_slice(&fields.emit(self.body.len()));
            }
        }
        self.finish_headers(headers, total_len);
    }

    /// Writes a tunnel's headers, or renames those that stay outside and stand there already.
    pub(super) fn finish_headers(&self, headers: &mut [u8], total_len: usize) {
        match &self.wrap {
            Wrap::Tunnel { outer, .. } => {
                outer.emit(total_len - headers.len(), self.identification, headers);
            }
            Wrap::Transport(outside) => {
                let next = match (&self.stamp, headers.len() > outside.len) {
                    (Stamp::Ah(_), _) => ipsec::wire::ip::number::AH,
                    (Stamp::Esp(_), true) => ipsec::wire::ip::number::UDP,
                    (Stamp::Esp(_), false) => ipsec::wire::ip::number::ESP,
                };
                let ip = &mut headers[..outside.len];
                outside.rename(ip, next, total_len, self.identification);
            }
        }
    }
}
