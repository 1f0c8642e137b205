//! Whether the kernel is to have an association, and whether the one that it has is the wanted one.

use super::super::association;
use super::super::direction::{SaDirection, is_direction};
use super::super::extensions::{attributes, is_extension};
use super::super::zeroizing::ZeroizingMessage;
use ipsec::sa::{Sa, SaConfig, SaId};
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{UserSaInfo, XFRM_STATE_AF_UNSPEC, XfrmAttrs, XfrmMessage};

/// The association in an answer, and its name.
pub(super) fn sa_of(answer: &ZeroizingMessage) -> Option<(SaId, &ModifyMessage)> {
    let XfrmMessage::AddSa(message) = &**answer else {
        return None;
    };
    Some((association::identity(&message.user_sa_info)?, message))
}

/// Whether the kernel need not be told of the difference: it is in what only the gateway knows.
pub(super) fn looks_alike(old: &SaConfig, new: &SaConfig) -> bool {
    let message = |config| ZeroizingMessage::new(XfrmMessage::AddSa(association::emit(config)));
    let extensions = |config: &SaConfig| (config.aggfrag, config.cpu, config.offload.clone());
    *message(old) == *message(new) && extensions(old) == extensions(new)
}

/// Whether the kernel's association has these keys, ends and mode, and this direction, whatever its counters are. An
/// earlier gateway may have added it without a direction.
pub(super) fn is_the_same(
    found: &ModifyMessage,
    config: &SaConfig,
    direction: Option<SaDirection>,
) -> bool {
    let mut wanted = ZeroizingMessage::new(XfrmMessage::AddSa(association::emit(config)));
    let kept = SaDirection::read(found);
    if let Some(direction) = direction {
        wanted.change_sa(|message| {
            message.nlas.extend(attributes(config, direction));
            if kept.is_some() {
                direction.put_into(message);
            }
        });
    }
    let is_in_way = kept.is_none() || kept == direction;
    is_in_way && sa_of(&wanted).is_some_and(|(_, wanted)| has_the_same(found, wanted))
}

fn has_the_same(found: &ModifyMessage, wanted: &ModifyMessage) -> bool {
    let (one, other) = (&found.user_sa_info, &wanted.user_sa_info);
    let is_kept = |attribute: &&XfrmAttrs| {
        is_direction(attribute)
            || is_extension(attribute)
            || matches!(
                attribute,
                XfrmAttrs::EncryptionAlg(_)
                    | XfrmAttrs::EncryptionAlgAead(_)
                    | XfrmAttrs::AuthenticationAlgTrunc(_)
                    | XfrmAttrs::CompressionAlg(_)
                    | XfrmAttrs::EncapsulationTemplate(_)
                    | XfrmAttrs::ExtraFlags(_)
                    | XfrmAttrs::TfcPadding(_)
                    | XfrmAttrs::IfId(_)
            )
    };
    let mut attributes = wanted.nlas.iter().filter(is_kept);
    // Kernels before 6.4 have it in tunnel mode alone.
    let flags = |info: &UserSaInfo| info.flags & !XFRM_STATE_AF_UNSPEC;
    (one.id, one.saddr, one.mode, one.reqid, flags(one))
        == (other.id, other.saddr, other.mode, other.reqid, flags(other))
        && attributes.all(|attribute| found.nlas.contains(attribute))
        && found.nlas.iter().filter(is_kept).count() == wanted.nlas.iter().filter(is_kept).count()
}

/// An association that sends nothing yet, or whose life is over, is not the kernel's.
pub(super) fn is_carried(sa: &Sa) -> bool {
    !sa.config.is_standby && !sa.state.is_dead()
}
