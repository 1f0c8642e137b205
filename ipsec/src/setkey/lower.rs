//! From the tree to commands: here a text is checked.
//!
//! The result can be applied as it is: names are addresses, every key fits its algorithm, every number its
//! field. Whatever is not so is a [`Problem`] at its place, and then there are no commands at all. What is allowed but
//! unwise is a [`Warning`]; the same one many times over is reported once, with its count.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use thiserror::Error;

use super::ast::*;
use super::{Problem, Span, Warning, parse};
use crate::command::Command;
use crate::sa::{Protocol as SaProtocol, SaId};

mod address;
mod association;
mod option;
mod policy;
mod resolve;
mod suite;
mod unsupported;

pub use option::{POLICY_OPTIONS, SA_OPTIONS};
pub use resolve::resolve;

/// The result of lowering a text.
#[derive(Debug, Default)]
pub struct Lowered {
    /// The commands, in order.
    pub commands: Vec<Command>,
    /// Where in the text each command stands, for the error message of a plane that refuses one.
    pub spans: Vec<Span>,
    /// Settings that may not be what was meant.
    pub warnings: Vec<Warning>,
}

/// Whether an `in` policy is about forwarded packets too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Forwarding {
    /// Every `in` policy creates a `fwd` policy, as RFC 4301 knows one inbound direction (setkey's `-r`, its default).
    #[default]
    WithIn,
    /// Policies are exactly as written, as the Linux kernel keeps them (setkey's `-k`).
    AsWritten,
}

/// What looks up names for a text.
pub trait Names {
    /// The addresses of a host, or why there are none.
    fn host(&mut self, name: &str) -> Result<Vec<IpAddr>, LookupError>;
    /// The port of a service.
    fn service(&mut self, name: &str) -> Option<u16>;
}

/// Why a name has no address.
#[derive(Debug, Error)]
pub enum LookupError {
    /// Nothing is looked up.
    #[error("names are not looked up here")]
    NumericOnly,
    /// The system's resolver has no address.
    #[error("this name cannot be looked up: {0}")]
    Resolver(#[from] io::Error),
}

/// Knows no names: texts have to be numeric.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn host(&mut self, _: &str) -> Result<Vec<IpAddr>, LookupError> {
        Err(LookupError::NumericOnly)
    }

    fn service(&mut self, _: &str) -> Option<u16> {
        None
    }
}

/// Reads `text` and lowers it; all its problems at once, in the order of their places.
pub fn compile(
    text: &[u8],
    forwarding: Forwarding,
    names: &mut dyn Names,
) -> Result<Lowered, Vec<Problem>> {
    let parsed = parse(text);
    let lowered = lower(&parsed.file, forwarding, names);
    if parsed.problems.is_empty() {
        return lowered;
    }
    let mut problems = parsed.problems;
    problems.extend(lowered.err().into_iter().flatten());
    problems.sort_by_key(|problem| problem.span);
    Err(problems)
}

/// The commands of `file`, or everything that is wrong with it.
pub fn lower(
    file: &File,
    forwarding: Forwarding,
    names: &mut dyn Names,
) -> Result<Lowered, Vec<Problem>> {
    let mut lowering = Lowering::new(forwarding, names);
    for statement in &file.statements {
        lowering.statement(&statement.node, statement.span);
    }
    lowering.finish()
}

/// One thing, or why it cannot be had.
type Lower<T> = Result<T, Problem>;

struct Lowering<'a> {
    forwarding: Forwarding,
    names: &'a mut dyn Names,
    out: Lowered,
    problems: Vec<Problem>,
    /// Each warning with the place of its first cause and the number of further ones.
    warned: BTreeMap<String, (Span, usize)>,
    /// Keys of counter modes, to find one that serves two associations.
    salted_keys: BTreeMap<&'a [u8], SaId>,
}

impl<'a> Lowering<'a> {
    fn new(forwarding: Forwarding, names: &'a mut dyn Names) -> Self {
        Self {
            forwarding,
            names,
            out: Lowered::default(),
            problems: Vec::new(),
            warned: BTreeMap::new(),
            salted_keys: BTreeMap::new(),
        }
    }

    fn statement(&mut self, statement: &'a Statement, span: Span) {
        let outcome = match statement {
            Statement::Add(entry) => self.sa_entry(entry, span, Command::AddSa),
            Statement::Update(entry) => self.sa_entry(entry, span, Command::UpdateSa),
            Statement::GetSpi(name) => self.getspi(name, span),
            Statement::Get(name) => self.sa_name(name, span, get_sa),
            Statement::Delete(name) => self.sa_name(name, span, delete_sa),
            Statement::DeleteAll(group) => self.deleteall(group, span),
            Statement::Flush(protocol) => self.of_protocol(protocol, span, Command::FlushSas),
            Statement::Dump(protocol) => self.of_protocol(protocol, span, Command::DumpSas),
            Statement::SpdAdd(entry) => self.policy_entry(entry, span, Command::AddPolicy),
            Statement::SpdUpdate(entry) => self.policy_entry(entry, span, Command::UpdatePolicy),
            Statement::SpdDelete(entry) => self.spddelete(entry, span),
            Statement::SpdGet(entry) => self.spdget(entry, span),
            Statement::SpdFlush => self.push(Command::FlushPolicies, span),
            Statement::SpdDump => self.push(Command::DumpPolicies, span),
            Statement::Exit => Ok(()),
        };
        self.note(outcome);
    }

    /// Appends a command.
    fn push(&mut self, command: Command, place: Span) -> Lower<()> {
        self.out.commands.push(command);
        self.out.spans.push(place);
        Ok(())
    }

    /// Remembers a problem, so that what is independent of it is looked at too.
    fn note<T>(&mut self, outcome: Lower<T>) -> Option<T> {
        outcome.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Warns once for each message, however often it is caused.
    fn warn(&mut self, span: Span, message: impl Into<String>) {
        let first = self.warned.entry(message.into());
        first
            .and_modify(|(_, more)| *more += 1)
            .or_insert((span, 0));
    }

    fn of_protocol(
        &mut self,
        protocol: &Option<At<ProtocolWord>>,
        span: Span,
        command: fn(Option<SaProtocol>) -> Command,
    ) -> Lower<()> {
        let protocol = protocol
            .as_ref()
            .map(unsupported::sa_protocol)
            .transpose()?;
        self.push(command(protocol), span)
    }

    fn finish(mut self) -> Result<Lowered, Vec<Problem>> {
        if !self.problems.is_empty() {
            self.problems.sort_by_key(|problem| problem.span);
            return Err(self.problems);
        }
        let warned = std::mem::take(&mut self.warned);
        let warnings = warned
            .into_iter()
            .map(|(message, (span, more))| match more {
                0 => Warning::new(span, message),
                _ => Warning::new(span, format!("{message} (and {more} more)")),
            });
        self.out.warnings = warnings.collect();
        self.out.warnings.sort_by_key(|warning| warning.span);
        Ok(self.out)
    }
}

fn get_sa(id: SaId, source: IpAddr) -> Command {
    Command::GetSa { id, source }
}

fn delete_sa(id: SaId, source: IpAddr) -> Command {
    Command::DeleteSa { id, source }
}
