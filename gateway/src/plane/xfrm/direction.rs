//! Which way packets pass through an association. Linux 6.10 and later keep it (XFRMA_SA_DIR): then an outbound
//! association never opens a packet, and an inbound one never seals one. Without it the kernel takes both from either.

use ipsec::sa::SaConfig;
use netlink_packet_core::{DefaultNla, Nla};
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{
    Replay, ReplayEsn, XFRM_SA_XFLAG_DONT_ENCAP_DSCP, XFRM_STATE_ESN, XFRM_STATE_NOPMTUDISC,
    XfrmAttrs,
};
use std::net::IpAddr;

/// XFRMA_SA_DIR of `linux/xfrm.h`.
const ATTRIBUTE: u16 = 33;

/// The direction of one association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SaDirection {
    /// This host opens what arrives.
    Inbound,
    /// This host seals what leaves.
    Outbound,
}

impl SaDirection {
    /// By the addresses of this host. None where both ends are here, so that one association serves both directions, or
    /// neither is: an address that comes later decides then.
    pub(super) fn of(config: &SaConfig, local: &[IpAddr]) -> Option<Self> {
        match (
            local.contains(&config.source),
            local.contains(&config.id.destination),
        ) {
            (true, false) => Some(Self::Outbound),
            (false, true) => Some(Self::Inbound),
            _ => None,
        }
    }

    /// The direction that the kernel keeps of an association, if any.
    pub(super) fn read(message: &ModifyMessage) -> Option<Self> {
        let both = [Self::Inbound, Self::Outbound];
        both.into_iter()
            .find(|direction| message.nlas.contains(&direction.attribute()))
    }

    /// Puts the direction into the message that adds an association, and takes out what belongs to the other one: the
    /// kernel refuses it beside the direction.
    pub(super) fn put_into(self, message: &mut ModifyMessage) {
        let info = &mut message.user_sa_info;
        match self {
            Self::Outbound => info.replay_window = 0,
            Self::Inbound => {
                info.flags &= !XFRM_STATE_NOPMTUDISC;
                message.nlas.retain(|attribute| {
                    !matches!(
                        attribute,
                        XfrmAttrs::ExtraFlags(XFRM_SA_XFLAG_DONT_ENCAP_DSCP)
                    )
                });
            }
        }
        let is_extended = info.flags & XFRM_STATE_ESN != 0;
        for attribute in &mut message.nlas {
            match self {
                Self::Outbound => without_window(attribute, is_extended),
                Self::Inbound => without_sent(attribute),
            }
        }
        message.nlas.push(self.attribute());
    }

    fn attribute(self) -> XfrmAttrs {
        let value = match self {
            Self::Inbound => 1,
            Self::Outbound => 2,
        };
        XfrmAttrs::Other(DefaultNla::new(ATTRIBUTE, vec![value]))
    }
}

/// Of the numbers the last one sent alone. Without extended numbers 32 bits hold it.
fn without_window(attribute: &mut XfrmAttrs, is_extended: bool) {
    match attribute {
        XfrmAttrs::ReplayState(state) => (state.seq, state.bitmap) = (0, 0),
        XfrmAttrs::ReplayStateEsn(state) if is_extended => {
            *state = ReplayEsn {
                oseq: state.oseq,
                oseq_hi: state.oseq_hi,
                ..ReplayEsn::default()
            };
        }
        XfrmAttrs::ReplayStateEsn(state) => {
            *attribute = XfrmAttrs::ReplayState(Replay {
                oseq: state.oseq,
                ..Replay::default()
            });
        }
        _ => {}
    }
}

fn without_sent(attribute: &mut XfrmAttrs) {
    match attribute {
        XfrmAttrs::ReplayState(state) => state.oseq = 0,
        XfrmAttrs::ReplayStateEsn(state) => (state.oseq, state.oseq_hi) = (0, 0),
        _ => {}
    }
}

/// Whether an attribute is the direction.
pub(super) fn is_direction(attribute: &XfrmAttrs) -> bool {
    matches!(attribute, XfrmAttrs::Other(other) if other.kind() == ATTRIBUTE)
}

#[cfg(test)]
mod tests {
    use super::super::association::emit;
    use super::*;
    use ipsec::command::Command;
    use ipsec::setkey::{Forwarding, NoNames, compile};

    const LEFT: [u8; 4] = [192, 0, 2, 1];
    const RIGHT: [u8; 4] = [192, 0, 2, 2];

    fn emitted(options: &str) -> ModifyMessage {
        let text = format!(
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel {options} \
             -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;"
        );
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames).unwrap();
        match &commands.commands[..] {
            [Command::AddSa(config)] => emit(config),
            other => panic!("{other:?}"),
        }
    }

    fn in_direction(options: &str, direction: SaDirection) -> ModifyMessage {
        let mut message = emitted(options);
        for attribute in &mut message.nlas {
            if let XfrmAttrs::ReplayStateEsn(state) = attribute {
                (state.oseq, state.seq) = (7, 9);
            }
        }
        direction.put_into(&mut message);
        message
    }

    fn numbers(message: &ModifyMessage) -> Vec<&XfrmAttrs> {
        let is_numbers = |attribute: &&XfrmAttrs| {
            matches!(
                attribute,
                XfrmAttrs::ReplayState(_) | XfrmAttrs::ReplayStateEsn(_)
            )
        };
        message.nlas.iter().filter(is_numbers).collect()
    }

    #[test]
    fn an_outbound_association_has_its_last_number_and_no_window() {
        let message = in_direction("-r 64", SaDirection::Outbound);
        let sent = Replay {
            oseq: 7,
            ..Replay::default()
        };
        assert_eq!(numbers(&message), [&XfrmAttrs::ReplayState(sent)]);
        let message = in_direction("-r 32", SaDirection::Outbound);
        assert_eq!(message.user_sa_info.replay_window, 0);
        let message = in_direction("-r 64 -o esn", SaDirection::Outbound);
        let sent = ReplayEsn {
            oseq: 7,
            ..ReplayEsn::default()
        };
        assert_eq!(numbers(&message), [&XfrmAttrs::ReplayStateEsn(sent)]);
    }

    #[test]
    fn an_inbound_association_has_its_window_and_no_rules_for_outer_headers() {
        let message = in_direction("-r 64 -o df=clear -o dscp=0", SaDirection::Inbound);
        assert_eq!(message.user_sa_info.flags & XFRM_STATE_NOPMTUDISC, 0);
        let is_rule = |attribute: &XfrmAttrs| matches!(attribute, XfrmAttrs::ExtraFlags(_));
        assert!(!message.nlas.iter().any(is_rule));
        let [XfrmAttrs::ReplayStateEsn(state)] = numbers(&message)[..] else {
            panic!("no window");
        };
        assert_eq!((state.oseq, state.seq, state.replay_window), (0, 9, 64));
    }

    #[test]
    fn the_direction_is_read_back() {
        assert_eq!(SaDirection::read(&emitted("")), None);
        for direction in [SaDirection::Inbound, SaDirection::Outbound] {
            let message = in_direction("-r 64", direction);
            assert_eq!(SaDirection::read(&message), Some(direction));
            assert!(message.nlas.iter().any(is_direction));
        }
    }

    #[test]
    fn an_association_whose_ends_are_both_here_or_both_elsewhere_has_no_direction() {
        let text = "add 192.0.2.1 192.0.2.2 ah 0x1001 -m tunnel -A hmac-sha1 \
                    0x000102030405060708090a0b0c0d0e0f10111213;";
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames).unwrap();
        let [Command::AddSa(config)] = &commands.commands[..] else {
            panic!("{:?}", commands.commands);
        };
        let of = |local: &[[u8; 4]]| {
            let local: Vec<_> = local.iter().map(|address| IpAddr::from(*address)).collect();
            SaDirection::of(config, &local)
        };
        assert_eq!(of(&[LEFT]), Some(SaDirection::Outbound));
        assert_eq!(of(&[RIGHT]), Some(SaDirection::Inbound));
        assert_eq!(of(&[LEFT, RIGHT]), None);
        assert_eq!(of(&[]), None);
    }
}
