//! Why a device or a socket could not be opened; the text names the cause and the remedy.

use std::fmt;
use std::io;

/// Why a source or sink could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The kernel or the container has no `/dev/net/tun`.
    NoTunDevice,
    /// The process may not do this.
    NotPermitted {
        /// What it tried.
        what: String,
    },
    /// A TUN device of this name is in use, or another kind of device has the name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name is empty, longer than 15 bytes, or has a slash or white space.
    BadName {
        /// The name.
        name: String,
    },
    /// Another process owns the UDP port.
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The system refused for another reason.
    System {
        /// What was tried.
        what: String,
        /// The error of the system call.
        error: io::Error,
    },
}

impl OpenError {
    /// The error for `error` while trying `what`.
    pub(super) fn from(what: impl Into<String>, error: io::Error) -> Self {
        let what = what.into();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what },
            _ => Self::System { what, error },
        }
    }

    /// For `map_err`: adds what was tried to the system's error.
    pub(super) fn during<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> Self + '_ {
        move |error| Self::from(what, error.into())
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTunDevice => write!(
                f,
                "there is no /dev/net/tun: load the module `tun`, or give the container the device \
                 (docker run --device /dev/net/tun)"
            ),
            Self::NotPermitted { what } => {
                write!(
                    f,
                    "not permitted to {what}: run as root, or with CAP_NET_ADMIN and CAP_NET_RAW"
                )
            }
            Self::NameTaken { name } => write!(
                f,
                "the device name `{name}` is taken, by another gateway or another kind of device: stop that one or \
                 choose another name"
            ),
            Self::BadName { name } => {
                write!(
                    f,
                    "`{name}` is no device name: 1 to 15 bytes without slash, colon or white space"
                )
            }
            Self::PortTaken { port } => write!(
                f,
                "UDP port {port} is in use: stop the other IPsec daemon (`ss -lunp sport = :{port}` names it) or choose \
                 another port"
            ),
            Self::System { what, error } => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            _ => None,
        }
    }
}
