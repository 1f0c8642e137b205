//! The system calls that create a TUN device: `/dev/net/tun`, its ioctls, and those of any network interface.

use super::options::TunOptions;
use crate::io::{OpenError, virtio_header};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The most bytes of a name, with the zero byte.
const MAX_NAME_BYTES: usize = libc::IFNAMSIZ;

/// The send buffer of a queue, at least; the kernel's own default is larger.
const MIN_SEND_BUFFER_BYTES: c_int = 4 << 20;

/// Opens every queue of the device; returns its name as well.
pub(super) fn attach(options: &TunOptions) -> Result<(Vec<OwnedFd>, String), OpenError> {
    check_name(&options.name)?;
    let first = open_clone_device()?;
    let name = attach_first(&first, options)?;
    let mut queues = vec![first];
    for _ in 1..options.queues {
        let next = open_clone_device()?;
        set_interface(&next, &name, flags(options))
            .map_err(|error| attach_refused(&name, error))?;
        queues.push(next);
    }
    for queue in &queues {
        prepare(queue).map_err(OpenError::during("set up the TUN queue"))?;
    }
    Ok((queues, name))
}

fn check_name(name: &str) -> Result<(), OpenError> {
    let fits = (1..MAX_NAME_BYTES).contains(&name.len()) && name != "." && name != "..";
    let forbidden = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
    if fits && !name.contains(forbidden) {
        Ok(())
    } else {
        Err(OpenError::BadName {
            name: name.to_owned(),
        })
    }
}

fn open_clone_device() -> Result<OwnedFd, OpenError> {
    use rustix::io::Errno;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => OpenError::NoTunDevice,
        other => OpenError::from("open /dev/net/tun", other.into()),
    })
}

fn flags(options: &TunOptions) -> c_int {
    let several = if options.queues > 1 {
        libc::IFF_MULTI_QUEUE
    } else {
        0
    };
    libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several
}

/// Attaches the first queue by name. A device with one queue cannot be attached to twice; one with several could, so it
/// must be new, or persistent and not in use.
fn attach_first(queue: &OwnedFd, options: &TunOptions) -> Result<String, OpenError> {
    let (name, wanted) = (&options.name, flags(options));
    if options.queues > 1 {
        match set_interface(queue, name, wanted | libc::IFF_TUN_EXCL) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && !has_user(name) => {}
            result => return result.map_err(|error| attach_refused(name, error)),
        }
    }
    set_interface(queue, name, wanted).map_err(|error| attach_refused(name, error))
}

fn attach_refused(name: &str, error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EINVAL | libc::E2BIG) => OpenError::NameTaken {
            name: name.to_owned(),
        },
        _ => OpenError::from(format!("create the TUN device `{name}`"), error),
    }
}

fn prepare(queue: &OwnedFd) -> io::Result<()> {
    set_int(queue, libc::TUNSETVNETHDRSZ, virtio_header::LEN as c_int)?;
    let mut buffer: c_int = 0;
    // SAFETY: the request writes one int behind the pointer, which is valid for that.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETSNDBUF, &raw mut buffer) })?;
    if buffer < MIN_SEND_BUFFER_BYTES {
        set_int(queue, libc::TUNSETSNDBUF, MIN_SEND_BUFFER_BYTES)?;
    }
    Ok(())
}

/// Keeps the device when no process has it open.
pub(super) fn make_persistent(queue: &OwnedFd) -> io::Result<()> {
    // SAFETY: this request takes its argument by value.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETPERSIST, 1 as c_ulong) })
}

/// Sets the MTU and the interface up, and returns its index. Settings that are right already are not touched, so that
/// an unprivileged process can use a persistent device that was prepared for it.
pub(super) fn bring_up(name: &str, mtu: u16) -> Result<u32, OpenError> {
    let mut interface =
        Interface::named(name).map_err(OpenError::during("open a socket for device settings"))?;
    let fields = interface.ask(libc::SIOCGIFMTU, "read the MTU of the TUN device")?;
    // SAFETY: the kernel has just written the MTU into the union.
    if unsafe { fields.ifru_mtu } != c_int::from(mtu) {
        fields.ifru_mtu = mtu.into();
        interface.ask(libc::SIOCSIFMTU, "set the MTU of the TUN device")?;
    }
    let fields = interface.ask(libc::SIOCGIFFLAGS, "read the state of the TUN device")?;
    // SAFETY: the kernel has just written the flags into the union.
    let flags = unsafe { fields.ifru_flags };
    if c_int::from(flags) & libc::IFF_UP == 0 {
        fields.ifru_flags = flags | libc::IFF_UP as i16;
        interface.ask(libc::SIOCSIFFLAGS, "set the TUN device up")?;
    }
    let fields = interface.ask(libc::SIOCGIFINDEX, "find the TUN device")?;
    // SAFETY: the kernel has just written the index into the union.
    Ok(unsafe { fields.ifru_ifindex } as u32)
}

/// Keeps the kernel's own packets out of the tunnel: without an IPv6 address of the device (addr_gen_mode 1 is "none")
/// it sends no group reports and no router solicitations.
pub(super) fn disable_ipv6_autoconfiguration(name: &str) {
    for (setting, value) in [
        ("addr_gen_mode", "1"),
        ("accept_ra", "0"),
        ("autoconf", "0"),
    ] {
        // A kernel without IPv6 has no such settings; if they cannot be written, the price is a dropped packet.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{setting}"), value);
    }
}

/// Whether a process is attached to the device of this name: only then has it a carrier. The interface flags would show
/// it too, but later.
fn has_user(name: &str) -> bool {
    const GET_LINK: u32 = 0x0a;
    // struct ethtool_value: the command, and its result.
    let mut value = [GET_LINK, 0];
    let Ok(mut interface) = Interface::named(name) else {
        return false;
    };
    interface.request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    interface.ask(libc::SIOCETHTOOL, "").is_ok() && value[1] != 0
}

/// A network interface for the ioctls of any socket: by name, one field at a time.
struct Interface {
    socket: OwnedFd,
    request: libc::ifreq,
}

impl Interface {
    fn named(name: &str) -> rustix::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        let request = request_for(name);
        Ok(Self { socket, request })
    }

    fn ask(
        &mut self,
        number: c_ulong,
        what: &str,
    ) -> Result<&mut libc::__c_anonymous_ifr_ifru, OpenError> {
        interface_ioctl(&self.socket, number, &mut self.request)
            .map_err(OpenError::during(what))?;
        Ok(&mut self.request.ifr_ifru)
    }
}

/// Sets which kinds of unfinished packets the kernel passes to the queue.
pub(super) fn set_offloads(queue: &OwnedFd, offloads: u32) -> io::Result<()> {
    set_int(queue, libc::TUNSETOFFLOAD, offloads as c_int)
}

fn request_for(name: &str) -> libc::ifreq {
    // SAFETY: an ifreq is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name[..MAX_NAME_BYTES - 1]
        .iter_mut()
        .zip(name.bytes())
    {
        *to = from as libc::c_char;
    }
    request
}

/// The name of the device that the queue is attached to; none once it was deleted.
pub(super) fn attached_to(queue: &OwnedFd) -> Option<String> {
    let mut request = request_for("");
    interface_ioctl(queue, libc::TUNGETIFF as c_ulong, &mut request).ok()?;
    Some(name_in(&request))
}

fn name_in(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.iter().take_while(|&&byte| byte != 0);
    bytes.map(|&byte| char::from(byte as u8)).collect()
}

/// TUNSETIFF; returns the name that the kernel chose.
fn set_interface(queue: &OwnedFd, name: &str, flags: c_int) -> io::Result<String> {
    let mut request = request_for(name);
    request.ifr_ifru.ifru_flags = flags as i16;
    interface_ioctl(queue, libc::TUNSETIFF as c_ulong, &mut request)?;
    Ok(name_in(&request))
}

fn interface_ioctl(file: &OwnedFd, number: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all requests used here read and write one ifreq behind the pointer; where that contains a pointer, it is
    // to a structure of the size that its command needs.
    check(unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            number as libc::Ioctl,
            std::ptr::from_mut(request),
        )
    })
}

/// An ioctl of the TUN driver that takes one int: the offloads by value, the others behind a pointer.
fn set_int(queue: &OwnedFd, number: libc::Ioctl, value: c_int) -> io::Result<()> {
    if number == libc::TUNSETOFFLOAD {
        // SAFETY: this request takes its argument by value.
        return check(unsafe {
            libc::ioctl(queue.as_raw_fd(), number, c_ulong::from(value as u32))
        });
    }
    // SAFETY: the request reads one int behind the pointer.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), number, &raw const value) })
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
