//! Which plane carries the packets of a gateway: chosen once, before anything is changed.

use super::RunOptions;
use crate::apply;
use crate::config::{ConfiguredPeer, Mode};
use crate::control::SetkeyText;
use crate::failure::Failure;
use crate::plane::{PlaneWish, Trial, find_out, try_kernel};
use ipsec::command::Command;

/// The plane, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ChosenPlane {
    pub by_kernel: bool,
    /// For `status`.
    pub reason: String,
    /// Whether a peer whose file says nothing of its mode is served by policies. A gateway that was on the kernel's
    /// plane keeps to it after a move: with another mode each such peer would be negotiated anew by the next reload.
    pub prefers_policies: bool,
}

impl ChosenPlane {
    /// The peers as this plane serves them.
    pub(super) fn serves(&self, peers: Vec<ConfiguredPeer>) -> Vec<ConfiguredPeer> {
        if self.prefers_policies {
            peers.into_iter().map(ConfiguredPeer::by_policies).collect()
        } else {
            peers
        }
    }

    /// Which of the given options do nothing on this plane.
    pub(super) fn note_on_options(&self, options: &RunOptions) -> Option<String> {
        let idle = options.of_the_user_plane();
        (self.by_kernel && !idle.is_empty()).then(|| {
            format!(
                "plane kernel: {}: without effect, unless `esplanade plane move --to user` follows",
                idle.join(", ")
            )
        })
    }
}

/// Tries the kernel if it is wanted, with the whole configuration.
pub(super) fn choose(
    options: &RunOptions,
    text: &SetkeyText,
    peers: &[ConfiguredPeer],
) -> Result<ChosenPlane, Failure> {
    let chosen = |by_kernel, reason: String| {
        Ok(ChosenPlane {
            by_kernel,
            reason,
            prefers_policies: by_kernel,
        })
    };
    if options.plane == PlaneWish::User {
        return chosen(false, "--plane user, the default".to_owned());
    }
    find_out();
    let trial = match what_needs_our_own(options) {
        Some(why) => Trial::Refuses(why),
        None => {
            let commands = apply::parse(text)?.commands;
            try_kernel(&commands, has_devices(&commands, peers))
        }
    };
    match (options.plane, trial) {
        (PlaneWish::Auto, Trial::Carries) => chosen(
            true,
            "the kernel carried a packet and all that is configured".to_owned(),
        ),
        (PlaneWish::Auto, Trial::Refuses(why) | Trial::NotPossible(why)) => {
            let reason = format!("the kernel cannot carry this: {why}");
            println!("esplanade: plane user: {reason}");
            chosen(false, reason)
        }
        (_, Trial::Refuses(why)) => Err(Failure::new(format!(
            "--plane kernel: {why}. Nothing was changed; `--plane auto` uses Esplanade's own data plane then"
        ))),
        (_, Trial::Carries) => chosen(true, "--plane kernel".to_owned()),
        (_, Trial::NotPossible(why)) => chosen(true, format!("--plane kernel, untried: {why}")),
    }
}

/// Options that the kernel's plane cannot serve.
pub(super) fn what_needs_our_own(options: &RunOptions) -> Option<String> {
    if let Some(device) = &options.forward {
        return Some(format!("--forward {device} is a way around the kernel"));
    }
    if let Some(name) = &options.outer_netns {
        return Some(format!(
            "--outer-netns {name}: the kernel seals and opens in one network namespace alone"
        ));
    }
    if let Some(name) = &options.outer_device {
        return Some(format!(
            "--outer-device {name} needs Esplanade's own data plane"
        ));
    }
    None
}

/// Whether anything has a device of its own.
fn has_devices(commands: &[Command], peers: &[ConfiguredPeer]) -> bool {
    let of_association = |command: &Command| match command {
        Command::AddSa(config) | Command::UpdateSa(config) => config.interface.is_some(),
        _ => false,
    };
    commands.iter().any(of_association) || peers.iter().any(has_a_device)
}

/// Whether a peer has a device because its file says so.
fn has_a_device(peer: &ConfiguredPeer) -> bool {
    matches!(
        peer.mode,
        Mode::Route {
            is_default: false,
            ..
        }
    )
}
