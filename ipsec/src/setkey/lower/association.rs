//! Statements about security associations.

mod aggfrag;
mod settings;

use super::option::Options;
use super::{Lower, Lowering, unsupported};
use crate::algorithm::{Encryption, Integrity};
use crate::command::Command;
use crate::ipcomp::DEFLATE_CPI;
use crate::sa::{Protocol, SaConfig, SaId, Spi};
use crate::setkey::ast::*;
use crate::setkey::{Problem, Span};
use crate::suite::NamedSuite;
use std::net::IpAddr;
use std::sync::Arc;

impl<'a> Lowering<'a> {
    pub(super) fn sa_entry(
        &mut self,
        entry: &'a SaEntry,
        span: Span,
        command: fn(Arc<SaConfig>) -> Command,
    ) -> Lower<()> {
        let name = &entry.name;
        let pairs = self.pairs(name.lookup, &name.source.host, &name.destination.host);
        let pairs = self.note(pairs);
        let protocol = unsupported::sa_protocol(&name.protocol)?;
        let options = Options::read(&name.extensions.options)?;
        let suite = self.suite(entry, protocol, options.icv);
        let spi = self.spi(name.spi, protocol);
        let (spi, settings) = (self.note(spi), self.settings(name, &options));
        let settings = self.note(settings);
        let (Some(pairs), Some(suite), Some(spi), Some(settings)) = (pairs, suite, spi, settings)
        else {
            return Ok(());
        };
        for (source, destination) in pairs {
            let id = SaId {
                destination,
                protocol,
                spi,
            };
            let config = settings.config(id, source, suite.clone());
            self.watch_key(entry, id);
            self.push(command(Arc::new(config)), span)?;
        }
        Ok(())
    }

    pub(super) fn sa_name(
        &mut self,
        name: &SaName,
        span: Span,
        command: fn(SaId, IpAddr) -> Command,
    ) -> Lower<()> {
        let (source, destination) =
            self.pair(name.lookup, &name.source.host, &name.destination.host)?;
        let protocol = unsupported::sa_protocol(&name.protocol)?;
        let spi = self.spi(name.spi, protocol)?;
        self.push(
            command(
                SaId {
                    destination,
                    protocol,
                    spi,
                },
                source,
            ),
            span,
        )
    }

    pub(super) fn deleteall(&mut self, group: &SaGroup, span: Span) -> Lower<()> {
        let protocol = unsupported::sa_protocol(&group.protocol)?;
        for (source, destination) in
            self.pairs(group.lookup, &group.source.host, &group.destination.host)?
        {
            self.push(
                Command::DeleteAllSas {
                    source,
                    destination,
                    protocol,
                },
                span,
            )?;
        }
        Ok(())
    }

    pub(super) fn getspi(&mut self, name: &SaName, span: Span) -> Lower<()> {
        let (source, destination) =
            self.pair(name.lookup, &name.source.host, &name.destination.host)?;
        let protocol = unsupported::sa_protocol(&name.protocol)?;
        let range = match name.spi.node {
            0 => None,
            _ => self.spi(name.spi, protocol).map(|spi| Some((spi, spi)))?,
        };
        self.push(
            Command::GetSpi {
                source,
                destination,
                protocol,
                range,
            },
            span,
        )
    }

    fn spi(&mut self, spi: At<u32>, protocol: Protocol) -> Lower<Spi> {
        if protocol == Protocol::IpComp {
            return cpi(spi);
        }
        let Some(value) = Spi::new(spi.node) else {
            let problem = Problem::new(spi.span, "SPI 0 never travels (RFC 4303 2.1)");
            return Err(problem.advise("choose one from 256 on"));
        };
        if value.is_reserved() {
            self.warn(
                spi.span,
                "SPIs below 256 are reserved (RFC 4303 2.1); other implementations refuse them",
            );
        }
        Ok(value)
    }

    /// Counter modes lose all their secrets when one key and salt count twice, be it in the two directions.
    fn watch_key(&mut self, entry: &'a SaEntry, id: SaId) {
        let Some((key, harm)) = salted_key(entry) else {
            return;
        };
        let first = *self
            .salted_keys
            .entry(key.node.secret().expose())
            .or_insert(id);
        if first != id {
            let message = format!("this key and salt serve another association too: {harm}");
            self.warn(key.span, message);
        }
    }
}

/// The key that ends in a salt, if the entry has one, and what the same nonce twice does to it.
fn salted_key(entry: &SaEntry) -> Option<(&At<Key>, &'static str)> {
    if let Some(At { node, .. }) = &entry.encryption {
        let name = &*node.name.node;
        let suite = NamedSuite::named(name).map(|suite| suite.encryption().0);
        let row = suite.or(Encryption::named(name))?;
        let harm = "in a counter mode that can reveal the plaintext of both";
        let key = node.key.as_ref().filter(|_| row.salt_len > 0)?;
        return Some((key, harm));
    }
    let integrity = &entry.integrity.as_ref()?.node;
    let row = Integrity::named(&integrity.name.node)?;
    let key = integrity.key.as_ref().filter(|_| row.salt_len > 0)?;
    Some((
        key,
        "a nonce that comes twice lets others forge packets of both",
    ))
}

/// RFC 3173 3.3: 0 to 63 are well known, of which DEFLATE is one, and those up to 255 reserved.
fn cpi(cpi: At<u32>) -> Lower<Spi> {
    let known = Spi::new(cpi.node);
    let fits = |cpi: &Spi| matches!(cpi.get(), 256..=0xffff) || cpi.get() == u32::from(DEFLATE_CPI);
    known.filter(fits).ok_or_else(|| {
        let problem = Problem::new(cpi.span, "this is no CPI of DEFLATE (RFC 3173 3.3)");
        problem.advise("a CPI has 16 bits: choose one from 256 to 65535, or the well-known 2")
    })
}
