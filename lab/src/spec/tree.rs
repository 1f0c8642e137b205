//! A TOML table with the position of every value. Values are read by name; unknown names are errors.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::complaint::did_you_mean;
use super::diagnostic::Diagnostic;

/// A value and where it stands.
pub(super) type Placed<'t> = &'t Spanned<DeValue<'t>>;

/// A table, read by name.
#[derive(Clone, Copy)]
pub(super) struct Tree<'t> {
    table: &'t DeTable<'t>,
    /// Where the table stands.
    pub at: (usize, usize),
}

impl<'t> Tree<'t> {
    /// Over the whole file.
    pub(super) fn of(file: &'t Spanned<DeTable<'t>>) -> Tree<'t> {
        Tree {
            table: file.get_ref(),
            at: (0, 0),
        }
    }

    /// The value of this name.
    pub(super) fn get(&self, name: &str) -> Option<Placed<'t>> {
        self.table.get(name)
    }

    /// Names that are not among the known ones are errors.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Diagnostic> {
        let stranger = self
            .table
            .keys()
            .find(|key| !known.contains(&key.get_ref().as_ref()));
        match stranger {
            None => Ok(()),
            Some(key) => Err(Diagnostic {
                at: key.span(),
                what: format!("unknown field `{}`", key.get_ref()),
                advice: did_you_mean(key.get_ref(), known),
            }),
        }
    }

    /// The table of this name.
    pub(super) fn table(&self, name: &str) -> Result<Option<Tree<'t>>, Diagnostic> {
        self.get(name).map(tree).transpose()
    }

    /// The tables of `[[name]]`, or of a list of inline tables.
    pub(super) fn tables(&self, name: &str) -> Result<Vec<Tree<'t>>, Diagnostic> {
        let Some(value) = self.get(name) else {
            return Ok(Vec::new());
        };
        let list = value.get_ref().as_array();
        let list = list.ok_or_else(|| wrong_type(value, &format!("write it as [[{name}]]")))?;
        list.iter().map(tree).collect()
    }

    /// Every value under its dotted name: `link.rate_mbit` may be written so or as a table `link`.
    pub(super) fn leaves(&self) -> Vec<(String, Range<usize>, Placed<'t>)> {
        let mut leaves = Vec::new();
        walk(self.table, "", &mut leaves);
        leaves.sort_by_key(|(_, at, _)| at.start);
        leaves
    }

    /// The text of this name.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'t str>, Diagnostic> {
        self.get(name).map(text).transpose()
    }

    /// The texts of a list.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<&'t str>, Diagnostic> {
        let Some(value) = self.get(name) else {
            return Ok(Vec::new());
        };
        match value.get_ref().as_array() {
            Some(list) => list.iter().map(text).collect(),
            None => Ok(vec![text(value)?]),
        }
    }

    /// The whole number of this name.
    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, Diagnostic> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = integer(value)?;
        let fits = u32::try_from(number)
            .ok()
            .filter(|number| range.contains(number));
        match fits {
            Some(number) => Ok(Some(number)),
            None => Err(Diagnostic {
                at: value.span(),
                what: format!("`{name}` cannot be {number}"),
                advice: format!("a number from {} to {}", range.start(), range.end()),
            }),
        }
    }

    /// The number, whole or not, of this name.
    pub(super) fn real(&self, name: &str) -> Result<Option<f64>, Diagnostic> {
        self.get(name).map(real).transpose()
    }
}

fn walk<'t>(
    table: &'t DeTable<'t>,
    before: &str,
    leaves: &mut Vec<(String, Range<usize>, Placed<'t>)>,
) {
    for (key, value) in table {
        let name = format!("{before}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => walk(inner, &format!("{name}."), leaves),
            _ => leaves.push((name, key.span(), value)),
        }
    }
}

fn tree<'t>(value: Placed<'t>) -> Result<Tree<'t>, Diagnostic> {
    let span = value.span();
    match value.get_ref().as_table() {
        Some(table) => Ok(Tree {
            table,
            at: (span.start, span.end),
        }),
        None => Err(wrong_type(value, "a table is expected here")),
    }
}

/// A text.
pub(super) fn text<'t>(value: Placed<'t>) -> Result<&'t str, Diagnostic> {
    let text = value.get_ref().as_str();
    text.ok_or_else(|| wrong_type(value, "a text in quotes is expected here"))
}

/// A whole number.
pub(super) fn integer(value: Placed<'_>) -> Result<i64, Diagnostic> {
    let number = value.get_ref().as_integer().and_then(|number| {
        let digits = number.as_str().replace('_', "");
        i64::from_str_radix(&digits, number.radix()).ok()
    });
    number.ok_or_else(|| wrong_type(value, "a whole number is expected here"))
}

/// Any number.
pub(super) fn real(value: Placed<'_>) -> Result<f64, Diagnostic> {
    match value.get_ref().as_float() {
        Some(float) => {
            let number = float.as_str().replace('_', "").parse().ok();
            number.ok_or_else(|| wrong_type(value, "a number is expected here"))
        }
        None => integer(value)
            .map(|number| number as f64)
            .map_err(|_| wrong_type(value, "a number is expected here")),
    }
}

/// A value of the wrong kind.
pub(super) fn wrong_type(value: Placed<'_>, advice: &str) -> Diagnostic {
    Diagnostic {
        at: value.span(),
        what: format!("wrong type: `{}`", value.get_ref().type_str()),
        advice: advice.into(),
    }
}
