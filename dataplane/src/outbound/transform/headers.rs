//! IP and UDP headers in front of ESP and AH, where they are written here.

use crate::outbound::chain::LayerMode;
use crate::outbound::nested::{LayerHeader, PacketLayer};
use ipsec::sa::Sa;
use ipsec::wire::ip::number;
use ipsec::wire::udp::UdpFields;

impl PacketLayer {
    /// Writes all headers in front of ESP; `inside` starts with the headers of the packet inside.
    pub(super) fn write_headers(&self, sa: &Sa, inside: &[u8], headers: &mut [u8]) {
        if headers.is_empty() {
            return;
        }
        let total_len = headers.len() + self.body.len();
        if let LayerMode::Transport(outside) = &self.mode {
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

    /// Writes a tunnel's headers; in transport mode sets next header and length of those that are there already.
    pub(super) fn finish_headers(&self, headers: &mut [u8], total_len: usize) {
        match &self.mode {
            LayerMode::Tunnel { outer, .. } => {
                outer.emit(total_len - headers.len(), self.identification, headers);
            }
            LayerMode::Transport(outside) => {
                let next = match (&self.header, headers.len() > outside.len) {
                    (LayerHeader::Ah(_), _) => number::AH,
                    (LayerHeader::Esp(_), true) => number::UDP,
                    (LayerHeader::Esp(_), false) => number::ESP,
                };
                let ip = &mut headers[..outside.len];
                outside.rename(ip, next, total_len, self.identification);
            }
        }
    }
}

/// What of head and payload goes behind the ESP header when the first `outside` bytes of the packet stay outside.
pub(super) fn protected_part<'a>(
    outside: usize,
    head: &'a [u8],
    payload: &'a [u8],
) -> (&'a [u8], &'a [u8]) {
    match head.get(outside..) {
        Some(head) => (head, payload),
        None => (&[], payload.get(outside - head.len()..).unwrap_or_default()),
    }
}
