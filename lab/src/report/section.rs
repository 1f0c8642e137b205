//! The parts of the page: a heading, and below it markup and charts in order. The charts are kept as such until the
//! page is written, because they are numbered there, and because each can also be a file of its own.

use crate::report::chart::Chart;
use crate::report::html::escaped;

/// A part of the page with its heading.
pub(super) struct Section {
    /// The anchor.
    pub id: &'static str,
    /// The heading.
    pub title: String,
    /// Its contents; an empty section is left out.
    pub body: Body,
}

impl Section {
    /// A section.
    pub(super) fn new(
        id: &'static str,
        title: impl Into<String>,
        body: impl Into<Body>,
    ) -> Section {
        Section {
            id,
            title: title.into(),
            body: body.into(),
        }
    }
}

/// What stands below a heading.
#[derive(Default)]
pub(super) struct Body(Vec<Block>);

enum Block {
    Markup(String),
    Chart(Chart),
}

impl Body {
    /// Adds markup; an empty one adds nothing.
    pub(super) fn push_html(&mut self, markup: impl Into<String>) {
        let markup = markup.into();
        if !markup.is_empty() {
            self.0.push(Block::Markup(markup));
        }
    }

    /// Adds a chart.
    pub(super) fn push_chart(&mut self, chart: Chart) {
        self.0.push(Block::Chart(chart));
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As it stands in the page; `number` counts the charts of the page.
    pub(super) fn html(&self, number: &mut usize) -> String {
        let block = |block: &Block| match block {
            Block::Markup(markup) => markup.clone(),
            Block::Chart(chart) => {
                *number += 1;
                figure(chart, *number)
            }
        };
        self.0.iter().map(block).collect()
    }

    /// Its charts.
    pub(super) fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.0.iter().filter_map(|block| match block {
            Block::Chart(chart) => Some(chart),
            Block::Markup(_) => None,
        })
    }
}

impl From<String> for Body {
    fn from(markup: String) -> Body {
        let mut body = Body::default();
        body.push_html(markup);
        body
    }
}

impl From<Chart> for Body {
    fn from(chart: Chart) -> Body {
        Body(vec![Block::Chart(chart)])
    }
}

/// A chart with its words and its table.
fn figure(figure: &Chart, number: usize) -> String {
    let id = format!("figure-{number}");
    let open = if figure.table.rows.len() <= 24 {
        " open"
    } else {
        ""
    };
    format!(
        "<figure id=\"{id}\" aria-labelledby=\"{id}-title\">\n<figcaption><h3 \
         id=\"{id}-title\">{}</h3><p>{}</p></figcaption>\n\
         <div class=\"drawing\">{}</div>\n<details{open}><summary>The same as a \
         table</summary>\n{}</details>\n</figure>\n",
        escaped(&figure.title),
        escaped(&figure.note),
        figure.picture.inline(),
        figure.table.html()
    )
}
