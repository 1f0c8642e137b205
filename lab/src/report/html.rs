//! The little HTML that a report needs: escaped text, and tables whose headers are marked as such.

use std::fmt::Write;

/// Text as it must stand between tags and in attributes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Of no use in a page, and not allowed in it.
            letter if letter.is_control() && !letter.is_whitespace() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TableCell {
    text: String,
    value: Option<f64>,
    number: bool,
}

impl TableCell {
    /// Words.
    pub fn text(text: impl Into<String>) -> TableCell {
        TableCell {
            text: text.into(),
            ..TableCell::default()
        }
    }

    /// A number as it is shown, and as it was measured where a chart draws it too.
    pub fn number(text: impl Into<String>, value: Option<f64>) -> TableCell {
        TableCell {
            text: text.into(),
            value,
            number: true,
        }
    }

    /// Words, or a dash where there are none.
    pub fn words(text: &str) -> TableCell {
        TableCell::text(if text.is_empty() { "–" } else { text })
    }

    /// A number as [`TableCell::number`], or a dash where there is none.
    pub fn maybe(text: Option<String>, value: Option<f64>) -> TableCell {
        TableCell::number(text.unwrap_or_else(|| "–".into()), value)
    }

    fn html(&self, tag: &str, scope: &str) -> String {
        let class = if self.number { " class=\"n\"" } else { "" };
        let value = self
            .value
            .map_or_else(String::new, |value| format!(" data-value=\"{value}\""));
        format!(
            "<{tag}{scope}{class}{value}>{}</{tag}>",
            escaped(&self.text)
        )
    }
}

/// A table; the first cell of each row names the row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// What it holds.
    pub caption: String,
    /// The names of the columns.
    pub head: Vec<TableCell>,
    /// The rows.
    pub rows: Vec<Vec<TableCell>>,
}

impl Table {
    /// A table with these columns and no row yet. Columns after the first are numbers where their name begins with `#`.
    pub fn new(caption: impl Into<String>, head: &[&str]) -> Table {
        let cell = |name: &&str| match name.strip_prefix('#') {
            Some(name) => TableCell::number(name, None),
            None => TableCell::text(*name),
        };
        Table {
            caption: caption.into(),
            head: head.iter().map(cell).collect(),
            rows: Vec::new(),
        }
    }

    /// The table with its scroll area, which a keyboard can reach.
    pub fn html(&self) -> String {
        let caption = escaped(&self.caption);
        let head: String = self
            .head
            .iter()
            .map(|cell| cell.html("th", " scope=\"col\""))
            .collect();
        let mut out = format!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{caption}\">\
             <table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>\n"
        );
        for row in &self.rows {
            let cells = row.iter().enumerate().map(|(place, cell)| match place {
                0 => cell.html("th", " scope=\"row\""),
                _ => cell.html("td", ""),
            });
            let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
        }
        out + "</tbody></table></div>\n"
    }
}

/// Names and what they are, as a definition list.
pub fn definitions(facts: &[(&str, String)]) -> String {
    let items: String = facts
        .iter()
        .map(|(name, text)| {
            format!(
                "<div><dt>{}</dt><dd>{}</dd></div>\n",
                escaped(name),
                escaped(text)
            )
        })
        .collect();
    format!("<dl>\n{items}</dl>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let wild = "<b onclick='x'>\"&\u{7}";
        assert_eq!(
            escaped(wild),
            "&lt;b onclick=&#39;x&#39;&gt;&quot;&amp;\u{fffd}"
        );
    }

    #[test]
    fn a_table_names_its_rows_and_columns() {
        let mut table = Table::new("What & why", &["who", "#how much"]);
        table.rows.push(vec![
            TableCell::text("a<b"),
            TableCell::number("5.00", Some(4.998)),
        ]);
        let html = table.html();
        assert!(html.contains("<caption>What &amp; why</caption>"), "{html}");
        assert!(
            html.contains("<th scope=\"col\" class=\"n\">how much</th>"),
            "{html}"
        );
        assert!(
            html.contains(
                "<th scope=\"row\">a&lt;b</th><td class=\"n\" data-value=\"4.998\">5.00</td>"
            ),
            "{html}"
        );
    }
}
