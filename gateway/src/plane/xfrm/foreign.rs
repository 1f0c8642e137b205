//! Associations of other programs in the kernel.

use super::XfrmPlane;
use super::association;
use super::owner::Owner;
use super::zeroizing::ZeroizingMessage;
use crate::routes::Site;
use ipsec::sa::SaId;
use netlink_packet_xfrm::XfrmMessage;

impl XfrmPlane {
    /// Whether the kernel has an association with this name that is not of the gateway of this site, and would take its
    /// packets before any other program. If the query fails, the answer is no: a kernel that cannot be queried has no
    /// associations.
    pub(crate) fn has_anothers(&mut self, id: &SaId, site: &Site) -> bool {
        let question = XfrmMessage::GetSa(association::named(id));
        match self.kernel.ask(&ZeroizingMessage::new(question)) {
            Ok(answer) => match &*answer {
                XfrmMessage::AddSa(message) => !Owner::of(site).owns_sa(message),
                _ => true,
            },
            // An association that cannot be parsed exists all the same.
            Err(refusal) => refusal.errno == libc::EBADMSG,
        }
    }
}
