//! The options of `setkey`, as ipsec-tools has them.

use clap::{ArgAction, ArgGroup, Args, Parser, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  setkey -n -f tunnel.conf      check a file, change nothing
  setkey -f tunnel.conf         apply the file atomically
  setkey -D                     show all associations
  setkey -DP                    show all policies
  echo 'dump esp;' | setkey -c  apply statements from standard input
  setkey --plane kernel -D      show the associations of kernel XFRM

The language is described in docs/setkey.md.";

/// `setkey` as a program of its own.
#[derive(Parser)]
#[command(name = "setkey", version, about = ABOUT, disable_help_flag = true, after_help = EXAMPLES)]
pub struct Program {
    /// All options.
    #[command(flatten)]
    pub arguments: Arguments,
}

const ABOUT: &str =
    "Add, change, show and remove the security associations and policies of a running gateway";

/// The options. Exactly one says what to do; the others say how.
#[derive(Args, Clone, Debug, Default)]
#[command(group = ArgGroup::new("task").required(true).multiple(false))]
pub struct Arguments {
    /// Apply the statements in FILE atomically
    #[arg(short = 'f', value_name = "FILE", group = "task")]
    pub file: Option<PathBuf>,
    /// Apply statements from standard input
    #[arg(short = 'c', group = "task")]
    pub stdin: bool,
    /// Show associations, or with -P policies
    #[arg(short = 'D', group = "task")]
    pub dump: bool,
    /// Remove all associations, or with -P all policies
    #[arg(short = 'F', group = "task")]
    pub flush: bool,
    /// Show changes of associations and policies until interrupted
    #[arg(short = 'x', group = "task", action = ArgAction::Count)]
    pub watch: u8,
    /// Apply the statements in each FILE
    #[arg(value_name = "FILE", group = "task")]
    pub files: Vec<PathBuf>,
    /// With -D or -F: policies instead of associations
    #[arg(short = 'P')]
    pub policies: bool,
    /// With -D: show ports with all addresses
    #[arg(short = 'p')]
    pub ports: bool,
    /// With -D: include dead associations
    #[arg(short = 'a')]
    pub all: bool,
    /// With -D: one line for each association, repeated every second
    #[arg(short = 'l')]
    pub short: bool,
    /// Check the statements and change nothing; needs no gateway
    #[arg(short = 'n')]
    pub check: bool,
    /// Apply policies to exactly the direction written, as kernel XFRM does
    #[arg(short = 'k')]
    pub kernel_semantics: bool,
    /// Apply an `in` policy to forwarded packets too, as in the RFCs (default)
    #[arg(short = 'r', conflicts_with = "kernel_semantics")]
    pub rfc_semantics: bool,
    /// Verbose
    #[arg(short = 'v')]
    pub verbose: bool,
    /// With -x: print events as JSON
    #[arg(short = 'H')]
    pub hexadecimal: bool,
    /// Target: a running gateway or kernel XFRM
    #[arg(long, value_name = "PLANE", value_enum, default_value_t)]
    pub plane: PlaneChoice,
    /// The gateway's control socket [default: $ESPLANADE_CONTROL or /run/esplanade/control.sock]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Print help
    #[arg(short = 'h', short_alias = '?', long = "help", action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Who enforces what setkey says.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PlaneChoice {
    /// The gateway behind the control socket.
    #[default]
    Gateway,
    /// The kernel's XFRM in this network namespace; needs root and no gateway.
    Kernel,
}

/// What the options request.
pub(super) enum Task {
    /// Apply texts; `None` stands for standard input.
    Apply(Vec<Option<PathBuf>>),
    /// Send a fixed text, for the options without a file.
    Ask(&'static str),
    /// Print events as they occur.
    Watch,
}

impl Arguments {
    pub(super) fn task(&self) -> Task {
        match (self.dump, self.flush, self.policies) {
            (true, _, false) => Task::Ask("dump;"),
            (true, _, true) => Task::Ask("spddump;"),
            (_, true, false) => Task::Ask("flush;"),
            (_, true, true) => Task::Ask("spdflush;"),
            _ if self.watch > 0 => Task::Watch,
            _ if self.stdin => Task::Apply(vec![None]),
            _ => {
                let files = self.file.iter().chain(&self.files);
                Task::Apply(files.cloned().map(Some).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<String> {
        let program = Program::try_parse_from(line.split(' ')).ok()?;
        Some(match program.arguments.task() {
            Task::Ask(text) => text.to_owned(),
            Task::Watch => "watch".to_owned(),
            Task::Apply(texts) => {
                let names = texts.iter().map(|text| {
                    text.as_ref()
                        .map_or("-".into(), |path| path.display().to_string())
                });
                names.collect::<Vec<_>>().join(" ")
            }
        })
    }

    #[test]
    fn the_options_that_scripts_use_mean_what_they_mean_there() {
        for (line, task) in [
            ("setkey -D", "dump;"),
            ("setkey -DP", "spddump;"),
            ("setkey -D -P", "spddump;"),
            ("setkey -DPp", "spddump;"),
            ("setkey -PD", "spddump;"),
            ("setkey -F", "flush;"),
            ("setkey -FP", "spdflush;"),
            ("setkey -f /etc/ipsec.conf", "/etc/ipsec.conf"),
            ("setkey -kf x", "x"),
            ("setkey -vc", "-"),
            ("setkey -nf x", "x"),
            ("setkey -x", "watch"),
            ("setkey -xx", "watch"),
            ("setkey one two", "one two"),
        ] {
            assert_eq!(asked(line).as_deref(), Some(task), "{line}");
        }
    }

    /// Every flag of ipsec-tools' manual is accepted, has an effect, and is described in our manual.
    #[test]
    fn every_flag_is_taken_and_described() {
        const MANUAL: &str = include_str!("../../../docs/setkey.md");
        let read = |line: &str| Program::try_parse_from(line.split(' ')).unwrap().arguments;
        type Taken = fn(&Arguments) -> bool;
        let flags: [(&str, &str, Taken); 16] = [
            ("setkey -f x", "`-f FILE`", |read| read.file.is_some()),
            ("setkey -c", "`-c`", |read| read.stdin),
            ("setkey -D", "`-D`", |read| read.dump),
            ("setkey -DP", "`-DP`", |read| read.dump && read.policies),
            ("setkey -F", "`-F`", |read| read.flush),
            ("setkey -FP", "`-FP`", |read| read.flush && read.policies),
            ("setkey -Da", "`-a`", |read| read.all),
            ("setkey -Dl", "`-l`", |read| read.short),
            ("setkey -Dp", "`-p`", |read| read.ports),
            ("setkey -nc", "`-n`", |read| read.check),
            ("setkey -rc", "`-r`", |read| read.rfc_semantics),
            ("setkey -kc", "`-k`", |read| read.kernel_semantics),
            ("setkey -vc", "`-v`", |read| read.verbose),
            ("setkey -x", "`-x`", |read| read.watch == 1),
            ("setkey -xx", "`-xx`", |read| read.watch == 2),
            ("setkey -xH", "`-H`", |read| read.hexadecimal),
        ];
        for (line, described, taken) in flags {
            assert!(taken(&read(line)), "{line}");
            assert!(MANUAL.contains(described), "{described}");
        }
        for (line, kind) in [
            ("setkey -h", clap::error::ErrorKind::DisplayHelp),
            ("setkey -V", clap::error::ErrorKind::DisplayVersion),
        ] {
            let shown = Program::try_parse_from(line.split(' ')).err().unwrap();
            assert_eq!(shown.kind(), kind, "{line}");
        }
        assert!(MANUAL.contains("`-V`, `-h`"));
    }

    #[test]
    fn two_tasks_or_none_are_refused() {
        for line in [
            "setkey",
            "setkey -D -F",
            "setkey -c -f x",
            "setkey -P",
            "setkey -k -r -c",
            "setkey -Z",
        ] {
            assert_eq!(asked(line), None, "{line}");
        }
    }
}
