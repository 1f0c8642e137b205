//! The user that a gateway runs as: a user of its own, who owns nothing else on the host and runs no other program.
//!
//! ```text
//!   started by root       user `esplanade` if the host has one, or that of --user; from before its first socket on
//!   started by others     that user (a unit with `User=` and `AmbientCapabilities=`)
//! ```
//!
//! The drop rules recognise the gateway's packets by the user of their socket (`meta skuid`), which the kernel records
//! when the socket is made. So the change comes before all sockets but the control socket's. Capabilities stay until
//! [`super::drop_to_needed`], because a start still reads and makes things that only root may.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group`: system users are listed there, and reading them needs no
//! other process.

use crate::failure::Failure;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities, set_keep_capabilities};
use std::ffi::c_int;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// The user that the packages create for gateways.
pub(crate) const DEFAULT: &str = "esplanade";

/// The environment variable that names another one.
const ENVIRONMENT: &str = "ESPLANADE_USER";

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// A user and the one group that goes with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct User {
    name: Option<String>,
    uid: u32,
    gid: u32,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.uid),
            None => write!(f, "{}", self.uid),
        }
    }
}

impl User {
    /// The user of this process.
    pub(crate) fn current() -> Self {
        let uid = geteuid().as_raw();
        let known = User::in_table(&read(USERS), &uid.to_string());
        Self {
            name: known.and_then(|known| known.name),
            uid,
            gid: getegid().as_raw(),
        }
    }

    /// `NAME`, `UID`, or either with `:GROUP`.
    pub(crate) fn named(word: &str) -> Result<Self, Failure> {
        Self::find(word, &read(USERS), &read(GROUPS))
    }

    /// The user of gateways if the command line names none; `None` if the host has no such user.
    pub(crate) fn of_gateways() -> Result<Option<Self>, Failure> {
        match std::env::var(ENVIRONMENT) {
            Ok(word) => match Self::named(&word) {
                Ok(user) => Ok(Some(user)),
                Err(why) => Err(Failure::new(format!("${ENVIRONMENT}: {why}"))),
            },
            Err(_) => Ok(Self::in_table(&read(USERS), DEFAULT)),
        }
    }

    /// Whether files of this user are trusted like the gateway's own: root's, our own, and those of the gateways' user.
    pub(crate) fn is_trusted(uid: u32) -> bool {
        uid == 0 || uid == geteuid().as_raw() || Self::number_of_gateways() == Some(uid)
    }

    /// The user ID alone: a client of a gateway does not need the group.
    fn number_of_gateways() -> Option<u32> {
        let word = std::env::var(ENVIRONMENT).unwrap_or_else(|_| DEFAULT.to_owned());
        let word = word.split(':').next()?;
        let known = Self::in_table(&read(USERS), word).map(|user| user.uid);
        known.or_else(|| word.parse().ok())
    }

    /// Its number.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Its group's number.
    pub(crate) fn gid(&self) -> u32 {
        self.gid
    }

    /// Whether this user namespace maps the user and its group, and allows groups to be changed.
    pub(crate) fn is_known_here(&self) -> bool {
        let holds = |map: &str, id: u32| {
            read(map).lines().any(|line| {
                let mut numbers = line.split_whitespace().map(str::parse::<u32>);
                match (numbers.next(), numbers.nth(1)) {
                    (Some(Ok(first)), Some(Ok(count))) => {
                        (first..first.saturating_add(count)).contains(&id)
                    }
                    _ => false,
                }
            })
        };
        holds("/proc/self/uid_map", self.uid)
            && holds("/proc/self/gid_map", self.gid)
            && read("/proc/self/setgroups").trim() != "deny"
    }

    fn find(word: &str, users: &str, groups: &str) -> Result<Self, Failure> {
        let (user, group) = match word.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (word, None),
        };
        let gid = group.map(|group| group_number(group, groups)).transpose()?;
        match (Self::in_table(users, user), user.parse::<u32>(), gid) {
            (Some(known), _, gid) => Ok(Self {
                gid: gid.unwrap_or(known.gid),
                ..known
            }),
            (None, Ok(uid), Some(gid)) if uid != u32::MAX => Ok(Self {
                name: None,
                uid,
                gid,
            }),
            (None, Ok(uid), None) => Err(Failure::new(format!(
                "{USERS} has no user {uid}, so its group is unknown: use {uid}:GROUP"
            ))),
            (None, ..) => Err(Failure::new(format!(
                "{USERS} has no user `{user}`: create it with `systemd-sysusers` (packaging/sysusers.d) or `useradd \
                 --system --user-group {DEFAULT}`"
            ))),
        }
    }

    fn in_table(users: &str, word: &str) -> Option<Self> {
        let of_line = |line: &str| {
            let fields: Vec<_> = line.split(':').collect();
            let [name, _, uid, gid, ..] = fields[..] else {
                return None;
            };
            Some(Self {
                name: Some(name.to_owned()),
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
            })
        };
        let all = || users.lines().filter_map(of_line);
        let by_name = all().find(|user| user.name.as_deref() == Some(word));
        by_name.or_else(|| {
            let number: u32 = word.parse().ok()?;
            all().find(|user| user.uid == number)
        })
    }

    /// Changes this process, with all its threads, to this user. It keeps its capabilities.
    ///
    /// A process that is this user already keeps its groups where the system does not allow changing them: root of a
    /// user namespace that an ordinary user made (user_namespaces(7)), or root without CAP_SETGID.
    pub(crate) fn take_over(&self) -> io::Result<()> {
        let present = Self::current();
        let is_another = (self.uid, self.gid) != (present.uid, present.gid);
        let held = capabilities(None)?;
        set_keep_capabilities(true)?;
        // The C library's calls change every thread of the process; the system's own ones only the caller.
        // SAFETY: the calls take numbers alone, and a list of no groups.
        unsafe {
            let without_groups = check(libc::setgroups(0, std::ptr::null()));
            if is_another {
                without_groups?;
            }
            check(libc::setresgid(self.gid, self.gid, self.gid))?;
            check(libc::setresuid(self.uid, self.uid, self.uid))?;
        }
        set_keep_capabilities(false)?;
        set_capabilities(
            None,
            CapabilitySets {
                effective: held.effective,
                permitted: held.permitted,
                inheritable: held.inheritable,
            },
        )?;
        // The change of user may have made the process dumpable again, depending on the system's settings.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        Ok(())
    }

    /// Whether its file modes let this user read and write a file, without any capability.
    pub(crate) fn may_use(&self, file: &Metadata) -> bool {
        let shift = if file.uid() == self.uid {
            6
        } else if file.gid() == self.gid {
            3
        } else {
            0
        };
        self.uid == 0 || file.mode() >> shift & 0o6 == 0o6
    }
}

fn read(table: &str) -> String {
    // A host without the file has no names.
    fs::read_to_string(table).unwrap_or_default()
}

fn group_number(word: &str, groups: &str) -> Result<u32, Failure> {
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(word);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    match named.or_else(|| word.parse().ok()) {
        Some(number) if number != u32::MAX => Ok(number),
        _ => Err(Failure::new(format!("{GROUPS} has no group `{word}`"))),
    }
}

fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why a process cannot become another user.
pub(crate) fn refusal(user: &User, error: &io::Error) -> String {
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => {
            "only root may change to another user; start it as root, or as that user"
        }
        Some(Errno::INVAL) => "this user namespace has no such user or group",
        _ => "see `man 7 credentials`",
    };
    format!("cannot become user {user}: {error}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN_USERS: &str = "root:x:0:0:root:/root:/bin/sh\nnot a line\n\
        esplanade:x:998:997::/:/usr/sbin/nologin\n1234:x:50:51::/:/bin/sh\n";
    const KNOWN_GROUPS: &str = "root:x:0:\nesplanade:x:997:\nkeys:x:600:esplanade\n";

    fn found(word: &str) -> Result<(u32, u32), Failure> {
        User::find(word, KNOWN_USERS, KNOWN_GROUPS).map(|user| (user.uid, user.gid))
    }

    #[test]
    fn a_user_is_named_by_name_or_number_with_a_group_or_its_own() {
        for (word, ids) in [
            ("esplanade", (998, 997)),
            ("998", (998, 997)),
            ("esplanade:keys", (998, 600)),
            ("998:601", (998, 601)),
            ("4711:keys", (4711, 600)),
            ("root", (0, 0)),
            // Names take precedence over numbers, as in other programs.
            ("1234", (50, 51)),
        ] {
            assert_eq!(found(word), Ok(ids), "{word}");
        }
    }

    #[test]
    fn what_names_no_user_is_refused_with_the_remedy() {
        for (word, words) in [
            ("nobody-here", "systemd-sysusers"),
            ("4711", "use 4711:GROUP"),
            ("esplanade:nothing", "no group `nothing`"),
            ("4294967295:0", "no user"),
            ("", "no user"),
        ] {
            let why = found(word).unwrap_err().to_string();
            assert!(why.contains(words), "{word}: {why}");
        }
    }

    #[test]
    fn file_modes_are_judged_as_the_kernel_does() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("esplanade-user-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        let found = fs::metadata(&path).unwrap();
        let user = |uid, gid| User {
            name: None,
            uid,
            gid,
        };
        let (owner, other) = (found.uid(), found.uid() + 1);
        let may = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let file = fs::metadata(&path).unwrap();
            [
                owner == 0 || user(owner, found.gid()).may_use(&file),
                user(other, found.gid()).may_use(&file),
                user(other, found.gid() + 1).may_use(&file),
            ]
        };
        assert_eq!(may(0o600), [true, false, false]);
        assert_eq!(may(0o660), [true, true, false]);
        assert_eq!(may(0o606), [true, false, true]);
        assert_eq!(may(0o666), [true, true, true]);
        assert_eq!(may(0o644), [true, false, false]);
        fs::remove_file(path).unwrap();
    }
}
