//! Names, families and ports.

use std::net::IpAddr;

use super::{Lower, Lowering};
use crate::setkey::ast::*;
use crate::setkey::{Problem, shown};

impl Lowering<'_> {
    /// Every pair of a source and a destination of the same family: a name may have several addresses.
    pub(super) fn pairs(
        &mut self,
        lookup: Lookup,
        source: &At<Host>,
        destination: &At<Host>,
    ) -> Lower<Vec<(IpAddr, IpAddr)>> {
        let sources = self.addresses(lookup, source)?;
        let destinations = self.addresses(lookup, destination)?;
        let mut pairs = Vec::new();
        for &from in &sources {
            let of_family = |to: &&IpAddr| to.is_ipv4() == from.is_ipv4();
            pairs.extend(destinations.iter().filter(of_family).map(|&to| (from, to)));
        }
        if pairs.is_empty() {
            let span = source.span.to(destination.span);
            let problem = Problem::new(span, "one address is IPv4, the other IPv6");
            return Err(problem.advise("both ends need the same family"));
        }
        Ok(pairs)
    }

    /// The one pair, where a statement can only be about one.
    pub(super) fn pair(
        &mut self,
        lookup: Lookup,
        source: &At<Host>,
        destination: &At<Host>,
    ) -> Lower<(IpAddr, IpAddr)> {
        match self.pairs(lookup, source, destination)?[..] {
            [pair] => Ok(pair),
            _ => {
                let span = source.span.to(destination.span);
                let problem = Problem::new(
                    span,
                    "these names stand for more than one pair of addresses",
                );
                Err(problem.advise("write the addresses, or choose a family with `-4` or `-6`"))
            }
        }
    }

    fn addresses(&mut self, lookup: Lookup, host: &At<Host>) -> Lower<Vec<IpAddr>> {
        let wanted = |address: &IpAddr| {
            lookup
                .family
                .is_none_or(|family| family == Family::of(*address))
        };
        match &host.node {
            Host::Address(address) if wanted(address) => Ok(vec![*address]),
            Host::Address(address) => {
                let flag = if address.is_ipv4() { "-6" } else { "-4" };
                Err(Problem::new(
                    host.span,
                    format!("this address is not of the family that `{flag}` asks for"),
                ))
            }
            Host::Scoped(..) => {
                let problem = Problem::unsupported(
                    host.span,
                    "addresses of one link cannot be the ends of an association",
                );
                Err(problem.advise("use global or unique local addresses"))
            }
            Host::Name(name) if lookup.numeric => Err(Problem::new(
                host.span,
                format!("`{}` is a name, and `-n` forbids names", shown(name)),
            )),
            Host::Name(name) => {
                let found = self.names.host(name);
                let found = found.map_err(|why| {
                    Problem::lookup(host.span, format!("`{}`: {why}", shown(name)))
                })?;
                let mut found: Vec<_> = found.into_iter().filter(wanted).collect();
                found.sort_unstable();
                found.dedup();
                if found.is_empty() {
                    Err(Problem::lookup(
                        host.span,
                        format!("`{}` has no address of the family asked for", shown(name)),
                    ))
                } else {
                    Ok(found)
                }
            }
        }
    }

    /// The number of a port; none for any.
    pub(super) fn port(&mut self, port: &Option<At<Port>>) -> Lower<Option<u16>> {
        let Some(port) = port else { return Ok(None) };
        match &port.node {
            Port::Any => Ok(None),
            Port::Number(number) => Ok(Some(*number)),
            Port::Service(name) => self.names.service(name).map(Some).ok_or_else(|| {
                let problem = Problem::lookup(
                    port.span,
                    format!("no service is called `{}` here", shown(name)),
                );
                problem.advise("write the number of the port")
            }),
        }
    }
}
