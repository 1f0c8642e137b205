//! Provenance: machine, kernel, versions, configurations, and the command that repeats the run.

use super::date;
use crate::report::canary::{CanaryCounts, canary_counts};
use crate::report::findings::Findings;
use crate::report::html::{Table, TableCell, definitions, escaped};
use crate::report::quantity::counted;
use crate::report::section::Section;

/// One line below the title.
pub(super) fn place_and_time(findings: &Findings) -> String {
    let place = &findings.any.provenance;
    let began = findings.records.iter().map(|record| record.started_unix);
    let began = date::text(began.fold(f64::INFINITY, f64::min));
    format!(
        "{began} · {} · {} · Linux {} · {}",
        place.cpu,
        counted(place.cpus, "processor"),
        place.kernel,
        place.system
    )
}

/// The section.
pub(super) fn section(findings: &Findings, configurations: &[(String, String)]) -> Section {
    let place = &findings.any.provenance;
    let mut facts = vec![
        (
            "Machine",
            format!(
                "{}, {}, {:.1} GB of memory",
                place.cpu,
                counted(place.cpus, "processor"),
                place.memory_bytes as f64 / 1e9
            ),
        ),
        ("Processor flags", place.cpu_flags.join(" ")),
        (
            "System",
            format!("Linux {}, {}", place.kernel, place.system),
        ),
        ("Testbed", place.testbed.clone()),
        ("Seed", findings.any.seed.to_string()),
        ("Command", place.command.clone()),
        ("Canary", canary(&canary_counts(findings.records))),
    ];
    facts.extend(
        place
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone())),
    );
    facts.extend(drift(findings).map(|drift| ("Changed during the run", drift)));
    let mut body = definitions(&facts);
    body += &pairs("Versions", "program", "version", place.versions.iter());
    body += &pairs(
        "CPU vulnerability mitigations (they cost time)",
        "vulnerability",
        "mitigation",
        place.mitigations.iter(),
    );
    body += &notes(findings);
    body += &masked_files(configurations);
    Section::new("provenance", "Provenance", body)
}

/// What changed where a run was resumed on another machine or after an update.
fn drift(findings: &Findings) -> Option<String> {
    let first = &findings.any.provenance;
    let changes = findings
        .records
        .iter()
        .flat_map(|record| first.changes(&record.provenance));
    let mut all: Vec<String> = Vec::new();
    for change in changes {
        if !all.contains(&change) {
            all.push(change);
        }
    }
    (!all.is_empty()).then(|| all.join("; "))
}

fn canary(seen: &CanaryCounts) -> String {
    let number = |count: Option<usize>| {
        count.map_or_else(|| "not checked".into(), |count| count.to_string())
    };
    format!(
        "the known text was seen {} × on the client's side, {} × on a plain wire, {} × on protected wires",
        number(seen.client_side),
        number(seen.plain_wire),
        number(seen.protected_wire)
    )
}

fn pairs<'a>(
    caption: &str,
    name: &str,
    value: &str,
    pairs: impl Iterator<Item = (&'a String, &'a String)>,
) -> String {
    let mut table = Table::new(caption, &[name, value]);
    table
        .rows
        .extend(pairs.map(|(name, value)| vec![TableCell::text(name), TableCell::text(value)]));
    if table.rows.is_empty() {
        String::new()
    } else {
        table.html()
    }
}

fn notes(findings: &Findings) -> String {
    let noted = findings.records.iter().flat_map(|record| {
        let notes = record.notes.iter();
        notes.map(move |note| format!("trial {}, {}: {note}", record.trial, record.label))
    });
    let items: String = noted
        .map(|note| format!("<li>{}</li>\n", escaped(&note)))
        .collect();
    if items.is_empty() {
        String::new()
    } else {
        format!("<h3>Notes</h3>\n<ul>\n{items}</ul>\n")
    }
}

fn masked_files(configurations: &[(String, String)]) -> String {
    let files = configurations.iter().map(|(name, text)| {
        format!(
            "<details><summary>{}</summary><pre>{}</pre></details>\n",
            escaped(name),
            escaped(&masked(text))
        )
    });
    let files: String = files.collect();
    if files.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Configurations</h3>\n<p>Keys are masked; the folder of the run has them.</p>\n{files}"
    )
}

/// Long hexadecimal numbers and words that follow `secret` are keys; pages are shared.
fn masked(text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches([';', '"', ',']);
        let digits = bare
            .trim_start_matches(['"', '\''])
            .trim_start_matches("0x");
        let key = digits.len() >= 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if key {
            format!("0x…{}", &word[bare.len()..])
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| match line.trim_start().strip_prefix("secret") {
        Some(rest) if rest.trim_start().starts_with('=') => "secret = …".to_owned(),
        _ => line.split(' ').map(word).collect::<Vec<_>>().join(" "),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn keys_do_not_reach_the_page() {
        let text = "add 192.0.2.1 192.0.2.2 esp 0x1001 -E aes-gcm-16 0x00112233445566778899aabbccddeeff00112233;\n  \
        secret = \"x y\"";
        assert_eq!(
            masked(text),
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -E aes-gcm-16 0x…;\nsecret = …"
        );
    }
}
