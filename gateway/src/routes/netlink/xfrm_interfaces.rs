//! XFRM interfaces: devices whose packets the kernel's own IPsec seals, by the associations and policies that have the
//! device's ID; what these associations open arrives by the device.

use super::Netlink;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoXfrm, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use std::io;

/// What a device is, by its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceKind {
    /// An XFRM interface with this ID.
    Xfrm {
        /// `if_id`.
        id: u32,
    },
    /// Any other.
    Other,
}

impl Netlink {
    /// Index and kind of the device of this name, if there is one.
    pub(crate) fn device_kind(&mut self, name: &str) -> io::Result<Option<(u32, DeviceKind)>> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let answers = match self.ask(RouteNetlinkMessage::GetLink(message), 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            answers => answers?,
        };
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some((link.header.index, kind(&link))),
            _ => None,
        }))
    }

    /// Makes an XFRM interface, which is down.
    pub(crate) fn add_xfrm_interface(&mut self, name: &str, id: u32) -> io::Result<u32> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Xfrm),
                LinkInfo::Data(InfoData::Xfrm(vec![InfoXfrm::IfId(id)])),
            ]),
        ];
        let made = self.ask(
            RouteNetlinkMessage::NewLink(message),
            NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
        );
        made.map_err(|error| in_words(error, name, id))?;
        self.link(name)?
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// Sets a device's MTU, and sets it up.
    pub(crate) fn bring_up(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes = vec![LinkAttribute::Mtu(mtu)];
        self.ask(RouteNetlinkMessage::SetLink(message), NLM_F_ACK)
            .map(drop)
    }
}

fn in_words(error: io::Error, name: &str, id: u32) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => io::Error::other(format!(
            "the device {name} needs XFRM interfaces, which this kernel does not have (module xfrm_interface)"
        )),
        Some(libc::EEXIST) => io::Error::other(format!(
            "the device {name} cannot be made: another XFRM interface has its ID {id:#x}, or the name is taken; choose \
             another name"
        )),
        _ => error,
    }
}

fn kind(link: &LinkMessage) -> DeviceKind {
    let infos = link
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
    let id = infos.flatten().find_map(|info| match info {
        LinkInfo::Data(InfoData::Xfrm(data)) => data.iter().find_map(|each| match each {
            InfoXfrm::IfId(id) => Some(*id),
            _ => None,
        }),
        _ => None,
    });
    id.map_or(DeviceKind::Other, |id| DeviceKind::Xfrm { id })
}
