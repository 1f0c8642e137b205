//! The `setkey` command with the options of ipsec-tools, for a running gateway.
//!
//! ```text
//!   text ──► checked here: errors with line, column and caret ──► names are resolved here
//!                                                                   │
//!   standard output ◄── dumps in ipsec-tools' layout ◄── gateway: applied atomically
//! ```
//!
//! A text with an error is never sent to the gateway, and `-n` needs none at all. With `--plane kernel` the text is
//! applied to the kernel's own IPsec instead.

mod arguments;
mod names;
mod statements;

pub use arguments::Program;
pub(crate) use arguments::{Arguments, PlaneChoice};
pub(crate) use names::SystemNames;

use crate::apply::{apply, rendered};
use crate::control::{Answer, Client, NoAnswer, Request, SetkeyText};
use crate::events::Event;
use crate::failure::Failure;
use crate::local_time::utc_offset;
use crate::plane::XfrmPlane;
use arguments::Task;
use ipsec::setkey::ast::Statement;
use ipsec::setkey::{Forwarding, Lowered, Problem, compile, local_time, parse, print, resolve};
use statements::{StatementReader, grow};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// The interval at which `-lD` repeats.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Runs what the options request; messages go to `err`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> ExitCode {
    let mut session = Session {
        arguments,
        out,
        err,
    };
    let outcome = match arguments.task() {
        Task::Apply(texts) => texts.iter().try_for_each(|text| match text.as_deref() {
            None if !arguments.check => session.apply_typed(),
            path => session.apply_file(path),
        }),
        Task::Ask(text) if arguments.short && arguments.dump => session.repeat(text),
        Task::Ask(text) => session.ask(text),
        Task::Watch => session.watch(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(session.err, "{failure}");
            ExitCode::from(failure.code())
        }
    }
}

/// The file that holds a gateway's whole configuration.
pub(crate) fn text_of(path: &Path) -> Result<SetkeyText, Failure> {
    let name = path.display().to_string();
    let text =
        read(Some(path)).map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
    Ok(SetkeyText {
        name,
        text,
        pid: std::process::id(),
        ..SetkeyText::default()
    })
}

struct Session<'a> {
    arguments: &'a Arguments,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

type Outcome = Result<(), Failure>;

impl Session<'_> {
    /// Reads and applies one text; without a path, standard input.
    fn apply_file(&mut self, path: Option<&Path>) -> Outcome {
        let name = path.map_or_else(
            || "standard input".to_owned(),
            |path| path.display().to_string(),
        );
        let text = read(path).map_err(|error| unreadable(&name, &error))?;
        self.apply_text(name, text)
    }

    /// Applies standard input statement by statement as it is read. An error ends it, except on a terminal, where the
    /// user can correct it.
    fn apply_typed(&mut self) -> Outcome {
        let name = "standard input";
        let is_interactive = io::stdin().is_terminal();
        // Unbuffered: what is read is what is applied.
        let input = io::stdin().as_fd().try_clone_to_owned();
        let input = input.map_err(|error| unreadable(name, &error))?;
        let mut statements = StatementReader::new(File::from(input));
        let mut outcome = Ok(());
        while let Some(text) = statements
            .next()
            .map_err(|error| unreadable(name, &error))?
        {
            let is_last = has_exit(&text);
            match self.apply_text(name.to_owned(), text) {
                Err(failure) if is_interactive => {
                    let _ = writeln!(self.err, "{failure}");
                    outcome = Err(Failure::new("setkey: there were errors"));
                }
                applied => applied?,
            }
            if is_last {
                break;
            }
        }
        outcome
    }

    fn apply_text(&mut self, name: String, text: Zeroizing<Vec<u8>>) -> Outcome {
        let lowered = self.check(&name, &text)?;
        if self.arguments.check {
            self.note(&format!(
                "{} valid, nothing changed",
                counted(lowered.commands.len(), "statement")
            ));
            return Ok(());
        }
        let text = without_names(text).map_err(|problems| invalid(&problems, &name, &[]))?;
        let known: Vec<_> = lowered
            .warnings
            .iter()
            .map(|warning| &*warning.message)
            .collect();
        self.send(name, text, &known)?;
        self.note(&format!(
            "{} applied",
            counted(lowered.commands.len(), "statement")
        ));
        Ok(())
    }

    /// Prints a message if `-v` was given.
    fn note(&mut self, message: &str) {
        if self.arguments.verbose {
            let _ = writeln!(self.err, "setkey: {message}");
        }
    }

    /// Finds every mistake before anything is sent, and prints warnings about risky settings.
    fn check(&mut self, name: &str, text: &[u8]) -> Result<Lowered, Failure> {
        let forwarding = if self.arguments.kernel_semantics {
            Forwarding::AsWritten
        } else {
            Forwarding::WithIn
        };
        let lowered = compile(text, forwarding, &mut SystemNames);
        let lowered = lowered.map_err(|problems| invalid(&problems, name, text))?;
        for warning in &lowered.warnings {
            let rendered = warning.render(name, text);
            let shown = if self.arguments.verbose {
                &*rendered
            } else {
                rendered.lines().next().unwrap_or_default()
            };
            let _ = writeln!(self.err, "{}", shown.trim_end());
        }
        Ok(lowered)
    }

    fn ask(&mut self, text: &str) -> Outcome {
        self.send(
            "setkey".to_owned(),
            Zeroizing::new(text.as_bytes().to_vec()),
            &[],
        )
    }

    fn repeat(&mut self, text: &str) -> Outcome {
        loop {
            self.ask(text)?;
            std::thread::sleep(REPEAT_INTERVAL);
        }
    }

    /// Sends a text and prints the answer; warnings whose sentence is `known` were printed before.
    fn send(&mut self, name: String, text: Zeroizing<Vec<u8>>, known: &[&str]) -> Outcome {
        let text = SetkeyText {
            name,
            text,
            kernel_semantics: self.arguments.kernel_semantics,
            dry_run: false,
            with_dead: self.arguments.all,
            with_ports: self.arguments.ports,
            short: self.arguments.short,
            pid: std::process::id(),
        };
        if self.arguments.plane == PlaneChoice::Kernel {
            return self.apply_to_kernel(&text);
        }
        let request = Request::Setkey(text);
        match self.client()?.ask(&request).map_err(Failure::new)? {
            Answer::Setkey { output, warnings } => {
                for warning in warnings {
                    if !known.iter().any(|known| warning.contains(known)) {
                        let _ = writeln!(self.err, "{warning}");
                    }
                }
                self.show(&output)
            }
            Answer::Done => Ok(()),
            Answer::Refused(why) => Err(Failure::new(why)),
            _ => Err(Failure::new(
                "setkey: unexpected answer from the gateway; do the versions match?",
            )),
        }
    }

    /// The same for the kernel's own IPsec; the warnings of a text were printed when it was checked.
    fn apply_to_kernel(&mut self, text: &SetkeyText) -> Outcome {
        let mut plane = XfrmPlane::open().map_err(|why| Failure::new(format!("setkey: {why}")))?;
        let applied = apply(&mut plane, text, now())?;
        let hidden = plane.unsupported();
        if hidden > 0 {
            let left_out = counted(hidden, "item");
            self.note(&format!(
                "{left_out} of the kernel not shown: setkey cannot express them, see `ip xfrm`"
            ));
        }
        self.show(&applied.output)
    }

    /// Prints every event until the gateway stops.
    fn watch(&mut self) -> Outcome {
        if self.arguments.plane == PlaneChoice::Kernel {
            return Err(Failure::new(
                "setkey: -x shows the gateway's events; for the kernel's run `ip xfrm monitor`",
            ));
        }
        let client = self.client()?;
        let (out, arguments) = (&mut *self.out, self.arguments);
        let followed = client.follow(&Request::Events, |answer| {
            let Answer::Event(event) = answer else {
                return true;
            };
            let line = event_line(&event, arguments);
            writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
        });
        followed.map_err(Failure::new)
    }

    fn client(&self) -> Result<Client, Failure> {
        let path = crate::control::path(self.arguments.control.clone());
        Client::connect(&path).map_err(|why: NoAnswer| Failure::new(format!("setkey: {why}")))
    }

    /// Prints text; a closed pipe is no error.
    fn show(&mut self, text: &str) -> Outcome {
        let written = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::new(format!("setkey: cannot write: {error}")))
            }
            _ => Ok(()),
        }
    }
}

/// One event as text; `-xx` prints its time as a number, `-H` the event as JSON.
fn event_line(event: &Event, arguments: &Arguments) -> String {
    if arguments.hexadecimal {
        return serde_json::to_string(event).unwrap_or_default();
    }
    match arguments.watch {
        1 => format!(
            "{} {}",
            local_time(event.time, utc_offset(event.time)),
            event.what
        ),
        _ => format!("{} {}", event.time, event.what),
    }
}

/// Whether a text contains `exit`, after which nothing is read.
fn has_exit(text: &[u8]) -> bool {
    let is_exit = |statement: &Statement| matches!(statement, Statement::Exit);
    let file = parse(text).file;
    file.statements
        .iter()
        .any(|statement| is_exit(&statement.node))
}

/// Reads a whole file or standard input, into memory that is zeroed when it is freed.
fn read(path: Option<&Path>) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut source: Box<dyn Read> = match path {
        Some(path) => Box::new(File::open(path)?),
        None => Box::new(io::stdin().lock()),
    };
    let mut text = Zeroizing::new(Vec::with_capacity(1 << 16));
    loop {
        grow(&mut text);
        let (start, end) = (text.len(), text.capacity());
        text.resize(end, 0);
        let got = source.read(&mut text[start..]);
        text.truncate(start + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => return Ok(text),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

/// The gateway resolves no names: a text with names is sent with the addresses they stand for.
fn without_names(text: Zeroizing<Vec<u8>>) -> Result<Zeroizing<Vec<u8>>, Vec<Problem>> {
    let file = parse(&text).file;
    let resolved = resolve(&file, &mut SystemNames)?;
    Ok(if resolved == file {
        text
    } else {
        print(&resolved)
    })
}

/// Seconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn counted(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::new(format!("setkey: cannot read {name}: {error}"))
}

/// All problems of a text as one message.
fn invalid(problems: &[Problem], name: &str, text: &[u8]) -> Failure {
    let rendered = rendered(problems, name, text);
    let count = counted(problems.len(), "error");
    Failure::new(format!(
        "{rendered}\nsetkey: {count} in {name}; nothing was changed"
    ))
}

#[cfg(test)]
mod tests;
