//! Which user a gateway runs as, and the change to it.

use super::RunOptions;
use crate::failure::Failure;
use crate::privileges::{self, DEFAULT_USER, User};
use std::path::Path;

/// The file by which TUN devices are opened.
const TUN: &str = "/dev/net/tun";

/// The user that a gateway runs as, and whether files that root has left are given to this user.
pub(super) struct Chosen {
    pub user: User,
    pub hands_over: bool,
}

/// The user of the command line, or the user of gateways if root starts one and the host has this user, or the user of
/// this process.
pub(super) fn choose(options: &RunOptions) -> Result<Chosen, Failure> {
    let present = User::current();
    let is_root = present.uid() == 0 && !options.no_privilege_drop;
    let user = match &options.user {
        Some(word) => {
            let user =
                User::named(word).map_err(|why| Failure::new(format!("--user {word}: {why}")))?;
            if let Some(why) = obstacle(&user, options) {
                return Err(Failure::new(format!("--user {word}: {why}")));
            }
            user
        }
        None if is_root => match of_gateways(options)? {
            DefaultUser::User(user) => user,
            DefaultUser::None { why } => {
                eprintln!("esplanade: running as user {present} with reduced capabilities: {why}");
                present
            }
        },
        None => present,
    };
    Ok(Chosen {
        user,
        hands_over: is_root,
    })
}

/// The user of gateways, or why the user who starts it is kept.
enum DefaultUser {
    User(User),
    None { why: String },
}

fn of_gateways(options: &RunOptions) -> Result<DefaultUser, Failure> {
    let Some(user) = User::of_gateways()? else {
        let why = format!(
            "this host has no user `{DEFAULT_USER}` (packaging/sysusers.d creates it), and --user is not given"
        );
        return Ok(DefaultUser::None { why });
    };
    Ok(match obstacle(&user, options) {
        Some(why) => DefaultUser::None {
            why: format!("not possible as user {user}: {why}"),
        },
        None => DefaultUser::User(user),
    })
}

/// Why a gateway of this user could not work here.
fn obstacle(user: &User, options: &RunOptions) -> Option<String> {
    if *user == User::current() {
        return None;
    }
    if !user.is_known_here() {
        return Some(
            "this user namespace does not map this user and group, or does not allow changing groups"
                .to_owned(),
        );
    }
    let is_open = |path: &str| {
        Path::new(path)
            .metadata()
            .is_ok_and(|file| user.may_use(&file))
    };
    (options.forward.is_none() && Path::new(TUN).exists() && !is_open(TUN)).then(|| {
        format!(
            "no access to {TUN}: chmod 666 {TUN} (udev's default; using it still needs CAP_NET_ADMIN)"
        )
    })
}

impl Chosen {
    /// Changes the user. All sockets that are made from now on are this user's.
    pub(super) fn become_it(&self) -> Result<(), Failure> {
        if self.user.uid() == User::current().uid() && !self.hands_over {
            return Ok(());
        }
        let changed = self.user.take_over();
        changed.map_err(|error| Failure::new(privileges::why_not(&self.user, &error)))
    }

    /// The user who gets a folder that root has left.
    pub(super) fn new_owner(&self) -> Option<&User> {
        self.hands_over.then_some(&self.user)
    }
}
