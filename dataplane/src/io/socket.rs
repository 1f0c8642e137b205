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

/// Opens a socket in another network namespace than the caller's.
pub type SocketOpener =
    Arc<dyn Fn(AddressFamily, SocketType, Option<Protocol>) -> io::Result<OwnedFd> + Send + Sync>;

/// Checks a path MTU reported by the network, which can be forged: given the packet's destination, the reported MTU
/// and as much as was quoted of what follows the outer header, returns the MTU to use, if any.
pub type MtuReportCheck = Arc<dyn Fn(IpAddr, u32, &[u8]) -> Option<u32> + Send + Sync>;

/// Options of every socket of the protected side.
#[derive(Clone)]
pub struct SocketOptions {
    /// The mark of outer packets, which keeps them out of the tunnel (`SO_MARK`).
    pub mark: Option<u32>,
    /// How sockets are opened; by default in the caller's network namespace.
    pub opener: Option<SocketOpener>,
    /// The device, such as a VRF, that packets leave and arrive by; any by default.
    pub device: Option<String>,
    /// Requested size of each direction's buffer, in bytes.
    pub buffer: usize,
    /// Where learnt path MTUs are stored.
    pub paths: PmtuCache,
    /// Checks reports of path MTUs; without it every report is accepted.
    pub mtu_report_check: Option<MtuReportCheck>,
    /// Receives warnings about what could not be had as requested.
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

    /// Opens a non-blocking socket in the right namespace, bound to the device.
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

/// Bytes of a quoted packet that are read: SPI and sequence number, of ESP or AH.
const QUOTED_BYTES: usize = 12;

/// A UDP or raw socket with its options set; shared by a source and a sink.
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

    /// A socket that another process has opened and set up.
    pub fn from_file(file: OwnedFd, family: Family, options: SocketOptions) -> Self {
        Self {
            file,
            family,
            options,
        }
    }

    /// Its descriptor alone.
    pub fn into_file(self) -> OwnedFd {
        self.file
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

    /// Sets a buffer to the requested size, or as near as the limits allow.
    fn set_buffer_size(&self, force: c_int, ask: c_int, which: &str, limit: &str) {
        let wish = self.options.buffer.min(c_int::MAX as usize / 2) as c_int;
        if self.set(libc::SOL_SOCKET, force, wish).is_err() {
            let _ = self.set(libc::SOL_SOCKET, ask, wish);
        }
        // The kernel doubles the size for its own overhead, and reports the doubled figure.
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
    /// Either way the kernel's own PMTU exceptions are not used, because the kernel accepts every ICMP message: the
    /// PMTUs used here are in [`PmtuCache`]. Without the bit only IPv6 needs the kernel's, because no router fragments
    /// IPv6.
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

    /// Empties the error queue. A smaller MTU that the kernel itself reports, or that passes the check, is put into the
    /// PMTU cache; other reports are ignored, because they can be forged. Returns whether the kernel itself
    /// reported one.
    pub fn drain_errors(&self) -> bool {
        let (mut address, mut control) = (SocketAddress::default(), ControlBuffer::default());
        let (mut quoted, mut reported_here) = ([0; QUOTED_BYTES], false);
        while let Ok(len) = self.next_error(&mut address, &mut control, &mut quoted) {
            let reported = control.parsed().find_map(|note| match note {
                ControlMessage::MtuReport { mtu, local } => Some((mtu, local)),
                _ => None,
            });
            let (Some((mtu, local)), Some((peer, _))) = (reported, address.read()) else {
                continue;
            };
            reported_here |= local;
            let accepted = match &self.options.mtu_report_check {
                Some(check) if !local => check(peer, mtu, &quoted[..len]),
                _ => Some(mtu),
            };
            if let Some(mtu) = accepted {
                self.options.paths.learn(peer, mtu);
            }
        }
        reported_here
    }

    /// Takes one report off the error queue: the destination of the packet that it is about, the report, and how many
    /// bytes of the packet it quotes.
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
        // SAFETY: the header's pointers are to memory that outlives the call and has the lengths in the header.
        let result =
            unsafe { libc::recvmsg(self.file.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        control.set_len(header.msg_controllen as usize);
        Ok(result as usize)
    }

    /// Asks the kernel for the path's current MTU and puts it into the PMTU cache: for a packet that was refused
    /// without a report of the MTU.
    pub fn learn_mtu(&self, source: IpAddr, destination: IpAddr) -> Option<u32> {
        let mtu = self.ask_mtu(source, destination).ok()?;
        self.options.paths.learn(destination, mtu);
        Some(mtu)
    }

    /// Only a connected socket has an MTU to read; this one sends nothing.
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
