//! Options of AGGFRAG mode.

use super::Lower;
use crate::aggfrag::Aggfrag;
use crate::sa;
use crate::setkey::Problem;
use crate::setkey::ast::{ProtocolWord, SaName};
use crate::setkey::lower::option::Options;

/// RFC 9347 2: AGGFRAG mode is a mode of ESP for whole packets; its options are valid in this mode only.
pub(super) fn aggfrag(name: &SaName, options: &Options, mode: sa::Mode) -> Lower<Option<Aggfrag>> {
    let Some(wanted) = options.aggfrag.filter(|wanted| wanted.node) else {
        return without_aggfrag(options).map(|()| None);
    };
    if name.protocol.node == ProtocolWord::Ah {
        let problem = Problem::new(wanted.span, "AH cannot aggregate (RFC 9347)");
        return Err(problem.advise("use `esp`"));
    }
    if mode != sa::Mode::Tunnel {
        let problem = Problem::new(
            wanted.span,
            "only whole packets can be aggregated (RFC 9347)",
        );
        return Err(problem.advise("add `-m tunnel`"));
    }
    if let Some(tfc) = options.tfc {
        let problem = Problem::new(tfc.span, "AGGFRAG payloads have padding of their own");
        return Err(problem.advise("use `-o aggfrag-size` and `-o aggfrag-rate`"));
    }
    let default = Aggfrag::default();
    Ok(Some(Aggfrag {
        fragments: !options.dont_frag.is_some_and(|dont| dont.node),
        size: options.aggfrag_size.map_or(default.size, |size| size.node),
        rate: options.aggfrag_rate.map_or(default.rate, |rate| rate.node),
        reorder_window: options
            .aggfrag_window
            .map_or(default.reorder_window, |window| window.node),
        reorder_timeout_ms: options
            .aggfrag_wait
            .map_or(default.reorder_timeout_ms, |wait| wait.node),
    }))
}

fn without_aggfrag(options: &Options) -> Lower<()> {
    let spans = [
        options.dont_frag.map(|option| option.span),
        options.aggfrag_size.map(|option| option.span),
        options.aggfrag_rate.map(|option| option.span),
        options.aggfrag_window.map(|option| option.span),
        options.aggfrag_wait.map(|option| option.span),
    ];
    match spans.into_iter().flatten().next() {
        None => Ok(()),
        Some(span) => {
            let problem = Problem::new(span, "this option is for AGGFRAG mode alone");
            Err(problem.advise("add `-o aggfrag=yes`"))
        }
    }
}
