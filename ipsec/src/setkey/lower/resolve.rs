//! A text with addresses instead of names: looked up by the client, for a gateway that looks up no names.

use std::net::IpAddr;

use super::{Lower, Lowering, Names};
use crate::setkey::Problem;
use crate::setkey::ast::*;

/// `file` with every name of a host or service replaced by its address or number. A statement about a host with several
/// addresses becomes several statements.
pub fn resolve(file: &File, names: &mut dyn Names) -> Result<File, Vec<Problem>> {
    let mut lowering = Lowering::new(Default::default(), names);
    let mut resolved = File::default();
    for statement in &file.statements {
        let outcome = lowering.resolved(&statement.node);
        let nodes = lowering.note(outcome).unwrap_or_default();
        let at_its_place = nodes.into_iter().map(|node| At::new(node, statement.span));
        resolved.statements.extend(at_its_place);
    }
    lowering.finish().map(|_| resolved)
}

impl Lowering<'_> {
    fn resolved(&mut self, statement: &Statement) -> Lower<Vec<Statement>> {
        match statement {
            Statement::Add(entry) => self.resolved_entry(entry, Statement::Add),
            Statement::Update(entry) => self.resolved_entry(entry, Statement::Update),
            Statement::GetSpi(name) => self.resolved_name(name, Statement::GetSpi),
            Statement::Get(name) => self.resolved_name(name, Statement::Get),
            Statement::Delete(name) => self.resolved_name(name, Statement::Delete),
            Statement::DeleteAll(group) => self.resolved_group(group),
            Statement::SpdAdd(entry) => self.resolved_policy(entry, Statement::SpdAdd),
            Statement::SpdUpdate(entry) => self.resolved_policy(entry, Statement::SpdUpdate),
            Statement::SpdDelete(entry) => self.resolved_policy(entry, Statement::SpdDelete),
            Statement::SpdGet(entry) => self.resolved_policy(entry, Statement::SpdGet),
            Statement::Flush(_)
            | Statement::Dump(_)
            | Statement::SpdFlush
            | Statement::SpdDump
            | Statement::Exit => Ok(vec![statement.clone()]),
        }
    }

    fn resolved_entry(
        &mut self,
        entry: &SaEntry,
        statement: fn(Box<SaEntry>) -> Statement,
    ) -> Lower<Vec<Statement>> {
        let SaName {
            lookup,
            source,
            destination,
            ..
        } = &entry.name;
        let pairs = self.pairs(*lookup, &source.host, &destination.host)?;
        let mut statements = Vec::new();
        for pair in pairs {
            let mut entry = entry.clone();
            self.put_ends(&mut entry.name.source, &mut entry.name.destination, pair)?;
            statements.push(statement(Box::new(entry)));
        }
        Ok(statements)
    }

    fn resolved_name(
        &mut self,
        name: &SaName,
        statement: fn(Box<SaName>) -> Statement,
    ) -> Lower<Vec<Statement>> {
        let mut name = name.clone();
        let pair = self.pair(name.lookup, &name.source.host, &name.destination.host)?;
        self.put_ends(&mut name.source, &mut name.destination, pair)?;
        Ok(vec![statement(Box::new(name))])
    }

    fn resolved_group(&mut self, group: &SaGroup) -> Lower<Vec<Statement>> {
        let pairs = self.pairs(group.lookup, &group.source.host, &group.destination.host)?;
        let mut statements = Vec::new();
        for pair in pairs {
            let mut group = group.clone();
            self.put_ends(&mut group.source, &mut group.destination, pair)?;
            statements.push(Statement::DeleteAll(Box::new(group)));
        }
        Ok(statements)
    }

    fn resolved_policy(
        &mut self,
        entry: &PolicyEntry,
        statement: fn(Box<PolicyEntry>) -> Statement,
    ) -> Lower<Vec<Statement>> {
        let mut entry = entry.clone();
        if let SelectorClause::Ranges(ranges) = &mut entry.selector {
            let Ranges {
                source,
                destination,
                ..
            } = &mut **ranges;
            let pair = self.pair(entry.lookup, &source.host, &destination.host)?;
            source.host.node = Host::Address(pair.0);
            destination.host.node = Host::Address(pair.1);
            self.put_port(&mut source.port)?;
            self.put_port(&mut destination.port)?;
        }
        for template in &mut entry.policy.templates {
            if let Some(At {
                node: Ends::Between(ends),
                ..
            }) = &mut template.node.ends
            {
                let [near, far] = &mut **ends;
                let pair = self.pair(entry.lookup, &near.host, &far.host)?;
                self.put_ends(near, far, pair)?;
            }
        }
        Ok(vec![statement(Box::new(entry))])
    }

    fn put_ends(
        &mut self,
        source: &mut Endpoint,
        destination: &mut Endpoint,
        pair: (IpAddr, IpAddr),
    ) -> Lower<()> {
        source.host.node = Host::Address(pair.0);
        destination.host.node = Host::Address(pair.1);
        self.put_port(&mut source.port)?;
        self.put_port(&mut destination.port)
    }

    fn put_port(&mut self, port: &mut Option<At<Port>>) -> Lower<()> {
        let number = self.port(port)?;
        if let (Some(port), Some(number)) = (port, number) {
            port.node = Port::Number(number);
        }
        Ok(())
    }
}
