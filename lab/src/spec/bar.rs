//! Bars: what a study must reach, as the spec writes them.

use super::diagnostic::Diagnostic;
use super::tree::Tree;
use crate::bars::{Bar, RecordFilter};

/// Every [[bar]].
pub(super) fn read(file: Tree<'_>) -> Result<Vec<Bar>, Diagnostic> {
    file.tables("bar")?.into_iter().map(bar).collect()
}

fn bar(tree: Tree<'_>) -> Result<Bar, Diagnostic> {
    tree.only(&[
        "name", "about", "figure", "reading", "of", "to", "less", "at_least", "at_most", "moonshot",
    ])?;
    let missing = |what: &str, advice: &str| Diagnostic {
        at: tree.at.0..tree.at.1,
        what: what.into(),
        advice: advice.into(),
    };
    let of = which(tree, "of")?;
    let figure = tree.text("figure")?.unwrap_or("goodput_bps");
    Ok(Bar {
        name: tree
            .text("name")?
            .ok_or_else(|| missing("this bar has no name", "add `name`"))?
            .into(),
        about: tree.text("about")?.unwrap_or_default().into(),
        figure: figure.into(),
        of: of.ok_or_else(|| {
            missing(
                "this bar selects no records",
                "add `of = { contender = \"…\" }`",
            )
        })?,
        to: which(tree, "to")?,
        less: which(tree, "less")?,
        at_least: tree.real("at_least")?,
        at_most: tree.real("at_most")?,
        moonshot: tree.real("moonshot")?,
    })
}

/// Any factor, and `contender`, as texts.
fn which(tree: Tree<'_>, name: &str) -> Result<Option<RecordFilter>, Diagnostic> {
    let Some(table) = tree.table(name)? else {
        return Ok(None);
    };
    let mut which = RecordFilter::default();
    for (name, _, value) in table.leaves() {
        let text = super::tree::text(value)?;
        which.0.insert(name, text.to_owned());
    }
    Ok(Some(which))
}
