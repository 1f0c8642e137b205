//! Where control groups are, and what can be made there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::version::Version;

/// A group that others can be made in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParentGroup {
    pub group: PathBuf,
    pub version: Version,
    /// Whether what is made in it has the controller `cpu`; in version two it may have to be enabled.
    pub switched_on: bool,
}

/// All of them, the best first: where nothing must be changed, and near the lab's own group, whose limits are then the
/// gateways', too. `mounts` is a process's `mountinfo`, `groups` its `cgroup`.
pub(super) fn parents(mounts: &str, groups: &str) -> Vec<ParentGroup> {
    let mut all: Vec<ParentGroup> = mounts
        .lines()
        .filter_map(mount)
        .flat_map(|mount| mount.parents(groups))
        .collect();
    all.sort_by_key(|place| !place.switched_on);
    all
}

/// A hierarchy that may have the controller, as it is mounted.
struct Mount {
    version: Version,
    root: PathBuf,
    at: PathBuf,
}

/// proc(5): number, parent, device, root, mount point and options; behind a dash kind, source and options of the file
/// system.
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3).map(unescaped);
    let (root, at) = (before.next()?.into(), before.next()?.into());
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let version = match kind {
        "cgroup" if options.split(',').any(|option| option == "cpu") => Version::One,
        "cgroup2" => Version::Two,
        _ => return None,
    };
    Some(Mount { version, root, at })
}

/// Blanks and the like are written in octal.
fn unescaped(text: &str) -> String {
    let signs = [
        (r"\040", " "),
        (r"\011", "\t"),
        (r"\012", "\n"),
        (r"\134", r"\"),
    ];
    let plain = |text: String, (written, sign): (&str, &str)| text.replace(written, sign);
    signs.into_iter().fold(text.to_owned(), plain)
}

impl Mount {
    fn parents(&self, groups: &str) -> Vec<ParentGroup> {
        let own = self.own_group(groups);
        let above = own
            .ancestors()
            .take_while(|group| group.starts_with(&self.at));
        above.filter_map(|group| self.place(group)).collect()
    }

    /// Where the lab's own group is seen in this mount; its top, where it cannot be seen.
    fn own_group(&self, groups: &str) -> PathBuf {
        let path = groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let ours = match self.version {
                Version::One => controllers.split(',').any(|name| name == "cpu"),
                Version::Two => controllers.is_empty(),
            };
            ours.then_some(path)
        });
        let inside = path.and_then(|path| Path::new(path).strip_prefix(&self.root).ok());
        // A path that nothing is added to would end with a slash.
        let below = |inside: &&Path| !inside.as_os_str().is_empty() && !inside.starts_with("..");
        match inside.filter(below) {
            Some(inside) => self.at.join(inside),
            None => self.at.clone(),
        }
    }

    /// A mount that another one hides is listed all the same, but leads to no group.
    fn place(&self, group: &Path) -> Option<ParentGroup> {
        let names = |file: &str| {
            let text = fs::read_to_string(group.join(file)).unwrap_or_default();
            text.split_whitespace().any(|name| name == "cpu")
        };
        let switched_on = match self.version {
            Version::One => true,
            Version::Two => names("cgroup.subtree_control"),
        };
        let there = group.join("cgroup.procs").exists();
        let usable = there && (switched_on || names("cgroup.controllers"));
        usable.then(|| ParentGroup {
            group: group.to_owned(),
            version: self.version,
            switched_on,
        })
    }
}

/// Switches the controller on (`+cpu`) or off (`-cpu`) for the children of a group of version two.
pub(super) fn switch(group: &Path, what: &str) -> io::Result<()> {
    fs::write(group.join("cgroup.subtree_control"), what)
}

/// The kernel keeps it where another lab needs it, and that is right.
pub(super) fn switch_off(group: &Path) {
    let _ = switch(group, "-cpu");
}

/// The controller, enabled in an existing group until this is dropped.
pub(super) struct Switch(PathBuf);

impl Switch {
    pub(super) fn on(group: &Path) -> io::Result<Switch> {
        switch(group, "+cpu").map(|()| Switch(group.to_owned()))
    }

    pub(super) fn group(&self) -> &Path {
        &self.0
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        switch_off(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder tree that looks like a hierarchy: each group with the contents of its two files, `None` in version one.
    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str, groups: &[(&str, Option<(&str, &str)>)]) -> Fake {
            let top = std::env::temp_dir().join(format!("lab-tree-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&top);
            for (path, files) in groups {
                let group = top.join(path);
                fs::create_dir_all(&group).unwrap();
                fs::write(group.join("cgroup.procs"), "").unwrap();
                if let Some((controllers, below)) = files {
                    fs::write(group.join("cgroup.controllers"), controllers).unwrap();
                    fs::write(group.join("cgroup.subtree_control"), below).unwrap();
                }
            }
            Fake(top)
        }

        fn line(&self, root: &str, kind: &str, options: &str) -> String {
            let at = self.0.display();
            format!("32 31 0:29 {root} {at} rw,relatime shared:9 - {kind} {kind} {options}\n")
        }

        fn found(&self, mounts: &str, groups: &str) -> Vec<(String, bool)> {
            let told = |place: ParentGroup| {
                let inside = place.group.strip_prefix(&self.0).unwrap();
                (inside.display().to_string(), place.switched_on)
            };
            parents(mounts, groups).into_iter().map(told).collect()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn named(names: &[(&str, bool)]) -> Vec<(String, bool)> {
        names
            .iter()
            .map(|(name, on)| ((*name).into(), *on))
            .collect()
    }

    #[test]
    fn in_version_one_groups_are_made_in_the_labs_own_group_first() {
        let fake = Fake::new("one", &[("", None), ("session/7", None)]);
        let mounts = format!(
            "23 1 0:20 / /sys rw - sysfs sysfs rw\n{}{}",
            fake.line("/", "cgroup", "rw,cpuset"),
            fake.line("/", "cgroup", "rw,cpu,cpuacct"),
        );
        let found = fake.found(&mounts, "4:memory:/other\n3:cpu,cpuacct:/session/7\n0::/\n");
        assert_eq!(found, named(&[("session/7", true), ("", true)]));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_top_of_its_mount() {
        let fake = Fake::new("container", &[("", None), ("inner", None)]);
        let mounts = fake.line("/docker/abc", "cgroup", "rw,cpu");
        let found = |own: &str| fake.found(&mounts, &format!("1:cpu:{own}\n"));
        assert_eq!(
            found("/docker/abc/inner"),
            named(&[("inner", true), ("", true)])
        );
        for stranger in ["/docker/abc", "/../elsewhere", "/docker/other"] {
            assert_eq!(found(stranger), named(&[("", true)]), "{stranger}");
        }
    }

    #[test]
    fn in_version_two_a_group_whose_children_have_the_controller_is_better_than_a_nearer_one() {
        let tree = [
            ("", Some(("cpuset cpu io", "cpu memory"))),
            ("user", Some(("cpu memory", "memory"))),
            ("user/session", Some(("memory", ""))),
        ];
        let fake = Fake::new("two", &tree);
        let found = fake.found(
            &fake.line("/", "cgroup2", "rw,nsdelegate"),
            "0::/user/session\n",
        );
        assert_eq!(found, named(&[("", true), ("user", false)]));
        let asked = || fs::read_to_string(fake.0.join("user/cgroup.subtree_control")).unwrap();
        let switch = Switch::on(&fake.0.join("user")).unwrap();
        assert_eq!(
            (asked(), switch.group()),
            ("+cpu".into(), &*fake.0.join("user"))
        );
        drop(switch);
        assert_eq!(asked(), "-cpu");
    }

    #[test]
    fn a_hierarchy_without_the_controller_and_a_hidden_mount_are_no_places() {
        let fake = Fake::new("none", &[("", Some(("", "")))]);
        assert_eq!(fake.found(&fake.line("/", "cgroup2", "rw"), "0::/\n"), []);
        let hidden = "32 31 0:29 / /nowhere/at\\040all rw - cgroup cgroup rw,cpu\n";
        assert_eq!(parents(hidden, "1:cpu:/\n"), []);
        assert_eq!(
            mount(hidden.trim()).unwrap().at,
            Path::new("/nowhere/at all")
        );
        assert_eq!(parents("no line of a table\n\n", ""), []);
    }
}
