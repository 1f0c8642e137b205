//! Where the protected packets travel: this network namespace, or another one, or one VRF.
//!
//! ```text
//!   namespace of the TUN devices                │  namespace of `--outer-netns`
//!   main thread, data plane's threads ── "open a socket" ──► one thread that lives there
//!         ▲                                     │                      │
//!         └───────── the socket, which stays where it was opened ──────┘
//! ```
//!
//! A socket belongs to the namespace of the thread that opened it. So one thread moves there at start, while it still
//! may, drops all other privileges as every thread does, and opens sockets when they are needed.

use super::RunOptions;
use crate::failure::Failure;
use crate::handover::Outer;
use crate::plane::XfrmPlane;
use crate::privileges;
use crate::routes::Site;
use crate::routes::netlink::Netlink;
use dataplane::io::{SocketOpener, Warn};
use ipsec::sa::SaId;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, move_into_link_name_space};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The network of the outer packets.
pub(super) struct OuterNetwork {
    /// Its routes and addresses.
    pub netlink: Netlink,
    /// XFRM there; absent where the kernel has none.
    xfrm: RefCell<Option<XfrmPlane>>,
    /// How sockets are opened there; absent where they are opened directly.
    pub opener: Option<SocketOpener>,
    /// The device that all outer packets go through, and its index.
    pub device: Option<(String, u32)>,
}

struct Order {
    socket: (AddressFamily, SocketType, Option<Protocol>),
    done: Sender<io::Result<OwnedFd>>,
}

impl OuterNetwork {
    /// Opens the outer network that the options name; must run before privileges are dropped.
    pub(super) fn of(options: &RunOptions, warn: &Warn) -> Result<Self, Failure> {
        let mut outside = match &options.outer_netns {
            None => Self::here().map_err(unreachable)?,
            Some(name) => Self::there(name, !options.no_privilege_drop, warn)?,
        };
        if let Some(name) = &options.outer_device {
            let index = outside.netlink.link(name).map_err(unreachable)?;
            let index = index.ok_or_else(|| {
                let place = options.outer_netns.as_deref().unwrap_or("this host");
                Failure::new(format!(
                    "--outer-device: no device `{name}` in {place}; create the VRF or device first"
                ))
            })?;
            outside.device = Some((name.clone(), index));
        }
        Ok(outside)
    }

    /// Whether it is another namespace than the gateway's own.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.opener.is_some()
    }

    /// Whether XFRM already has an association of this name there that the gateway of this site did not install: then
    /// the kernel would take its packets before the gateway receives them.
    pub(super) fn kernel_owns(&self, id: &SaId, site: &Site) -> bool {
        let mut xfrm = self.xfrm.borrow_mut();
        xfrm.as_mut()
            .is_some_and(|xfrm| xfrm.has_anothers(id, site))
    }

    fn here() -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            xfrm: RefCell::new(XfrmPlane::open().ok()),
            opener: None,
            device: None,
        })
    }

    fn there(name: &str, drop_privileges: bool, warn: &Warn) -> Result<Self, Failure> {
        let path = namespace_path(name);
        let file = File::open(&path).map_err(|error| {
            Failure::new(format!(
                "--outer-netns: cannot open {} ({error}); see `ip netns list`",
                path.display()
            ))
        })?;
        let (orders, received) = channel();
        let (sender, receiver) = channel();
        let warn = Arc::clone(warn);
        let work = move || {
            let moved = settle(&file, drop_privileges, &warn);
            let arrived = moved.is_ok();
            if sender.send(moved).is_ok() && arrived {
                open_on_request(&received);
            }
        };
        std::thread::Builder::new()
            .name("outer-netns".into())
            .spawn(work)
            .map_err(Failure::new)?;
        let (netlink, xfrm) = receiver.recv().map_err(Failure::new)?.map_err(|error| {
            Failure::new(format!(
                "--outer-netns: cannot enter {} ({error}): it must be a network namespace, and entering it needs root",
                path.display()
            ))
        })?;
        Ok(Self {
            netlink,
            xfrm: RefCell::new(xfrm),
            opener: Some(opener(orders)),
            device: None,
        })
    }
}

/// A name as in `ip netns`, or a path.
fn namespace_path(name: &str) -> PathBuf {
    if name.contains('/') {
        PathBuf::from(name)
    } else {
        Path::new("/run/netns").join(name)
    }
}

fn settle(
    file: &File,
    drop_privileges: bool,
    warn: &Warn,
) -> io::Result<(Netlink, Option<XfrmPlane>)> {
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    if drop_privileges {
        privileges::drop_to_needed(CapabilitySet::empty(), warn)?;
    }
    Ok((Netlink::open()?, XfrmPlane::open().ok()))
}

fn open_on_request(orders: &Receiver<Order>) {
    for order in orders {
        let (family, kind, protocol) = order.socket;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, kind, flags, protocol).map_err(io::Error::from);
        // The thread that requested the socket may have ended.
        let _ = order.done.send(socket);
    }
}

fn opener(orders: Sender<Order>) -> SocketOpener {
    // `Sender` is `Sync` only since Rust 1.72; the lock costs nothing here.
    let orders = Mutex::new(orders);
    let gone = || io::Error::other("the thread of the outer namespace has ended");
    Arc::new(move |family, kind, protocol| {
        let (done, answer) = channel();
        let socket = (family, kind, protocol);
        orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(Order { socket, done })
            .map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    })
}

fn unreachable(error: io::Error) -> Failure {
    Failure::new(format!("cannot reach the kernel's routing tables: {error}"))
}

/// The network that is asked for, and whose sockets they are there.
pub(super) fn requested(options: &RunOptions) -> Outer {
    Outer {
        namespace: options.outer_netns.clone(),
        device: options.outer_device.clone(),
        user: rustix::process::geteuid().as_raw(),
    }
}
