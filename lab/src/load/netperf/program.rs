//! Which netperf a host has, and what it can do.

use std::time::Duration;

use crate::absence::Absence;
use crate::host::{Command, Host};

/// netperf or netserver on a host.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Program {
    name: &'static str,
    version: String,
    /// Whether it reports intermediate results: a build option.
    pub has_intervals: bool,
}

/// Since this version all tests print the selected outputs, and the server can stay in the foreground.
const OLDEST_VERSION: (u32, u32) = (2, 6);
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);
const REMEDY: &str = "Fix: apt-get install netperf (Debian has it in its component non-free), \
                      or build it from https://github.com/HewlettPackard/netperf";

impl Program {
    /// Asks the program of this name.
    pub(super) fn of(host: &dyn Host, name: &'static str) -> Result<Program, Absence> {
        if !host.has(name).unwrap_or(false) {
            return Err(Absence::new(format!("{name} is not installed"), REMEDY));
        }
        // Options take effect in order: netperf first complains of `-D` if it was built without, then prints its
        // version. For netserver `-D` means something else.
        let ask = match name {
            "netperf" => Command::line("netperf -D 1 -V"),
            _ => Command::line(name).arg("-V"),
        };
        let told = host.must(&ask, VERSION_TIMEOUT).unwrap_or_default();
        let program = Program::read(name, &told)
            .ok_or_else(|| Absence::new(format!("`{ask}` does not print its version"), REMEDY))?;
        program.check_version()
    }

    fn read(name: &'static str, told: &str) -> Option<Program> {
        let mut lines = told.lines();
        let version = lines.find_map(|line| line.trim().strip_prefix("Netperf version "))?;
        Some(Program {
            name,
            version: version.trim().to_owned(),
            has_intervals: !told.contains("Demo Mode not configured"),
        })
    }

    fn check_version(self) -> Result<Program, Absence> {
        match self.number() {
            Some(number) if number >= OLDEST_VERSION => Ok(self),
            _ => Err(Absence::new(
                format!("{} {} is too old or unknown", self.name, self.version),
                format!(
                    "Versions from {}.{} on are supported. {REMEDY}",
                    OLDEST_VERSION.0, OLDEST_VERSION.1
                ),
            )),
        }
    }

    fn number(&self) -> Option<(u32, u32)> {
        let mut parts = self.version.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    }

    /// Their protocol has no version and changes between releases.
    pub(super) fn check_compatible(&self, far: &Program) -> Result<(), Absence> {
        if self.version == far.version {
            Ok(())
        } else {
            Err(Absence::new(
                format!(
                    "{} {} and {} {} may be incompatible",
                    self.name, self.version, far.name, far.version
                ),
                "Install the same version on both end hosts",
            ))
        }
    }

    /// For the record.
    pub(super) fn tool(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_features_are_read_from_its_output() {
        let plain = Program::read("netperf", include_str!("outputs/version-2.7.0.txt")).unwrap();
        assert_eq!(plain.tool(), "netperf 2.7.0");
        assert!(!plain.has_intervals);
        let demo = Program::read("netperf", "Netperf version 2.7.0\n").unwrap();
        assert!(demo.has_intervals);
        assert!(Program::read("netperf", "command not found\n").is_none());
    }

    #[test]
    fn an_old_one_and_two_that_differ_are_named_with_the_remedy() {
        let of = |name, version: &str| {
            Program::read(name, &format!("Netperf version {version}\n")).unwrap()
        };
        let old = of("netperf", "2.4.5").check_version().unwrap_err();
        assert!(old.why.starts_with("netperf 2.4.5 is too old"), "{old:?}");
        assert!(of("netperf", "next").check_version().is_err());
        assert!(of("netperf", "2.10.0").check_version().is_ok());
        let (here, there) = (of("netperf", "2.7.0"), of("netserver", "2.6.0"));
        let differ = here.check_compatible(&there).unwrap_err();
        assert!(
            differ.why.starts_with("netperf 2.7.0 and netserver 2.6.0"),
            "{differ:?}"
        );
        assert!(here.check_compatible(&of("netserver", "2.7.0")).is_ok());
    }
}
