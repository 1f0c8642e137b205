//! An XFRM message whose keys are zeroed with it: netlink's own types keep them in plain memory.

use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{XFRM_MODE_TRANSPORT, XFRM_STATE_AF_UNSPEC, XfrmAttrs, XfrmMessage};
use std::ops::Deref;
use zeroize::Zeroize;

/// A message to or from the kernel.
pub(super) struct ZeroizingMessage(XfrmMessage);

impl ZeroizingMessage {
    pub(super) fn new(message: XfrmMessage) -> Self {
        Self(message)
    }

    /// An association in transport mode for packets of its own family alone, which is all that kernels before 6.4 have;
    /// none if it is another message.
    pub(super) fn in_own_family(&self) -> Option<Self> {
        let (XfrmMessage::AddSa(message) | XfrmMessage::UpdateSa(message)) = &self.0 else {
            return None;
        };
        let info = &message.user_sa_info;
        let is_for_all = info.flags & XFRM_STATE_AF_UNSPEC != 0;
        (info.mode == XFRM_MODE_TRANSPORT && is_for_all).then(|| {
            let mut own = Self(self.0.clone());
            if let XfrmMessage::AddSa(message) | XfrmMessage::UpdateSa(message) = &mut own.0 {
                message.user_sa_info.flags &= !XFRM_STATE_AF_UNSPEC;
            }
            own
        })
    }

    /// Changes the association in it, if there is one.
    pub(super) fn change_sa(&mut self, change: impl FnOnce(&mut ModifyMessage)) {
        if let XfrmMessage::AddSa(message) | XfrmMessage::UpdateSa(message) = &mut self.0 {
            change(message);
        }
    }

    /// Takes over the association or policy in an answer of the kernel, as a request that restores it.
    pub(super) fn into_update(mut self) -> Self {
        let empty = XfrmMessage::FlushSa(Default::default());
        match std::mem::replace(&mut self.0, empty) {
            XfrmMessage::AddSa(message) => Self(XfrmMessage::UpdateSa(message)),
            XfrmMessage::AddPolicy(message) => Self(XfrmMessage::UpdatePolicy(message)),
            other => Self(other),
        }
    }
}

impl Deref for ZeroizingMessage {
    type Target = XfrmMessage;

    fn deref(&self) -> &XfrmMessage {
        &self.0
    }
}

impl Drop for ZeroizingMessage {
    fn drop(&mut self) {
        let (XfrmMessage::AddSa(message) | XfrmMessage::UpdateSa(message)) = &mut self.0 else {
            return;
        };
        message.nlas.iter_mut().for_each(zeroize);
    }
}

fn zeroize(attribute: &mut XfrmAttrs) {
    match attribute {
        XfrmAttrs::AuthenticationAlg(algorithm) | XfrmAttrs::EncryptionAlg(algorithm) => {
            algorithm.alg_key.zeroize();
        }
        XfrmAttrs::AuthenticationAlgTrunc(algorithm) => algorithm.alg_key.zeroize(),
        XfrmAttrs::EncryptionAlgAead(algorithm) => algorithm.alg_key.zeroize(),
        _ => {}
    }
}
