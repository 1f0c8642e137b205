//! A TOML table with the place of every key and value. A value of the wrong kind is a problem, and is as if it were not
//! there.

use super::findings::{Findings, instead_of};
use super::units;
use ipsec::setkey::{Problem, Span};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table, read by name.
#[derive(Clone, Copy)]
pub(super) struct Table<'t> {
    entries: &'t DeTable<'t>,
    /// Where it begins, for what is missing in it.
    pub(super) at: Span,
    source: &'t str,
    findings: &'t Findings,
}

/// A text with its place.
#[derive(Clone, Copy)]
pub(super) struct Text<'t> {
    /// What it is.
    pub(super) text: &'t str,
    /// Where it stands, quotes included.
    pub(super) at: Span,
    source: &'t str,
}

type Placed<'t> = &'t Spanned<DeValue<'t>>;

impl<'t> Table<'t> {
    /// The whole file.
    pub(super) fn of_file(
        file: &'t Spanned<DeTable<'t>>,
        source: &'t str,
        findings: &'t Findings,
    ) -> Self {
        Self {
            entries: file.get_ref(),
            at: Span::default(),
            source,
            findings,
        }
    }

    /// Where problems go.
    pub(super) fn findings(&self) -> &'t Findings {
        self.findings
    }

    /// Keys that are not among the known ones are problems. `what` is what the table is called.
    pub(super) fn only(&self, known: &[&str], what: &str) {
        let strangers = self.entries.keys();
        for key in strangers.filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let word = key.get_ref();
            let problem = Problem::new(span(key), format!("{what} has no key `{word}`"));
            self.findings
                .problem(problem.advise(instead_of(word, known)));
        }
    }

    /// Where the key of this name stands, if it is there.
    pub(super) fn place(&self, name: &str) -> Option<Span> {
        Some(span(self.entries.get_key_value(name)?.0))
    }

    /// Whether it has this key.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The text of this name.
    pub(super) fn text(&self, name: &str) -> Option<Text<'t>> {
        self.as_text(name, self.entries.get(name)?)
    }

    /// The text, or the texts of a list, of this name.
    pub(super) fn texts(&self, name: &str) -> Option<Vec<Text<'t>>> {
        let value = self.entries.get(name)?;
        let Some(list) = value.get_ref().as_array() else {
            return Some(vec![self.as_text(name, value)?]);
        };
        if list.is_empty() {
            let problem = Problem::new(span(value), format!("the list `{name}` is empty"));
            self.findings
                .problem(problem.advise("fill it, or remove the key"));
            return None;
        }
        let texts: Vec<_> = list.iter().map(|value| self.as_text(name, value)).collect();
        texts.into_iter().collect()
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        let value = self.entries.get(name)?;
        let flag = value.get_ref().as_bool();
        self.or_wrong_kind(flag, name, value, "true or false, without quotes")
    }

    /// A whole number.
    pub(super) fn number(&self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.entries.get(name)?;
        let number = self.or_wrong_kind(integer(value), name, value, "a whole number")?;
        let fits = u64::try_from(number)
            .ok()
            .filter(|number| range.contains(number));
        if fits.is_none() {
            let (least, most) = (range.start(), range.end());
            let problem = Problem::new(span(value), format!("`{name}` cannot be {number}"));
            self.findings
                .problem(problem.advise(format!("a number from {least} to {most}")));
        }
        fits
    }

    /// A duration with its unit.
    pub(super) fn duration(&self, name: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let value = self.entries.get(name)?;
        if let Some(number) = integer(value) {
            let problem = Problem::new(span(value), format!("`{name}` needs a unit"));
            let advice =
                format!("write \"{number}s\" for seconds; m, h and d are minutes, hours and days");
            self.findings.problem(problem.advise(advice));
            return None;
        }
        let text = self.as_text(name, value)?;
        let duration = units::duration(text.text)
            .map_err(|advice| {
                Problem::new(text.at, format!("`{}` is no duration", text.text))
                    .advise(advice.to_string())
            })
            .and_then(|duration| {
                if range.contains(&duration) {
                    Ok(duration)
                } else {
                    let bounds = [range.start(), range.end()].map(|bound| units::shown(*bound));
                    let problem =
                        Problem::new(text.at, format!("`{name}` cannot be {}", text.text));
                    Err(problem.advise(format!("from {} to {}", bounds[0], bounds[1])))
                }
            });
        self.findings.keep(duration)
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let found = words.iter().find(|(word, _)| *word == text.text);
        if found.is_none() {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let problem = Problem::new(text.at, format!("`{name}` cannot be \"{}\"", text.text));
            let near = instead_of(text.text, &known);
            let all = known.join("\", \"");
            self.findings
                .problem(problem.advise(if near.starts_with("did") {
                    format!("{near} It is one of \"{all}\"")
                } else {
                    format!("write one of \"{all}\"")
                }));
        }
        found.map(|(_, value)| *value)
    }

    /// The table of this name.
    pub(super) fn table(&self, name: &str) -> Option<Table<'t>> {
        let (key, value) = self.entries.get_key_value(name)?;
        self.as_table(name, span(key), value)
    }

    /// Every table in the table of this name, in the order of the file.
    pub(super) fn tables(&self, name: &str) -> Vec<(Text<'t>, Table<'t>)> {
        let Some(outer) = self.table(name) else {
            return Vec::new();
        };
        let mut tables: Vec<_> = outer.entries.iter().collect();
        tables.sort_by_key(|(key, _)| key.span().start);
        let named = |(key, value): (&'t Spanned<_>, Placed<'t>)| {
            let name = self.named(key);
            Some((name, self.as_table(name.text, name.at, value)?))
        };
        tables.into_iter().filter_map(named).collect()
    }

    /// Whether a key stands as a text rather than as a table, list, number or flag.
    pub(super) fn is_text(&self, name: &str) -> bool {
        let value = self.entries.get(name);
        value.is_some_and(|value| value.get_ref().is_str())
    }

    /// Keys of the table and values as they would stand on a command line; lists of texts have several.
    pub(super) fn words(&self, name: &str) -> Option<(Span, Vec<String>)> {
        let value = self.entries.get(name)?;
        let words = match value.get_ref() {
            DeValue::Integer(_) => vec![integer(value)?.to_string()],
            DeValue::Boolean(flag) => vec![flag.to_string()],
            _ => {
                let texts = self.texts(name)?;
                texts.iter().map(|text| text.text.to_owned()).collect()
            }
        };
        Some((span(value), words))
    }

    /// A problem with the value of this name, or with the table where there is none.
    pub(super) fn problem_at(&self, name: &str, message: impl Into<String>) -> Problem {
        let value = self.entries.get(name).map(span);
        Problem::new(value.unwrap_or(self.at), message)
    }

    fn as_text(&self, name: &str, value: Placed<'t>) -> Option<Text<'t>> {
        let text = value.get_ref().as_str();
        let text = self.or_wrong_kind(text, name, value, "text in quotes")?;
        Some(Text {
            text,
            at: span(value),
            source: self.source,
        })
    }

    fn as_table(&self, name: &str, at: Span, value: Placed<'t>) -> Option<Table<'t>> {
        let entries = value.get_ref().as_table();
        let entries = self.or_wrong_kind(
            entries,
            name,
            value,
            "a table, as in `{ … }` or under its [name]",
        )?;
        Some(Table {
            entries,
            at,
            ..*self
        })
    }

    fn named(&self, key: &'t Spanned<toml::de::DeString<'t>>) -> Text<'t> {
        Text {
            text: key.get_ref(),
            at: span(key),
            source: self.source,
        }
    }

    fn or_wrong_kind<T>(
        &self,
        found: Option<T>,
        name: &str,
        value: Placed<'t>,
        expected: &str,
    ) -> Option<T> {
        if found.is_none() {
            let kind = kind(value.get_ref());
            let problem = Problem::new(span(value), format!("`{name}` is {kind} here"));
            self.findings
                .problem(problem.advise(format!("write {expected}")));
        }
        found
    }
}

impl Text<'_> {
    /// The place of some bytes of the text; of the whole text where it is written with escapes.
    pub(super) fn part(&self, start: usize, len: usize) -> Span {
        let written = self.source.get(self.at.start..self.at.end);
        let is_plain = written.and_then(|written| written.get(1..written.len().saturating_sub(1)))
            == Some(self.text);
        if is_plain {
            Span::new(self.at.start + 1 + start, self.at.start + 1 + start + len)
        } else {
            self.at
        }
    }
}

fn integer(value: Placed<'_>) -> Option<i64> {
    let number = value.get_ref().as_integer()?;
    i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The place of a key or value.
pub(super) fn span<T>(placed: &Spanned<T>) -> Span {
    let range = placed.span();
    Span::new(range.start, range.end)
}
