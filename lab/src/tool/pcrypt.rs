//! pcrypt is a template of the kernel's crypto layer: once `pcrypt(NAME)` exists, every user of NAME gets it, because
//! it has a higher priority than what it wraps. XFRM has no other way to select it. So it is added before a tunnel and
//! removed after it, over the crypto layer's netlink (linux/cryptouser.h).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::testbed::isolate::done;

/// What is done with the instance for one algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PcryptAction {
    /// Make it.
    Add,
    /// Take it away.
    Delete,
}

const NETLINK_CRYPTO: libc::c_int = 21;
const CRYPTO_MSG_NEWALG: u16 = 0x10;
const CRYPTO_MSG_DELALG: u16 = 0x11;
const ALGORITHM_TYPE_AEAD: u32 = 3;
const ALGORITHM_TYPE_MASK: u32 = 0xf;
/// `CRYPTO_MAX_ALG_NAME` of the header.
const NAME_BYTES: usize = 64;
/// Associations of a namespace that is gone go a little later, and hold on to the instance until then.
const NETLINK_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn act(act: PcryptAction, name: &str) -> io::Result<()> {
    match act {
        PcryptAction::Add => add(name),
        PcryptAction::Delete => delete(name),
    }
}

/// The crypto layer tests a new instance before use and returns EAGAIN until then.
fn add(name: &str) -> io::Result<()> {
    let started = Instant::now();
    loop {
        let answer = ask(CRYPTO_MSG_NEWALG, name, &format!("pcrypt({name})"));
        if instance(&std::fs::read_to_string("/proc/crypto")?, name).is_some() {
            return Ok(());
        }
        match answer {
            Err(error)
                if error.kind() != io::ErrorKind::WouldBlock
                    || started.elapsed() > NETLINK_TIMEOUT =>
            {
                return Err(error);
            }
            _ if started.elapsed() > NETLINK_TIMEOUT => {
                return Err(io::Error::other("the kernel created no instance of pcrypt"));
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn delete(name: &str) -> io::Result<()> {
    let started = Instant::now();
    while let Some(driver) = instance(&std::fs::read_to_string("/proc/crypto")?, name) {
        match ask(CRYPTO_MSG_DELALG, name, &driver) {
            Err(error) if started.elapsed() > NETLINK_TIMEOUT => return Err(error),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Ok(())
}

/// The driver's name of the instance for this algorithm, from `/proc/crypto`.
pub(crate) fn instance(table: &str, name: &str) -> Option<String> {
    let field = |entry: &str, wanted: &str| {
        entry.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            (field.trim() == wanted).then(|| value.trim().to_owned())
        })
    };
    let mut entries = table.split("\n\n");
    entries.find_map(|entry| {
        let driver = field(entry, "driver").filter(|driver| driver.starts_with("pcrypt("))?;
        (field(entry, "name")? == name).then_some(driver)
    })
}

/// One request and its answer.
fn ask(what: u16, name: &str, driver: &str) -> io::Result<()> {
    // SAFETY: socket takes numbers; the descriptor is owned from here on.
    let socket = unsafe {
        let socket = libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            NETLINK_CRYPTO,
        );
        match socket {
            -1 => return Err(io::Error::last_os_error()),
            socket => OwnedFd::from_raw_fd(socket),
        }
    };
    let message = message(what, name, driver)?;
    let mut answer = [0; 1024];
    // SAFETY: both buffers live for the calls and their sizes are correct.
    let length = unsafe {
        let sent = libc::send(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
        );
        done(if sent == -1 { -1 } else { 0 })?;
        libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            0,
        )
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    answered(&answer[..length])
}

/// A netlink header, and behind it `struct crypto_user_alg`.
fn message(what: u16, name: &str, driver: &str) -> io::Result<Vec<u8>> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut body = Vec::new();
    for text in [name, driver, ""] {
        let mut field = [0; NAME_BYTES];
        let bytes = text.as_bytes();
        // The kernel expects the terminating zero.
        let room = field[..NAME_BYTES - 1].get_mut(..bytes.len());
        let room =
            room.ok_or_else(|| io::Error::other(format!("the name `{text}` is too long")))?;
        room.copy_from_slice(bytes);
        body.extend_from_slice(&field);
    }
    let kind = if what == CRYPTO_MSG_NEWALG {
        [ALGORITHM_TYPE_AEAD, ALGORITHM_TYPE_MASK]
    } else {
        [0, 0]
    };
    for number in [kind[0], kind[1], 0, 0] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
    let mut message = Vec::new();
    message.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
    message.extend_from_slice(&what.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&body);
    Ok(message)
}

/// An acknowledgement is an error message with the number 0.
fn answered(answer: &[u8]) -> io::Result<()> {
    let number = answer.get(16..20).and_then(|bytes| bytes.try_into().ok());
    match number.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the kernel's answer is truncated")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "name         : rfc4106(gcm(aes))\ndriver       : pcrypt(rfc4106-gcm-aesni)\nmodule : pcrypt\n\n\
        name         : rfc4106(gcm(aes))\ndriver       : rfc4106-gcm-aesni\n\n\
        name         : gcm(aes)\ndriver       : generic-gcm-aesni\n";

    #[test]
    fn only_the_instance_of_the_algorithm_itself_is_found() {
        let found = instance(TABLE, "rfc4106(gcm(aes))");
        assert_eq!(found.as_deref(), Some("pcrypt(rfc4106-gcm-aesni)"));
        assert_eq!(instance(TABLE, "gcm(aes)"), None);
        assert_eq!(instance("", "gcm(aes)"), None);
    }

    #[test]
    fn a_message_is_as_long_as_the_kernel_expects_and_names_end_with_a_zero() {
        let long = message(CRYPTO_MSG_NEWALG, "a", "pcrypt(a)").unwrap();
        assert_eq!(long.len(), 16 + 3 * 64 + 4 * 4);
        assert_eq!(long[..4], (long.len() as u32).to_ne_bytes());
        assert_eq!(long[16 + 64..][..10], *b"pcrypt(a)\0");
        assert!(message(CRYPTO_MSG_NEWALG, &"a".repeat(64), "").is_err());
    }

    #[test]
    fn an_acknowledgement_is_no_error() {
        let answer = |number: i32| [&[0; 16][..], &number.to_ne_bytes()].concat();
        assert!(answered(&answer(0)).is_ok());
        let refused = answered(&answer(-libc::EPERM)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        assert!(answered(&[0; 3]).is_err());
    }
}
