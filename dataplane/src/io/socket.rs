//! What UDP and raw sockets have in common: opening, options, and the error queue.

use super::ancillary::{ControlBuffer, ControlMessage, SocketAddress};
use super::pmtu_cache::PmtuCache;
use super::socket_option::{bind_to_device, get_option, set_option};
use super::{Family, OpenError, Warn, xfrm_bypass};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Opens a socket where it belongs when that is not where the caller is: in another network namespace.
pub type SocketOpener =
    Arc<dyn Fn(AddressFamily, SocketType, Option<Protocol>) -> io::Result<OwnedFd> + Send + Sync>;

/// The path MTU to believe in when a message from the network, which anybody could have forged, says that a packet was
/// too big: given its destination, the claim, and as much as was quoted of what follows the outer header.
pub type MtuReportCheck = Arc<dyn Fn(IpAddr, u32, &[u8]) -> Option<u32> + Send + Sync>;

/// What every socket of the protected side needs to know.
#[derive(Clone)]
pub struct SocketOptions {
    /// The mark of our own packets, which keeps them out of our own tunnel (`SO_MARK`).
    pub mark: Option<u32>,
    /// How sockets are opened; as ever without.
    pub opener: Option<SocketOpener>,
    /// The device, such as a VRF, that packets leave and arrive by; any without.
    pub device: Option<String>,
    /// Wished size of each direction's buffer, in bytes.
    pub buffer: usize,
    /// Where learnt path MTUs go.
    pub paths: PmtuCache,
    /// Judges what the network says about path MTUs; without it everything is believed.
    pub mtu_report_check: Option<MtuReportCheck>,
    /// Told what falls short of what was asked for.
    pub warn: Warn,
}

impl SocketOptions {
    /// No mark, 4 MB of buffer.
    pub fn new(paths: PmtuCache, warn: Warn) -> Self {
        Self {
            mark: None,
            opener: None,
            device: None,
            buffer: 4 << 20,
            paths,
            mtu_report_check: None,
            warn,
        }
    }

    /// Opens a socket that does not block, in the right place and bound to the right device.
    pub fn open(
        &self,
        family: AddressFamily,
        kind: SocketType,
        protocol: Option<Protocol>,
    ) -> io::Result<OwnedFd> {
        let file = match &self.opener {
            Some(opener) => opener(family, kind, protocol)?,
            None => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                socket_with(family, kind, flags, protocol)?
            }
        };
        if let Some(device) = &self.device {
            bind_to_device(file.as_fd(), device)?;
        }
        Ok(file)
    }
}

/// Bytes of a quoted packet that are looked at: SPI and sequence number, of ESP or AH.
const QUOTED_BYTES: usize = 12;

/// A socket of either kind, its options set; shared by a source and a sink.
pub(super) struct Socket {
    file: OwnedFd,
    pub family: Family,
    pub options: SocketOptions,
}

impl Socket {
    /// Opens a socket that reports addresses, traffic class, hop limit and errors of each packet.
    pub fn open(
        family: Family,
        kind: SocketType,
        protocol: Option<Protocol>,
        options: &SocketOptions,
    ) -> Result<Self, OpenError> {
        let domain = if family == Family::V4 {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let file = options
            .open(domain, kind, protocol)
            .map_err(OpenError::during("open a socket for ESP packets"))?;
        let socket = Self {
            file,
            family,
            options: options.clone(),
        };
        socket.set_up()?;
        Ok(socket)
    }

    fn set_up(&self) -> Result<(), OpenError> {
        let (level, names) = match self.family {
            Family::V4 => (
                libc::IPPROTO_IP,
                [
                    libc::IP_PKTINFO,
                    libc::IP_RECVTOS,
                    libc::IP_RECVTTL,
                    libc::IP_RECVERR,
                ],
            ),
            Family::V6 => (
                libc::IPPROTO_IPV6,
                [
                    libc::IPV6_RECVPKTINFO,
                    libc::IPV6_RECVTCLASS,
                    libc::IPV6_RECVHOPLIMIT,
                    libc::IPV6_RECVERR,
                ],
            ),
        };
        for name in names {
            self.set(level, name, 1)
                .map_err(OpenError::during("set socket options"))?;
        }
        if let Some(mark) = self.options.mark {
            self.set(libc::SOL_SOCKET, libc::SO_MARK, mark as c_int)
                .map_err(OpenError::during("mark packets"))?;
            xfrm_bypass::bypass_xfrm_policies(self.file.as_fd(), self.family)
                .map_err(OpenError::during("pass the kernel's own IPsec policies"))?;
        }
        self.set_buffer_size(
            libc::SO_RCVBUFFORCE,
            libc::SO_RCVBUF,
            "receive",
            "net.core.rmem_max",
        );
        self.set_buffer_size(
            libc::SO_SNDBUFFORCE,
            libc::SO_SNDBUF,
            "send",
            "net.core.wmem_max",
        );
        Ok(())
    }

    /// As much buffer as was wished, or as much as there is.
    fn set_buffer_size(&self, force: c_int, ask: c_int, which: &str, limit: &str) {
        let wish = self.options.buffer.min(c_int::MAX as usize / 2) as c_int;
        if self.set(libc::SOL_SOCKET, force, wish).is_err() {
            let _ = self.set(libc::SOL_SOCKET, ask, wish);
        }
        // The kernel doubles what is asked for, to pay for its own overhead, and reports the doubled figure.
        let has = self.get(libc::SOL_SOCKET, ask).unwrap_or(0) / 2;
        if has < wish {
            (self.options.warn)(&format!(
                "the {which} buffer of a socket has only {has} of {wish} bytes: raise {limit} (bursts may be dropped)"
            ));
        }
    }

    /// Sets an option that is an int.
    pub fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        set_option(self.file.as_fd(), level, name, value)
    }

    /// Reads an option that is an int.
    pub fn get(&self, level: c_int, name: c_int) -> io::Result<c_int> {
        get_option(self.file.as_fd(), level, name)
    }

    /// Whether packets are sent with the don't-fragment bit (and refused above the device's MTU), or in fragments.
    ///
    /// Either way the kernel's own memory of path MTUs stays out of it, because it believes every ICMP message: what is
    /// believed here is in [`PmtuCache`]. Without the bit only IPv6 needs that memory, for no router fragments for it.
    pub fn set_dont_fragment(&self, on: bool) -> io::Result<()> {
        match self.family {
            Family::V4 => self.set(
                libc::IPPROTO_IP,
                libc::IP_MTU_DISCOVER,
                if on {
                    libc::IP_PMTUDISC_PROBE
                } else {
                    libc::IP_PMTUDISC_OMIT
                },
            ),
            Family::V6 => self.set(
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                if on {
                    libc::IPV6_PMTUDISC_PROBE
                } else {
                    libc::IPV6_PMTUDISC_DONT
                },
            ),
        }
    }

    /// Empties the error queue: a smaller MTU that the kernel itself reports, or a router plausibly, goes to the learnt
    /// paths. Any other report is only a hint that anybody could have forged, and is let go. Whether the kernel told one.
    pub fn drain_errors(&self) -> bool {
        let (mut address, mut control) = (SocketAddress::default(), ControlBuffer::default());
        let (mut quoted, mut told_here) = ([0; QUOTED_BYTES], false);
        while let Ok(len) = self.next_error(&mut address, &mut control, &mut quoted) {
            let told = control.parsed().find_map(|note| match note {
                ControlMessage::MtuReport { mtu, local } => Some((mtu, local)),
                _ => None,
            });
            let (Some((mtu, local)), Some((peer, _))) = (told, address.read()) else {
                continue;
            };
            told_here |= local;
            let believed = match &self.options.mtu_report_check {
                Some(check) if !local => check(peer, mtu, &quoted[..len]),
                _ => Some(mtu),
            };
            if let Some(mtu) = believed {
                self.options.paths.learn(peer, mtu);
            }
        }
        told_here
    }

    /// TrainKinds one report off the error queue: the destination of the packet it is about, what it says, and how many bytes
    /// of the packet it quotes.
    fn next_error(
        &self,
        address: &mut SocketAddress,
        control: &mut ControlBuffer,
        quoted: &mut [u8; QUOTED_BYTES],
    ) -> io::Result<usize> {
        let mut room = libc::iovec {
            iov_base: quoted.as_mut_ptr().cast(),
            iov_len: QUOTED_BYTES,
        };
        // SAFETY: a msghdr is plain data for which all zeroes is a value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&raw mut room, 1);
        header.msg_name = address.as_mut_ptr().cast();
        header.msg_namelen = SocketAddress::BYTES as u32;
        (header.msg_control, header.msg_controllen) =
            (control.as_mut_ptr().cast(), ControlBuffer::BYTES as _);
        // SAFETY: the header's pointers are to room that outlives the call, of the lengths it says.
        let result =
            unsafe { libc::recvmsg(self.file.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        control.set_len(header.msg_controllen as usize);
        Ok(result as usize)
    }

    /// Asks the kernel for the path's MTU as it knows it now, and learns it. For a packet that was refused without a
    /// word about the size that would have passed.
    pub fn learn_mtu(&self, source: IpAddr, destination: IpAddr) -> Option<u32> {
        let mtu = self.ask_mtu(source, destination).ok()?;
        self.options.paths.learn(destination, mtu);
        Some(mtu)
    }

    /// Only a connected socket has an MTU to read: this one sends nothing.
    fn ask_mtu(&self, source: IpAddr, destination: IpAddr) -> io::Result<u32> {
        let domain = if self.family == Family::V4 {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let probe = self.options.open(domain, SocketType::DGRAM, None)?;
        if let Some(mark) = self.options.mark {
            set_option(
                probe.as_fd(),
                libc::SOL_SOCKET,
                libc::SO_MARK,
                mark as c_int,
            )?;
            xfrm_bypass::bypass_xfrm_policies(probe.as_fd(), self.family)?;
        }
        if !source.is_unspecified() {
            rustix::net::bind(&probe, &std::net::SocketAddr::new(source, 0))?;
        }
        rustix::net::connect(&probe, &std::net::SocketAddr::new(destination, 9))?;
        let (level, name) = match self.family {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        Ok(get_option(probe.as_fd(), level, name)? as u32)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
