//! Whether the kernel's own IPsec can carry a configuration: it is tried in a network namespace made for it, which
//! no other program sees and which ends with the trial.
//!
//! ```text
//!   thread of its own ──► new namespace ──► an association and policies on its loopback device
//!                                             ──► a datagram that must arrive, and must have been counted by the
//!                                                 association on both ways
//!                                             ──► an XFRM interface, if the configuration needs one
//!                                             ──► every association and policy of the configuration
//! ```

use super::own_namespace::in_own_namespace;
use super::{Plane, XfrmPlane, carries, enforces, interface_id};
use crate::failure::Failure;
use crate::routes::netlink::Netlink;
use ipsec::command::{Answer, Command};
use ipsec::sa::SaConfig;
use ipsec::setkey::{Forwarding, NoNames, compile};
use rustix::net::{AddressFamily, SocketType, socket};
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long the datagram may take.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The outcome of a trial.
#[derive(Debug)]
pub(crate) enum Trial {
    /// The kernel can.
    Carries,
    /// It cannot, and why.
    Refuses(String),
    /// It cannot be tried here, and why.
    NotPossible(String),
}

/// Tries these commands, and whether there are XFRM interfaces if they are needed.
pub(crate) fn try_kernel(commands: &[Command], needs_devices: bool) -> Trial {
    if let Some(why) = first_refusal(commands) {
        return Trial::Refuses(why);
    }
    let commands: Vec<_> = commands.iter().map(as_for_the_kernel).collect();
    let tried = in_own_namespace(move || in_new_namespace(&commands, needs_devices));
    tried.unwrap_or_else(|why| Trial::NotPossible(why.to_string()))
}

/// What is refused without asking the kernel.
fn first_refusal(commands: &[Command]) -> Option<String> {
    let refusal = |command: &Command| match command {
        Command::AddSa(config) | Command::UpdateSa(config) => carries(config).err(),
        Command::AddPolicy(policy) | Command::UpdatePolicy(policy) => enforces(policy).err(),
        _ => None,
    };
    commands.iter().find_map(refusal).map(|why| why.0)
}

/// Without what the gateway does beside the kernel, and what is tried by itself.
fn as_for_the_kernel(command: &Command) -> Command {
    let bare = |config: &Arc<SaConfig>| {
        Arc::new(SaConfig {
            sequence: 0,
            keepalive: 0,
            aggfrag: None,
            cpu: None,
            offload: None,
            interface: None,
            ..(**config).clone()
        })
    };
    match command {
        Command::AddSa(config) => Command::AddSa(bare(config)),
        Command::UpdateSa(config) => Command::UpdateSa(bare(config)),
        other => other.clone(),
    }
}

fn in_new_namespace(commands: &[Command], needs_devices: bool) -> Trial {
    let mut plane = match XfrmPlane::open() {
        Ok(plane) => plane,
        Err(failure) => return Trial::Refuses(failure.to_string()),
    };
    match carry_one(&mut plane) {
        Ok(()) => {}
        Err(TrialError::Kernel(why)) => return Trial::Refuses(why),
        Err(TrialError::Host(why)) => return Trial::NotPossible(why),
    }
    if needs_devices && let Err(why) = make_a_device() {
        return Trial::Refuses(why.to_string());
    }
    match plane.apply(commands) {
        Ok(_) => Trial::Carries,
        Err(refused) => Trial::Refuses(refused.reason),
    }
}

/// It ends with the namespace.
fn make_a_device() -> io::Result<()> {
    let name = "trial";
    let made = Netlink::open()?.add_xfrm_interface(name, interface_id(name));
    made.map(drop)
}

enum TrialError {
    Kernel(String),
    Host(String),
}

/// One datagram over the loopback device, sealed and opened.
fn carry_one(plane: &mut XfrmPlane) -> Result<(), TrialError> {
    let host =
        |what: &'static str| move |error: io::Error| TrialError::Host(format!("{what}: {error}"));
    switch_on().map_err(host("the loopback device of the trial's namespace"))?;
    let commands = protect_loopback().map_err(|failure| TrialError::Host(failure.to_string()))?;
    let applied = plane.apply(&commands);
    applied.map_err(|refused| TrialError::Kernel(refused.reason))?;
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(host("a socket of the trial"))?;
    let own = socket.local_addr().map_err(host("a socket of the trial"))?;
    socket
        .set_read_timeout(Some(MAX_WAIT))
        .map_err(host("a socket of the trial"))?;
    let lost = |error: io::Error| {
        TrialError::Kernel(format!(
            "a packet of the trial did not pass through it: {error}"
        ))
    };
    socket.send_to(b"trial", own).map_err(lost)?;
    socket.recv(&mut [0; 16]).map_err(lost)?;
    let answers = plane.apply(&[
        Command::DumpSas(None),
        Command::FlushPolicies,
        Command::FlushSas(None),
    ]);
    let answers = answers.map_err(|refused| TrialError::Kernel(refused.reason))?;
    let packets = |answer: &Answer| match answer {
        Answer::Sas(list) => list.iter().map(|report| report.packets).sum(),
        _ => 0,
    };
    match answers.iter().map(packets).sum::<u64>() {
        0 => Err(TrialError::Kernel(
            "a packet of the trial passed in clear although a policy protects it".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// IPsec is off on a loopback device unless it is switched on.
fn switch_on() -> io::Result<()> {
    for family in ["ipv4", "ipv6"] {
        for setting in ["disable_xfrm", "disable_policy"] {
            let path = format!("/proc/sys/net/{family}/conf/lo/{setting}");
            match fs::write(path, "0") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                written => written?,
            }
        }
    }
    set_loopback_up()
}

fn set_loopback_up() -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: an all-zero request is valid; the kernel reads the name and the flags of it during the call alone.
    let outcome = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        libc::ioctl(
            socket.as_fd().as_raw_fd(),
            libc::SIOCSIFFLAGS,
            &raw const request,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// ESP by AES-GCM with a random key, and the policies of both ways.
fn protect_loopback() -> Result<Vec<Command>, Failure> {
    let key: String = (0..3)
        .map(|_| format!("{:016x}", crate::random::system_random()))
        .collect();
    let text = Zeroizing::new(format!(
        "add 127.0.0.1 127.0.0.1 esp 0x1001 -m transport -r 32 -o key=fresh -E aes-gcm-16 0x{};
         spdadd 127.0.0.1 127.0.0.1 udp -P out ipsec esp/transport//require;
         spdadd 127.0.0.1 127.0.0.1 udp -P in ipsec esp/transport//require;",
        &key[..40]
    ));
    let lowered = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames);
    let lowered =
        lowered.map_err(|problems| Failure::new(format!("the trial's text: {problems:?}")))?;
    Ok(lowered.commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<Command> {
        compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames)
            .unwrap()
            .commands
    }

    #[test]
    fn what_the_kernel_never_has_is_refused_by_name_without_a_trial() {
        let text = "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel -o dummy=5 -E aes-gcm-16 \
                    0x000102030405060708090a0b0c0d0e0f10111213;";
        match try_kernel(&commands(text), false) {
            Trial::Refuses(why) => assert!(why.contains("dummy"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_trials_own_text_is_valid_and_uses_no_key_twice() {
        let (one, other) = (protect_loopback().unwrap(), protect_loopback().unwrap());
        assert_eq!(one.len(), 3);
        assert_ne!(one, other);
    }
}
