//! Texts that others wrote: each is understood in full, statement by statement, and survives printing.

use ipsec::setkey::ast::*;
use ipsec::setkey::{parse, print};

const SAMPLE: &[u8] = include_bytes!("../vectors/setkey/sample.cf");
const POLICY01: &[u8] = include_bytes!("../vectors/setkey/sample-policy01.cf");
const POLICY02: &[u8] = include_bytes!("../vectors/setkey/sample-policy02.cf");
const MANUAL: &[u8] = include_bytes!("../vectors/setkey/setkey.8-examples.setkey");
const STUDY2_PRINTED: &[u8] = include_bytes!("study2-printed-client.setkey");
const STUDY2_CORRECTED: &[u8] = include_bytes!("study2-corrected-client.setkey");
const STUDY3: &[u8] = include_bytes!("study3.setkey");

fn understood(text: &[u8]) -> File {
    let parsed = parse(text);
    let complaints: Vec<_> = parsed
        .problems
        .iter()
        .map(|problem| problem.render("text", text))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.concat());
    parsed.file
}

/// How many statements of each kind the parser found.
fn counted(file: &File) -> Vec<(&'static str, usize)> {
    let mut counts: Vec<(&'static str, usize)> = Vec::new();
    for statement in &file.statements {
        let name = verb(&statement.node);
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    counts.sort_unstable();
    counts
}

fn verb(statement: &Statement) -> &'static str {
    match statement {
        Statement::Add(_) => "add",
        Statement::Update(_) => "update",
        Statement::GetSpi(_) => "getspi",
        Statement::Get(_) => "get",
        Statement::Delete(_) => "delete",
        Statement::DeleteAll(_) => "deleteall",
        Statement::Flush(_) => "flush",
        Statement::Dump(_) => "dump",
        Statement::SpdAdd(_) => "spdadd",
        Statement::SpdUpdate(_) => "spdupdate",
        Statement::SpdDelete(_) => "spddelete",
        Statement::SpdGet(_) => "spdget",
        Statement::SpdFlush => "spdflush",
        Statement::SpdDump => "spddump",
        Statement::Exit => "exit",
    }
}

/// The same count by a much simpler reading: the first word of whatever stands between semicolons.
fn counted_naively(text: &[u8]) -> Vec<(String, usize)> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let bare: Vec<_> = lines.collect();
    let mut counts: Vec<(String, usize)> = Vec::new();
    for word in bare
        .join("\n")
        .split(';')
        .filter_map(|part| part.split_whitespace().next())
    {
        match counts.iter_mut().find(|(known, _)| known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word.to_owned(), 1)),
        }
    }
    counts.sort_unstable();
    counts
}

#[test]
fn every_statement_of_every_sample_is_understood_and_none_is_invented() {
    for text in [
        SAMPLE,
        POLICY01,
        POLICY02,
        MANUAL,
        STUDY2_PRINTED,
        STUDY2_CORRECTED,
        STUDY3,
    ] {
        let ours: Vec<_> = counted(&understood(text))
            .into_iter()
            .map(|(word, n)| (word.to_owned(), n))
            .collect();
        assert_eq!(ours, counted_naively(text));
    }
    assert_eq!(understood(SAMPLE).statements.len(), 59);
}

#[test]
fn every_sample_means_the_same_after_printing() {
    for text in [
        SAMPLE,
        POLICY01,
        POLICY02,
        MANUAL,
        STUDY2_PRINTED,
        STUDY2_CORRECTED,
        STUDY3,
    ] {
        let file = understood(text);
        assert!(understood(&print(&file)) == file);
    }
}

#[test]
fn a_sample_is_read_to_its_last_detail() {
    let file = understood(SAMPLE);
    let adds = file
        .statements
        .iter()
        .filter_map(|statement| match &statement.node {
            Statement::Add(entry) => Some(entry),
            _ => None,
        });
    let entry = adds
        .into_iter()
        .find(|entry| entry.name.spi.node == 10016)
        .unwrap();
    let extensions = &entry.name.extensions;
    assert_eq!(
        extensions.mode,
        Some(At::new(ModeWord::Tunnel, Default::default()))
    );
    assert_eq!(
        extensions.padding,
        Some(At::new(Padding::Random, Default::default()))
    );
    assert_eq!(extensions.replay, Some(At::new(8, Default::default())));
    assert_eq!(
        extensions.hard_seconds,
        Some(At::new(100, Default::default()))
    );
    assert_eq!(
        extensions.soft_seconds,
        Some(At::new(80, Default::default()))
    );
    let encryption = &entry.encryption.as_ref().unwrap().node;
    assert_eq!((&*encryption.name.node, &encryption.key), ("null", &None));
}

#[test]
fn a_key_is_the_same_in_hexadecimal_and_in_quotes() {
    let file = understood(b"add 192.0.2.1 192.0.2.2 esp 1 -E des-cbc \"kamekame\"; add 192.0.2.1 192.0.2.2 esp 1 -E des-cbc 0x6b616d656b616d65;");
    let keys: Vec<_> = file
        .statements
        .iter()
        .map(|statement| match &statement.node {
            Statement::Add(entry) => entry
                .encryption
                .as_ref()
                .unwrap()
                .node
                .key
                .as_ref()
                .unwrap()
                .node
                .clone(),
            _ => unreachable!("only adds were written"),
        })
        .collect();
    assert_eq!(keys[0].secret().expose(), keys[1].secret().expose());
    assert_eq!(keys[0].secret().expose(), b"kamekame");
}

#[test]
fn an_odd_number_of_digits_gets_a_zero_in_front() {
    let file = understood(b"add 192.0.2.1 192.0.2.2 esp 1 -E des-cbc 0xabc;");
    let printed = print(&file);
    assert_eq!(
        &printed[..],
        b"add 192.0.2.1 192.0.2.2 esp 0x1 -E des-cbc 0x0abc;\n"
    );
}

#[test]
fn nothing_is_read_behind_exit() {
    for word in ["exit", "quit", "bye"] {
        let file = understood(format!("flush; {word}; this is no setkey").as_bytes());
        assert_eq!(file.statements.len(), 2);
    }
}

#[test]
fn blanks_comments_and_line_ends_are_as_they_please() {
    let plain = understood(b"spdadd 10.0.0.0/8[21] 192.0.2.0/24[any] tcp -P out prio high - 5 ipsec esp/tunnel/192.0.2.1[4500]-192.0.2.2[30000]/unique:7;");
    let spread = understood(b"\xef\xbb\xbfspdadd # who\r\n 10.0.0.0 / 8 [ 21 ]\t192.0.2.0/24[any] tcp\n-P out priority high -5 # so there;\nipsec esp/tunnel/192.0.2.1[4500] - 192.0.2.2[30000]/unique:7\n;# end");
    assert!(plain == spread);
}

#[test]
fn every_form_of_a_template_is_read() {
    let forms = [
        ("esp/transport", "esp/transport//default"),
        ("esp/transport/", "esp/transport//default"),
        ("esp/transport//use", "esp/transport//use"),
        (
            "ah/tunnel/10.0.0.1-10.0.0.2",
            "ah/tunnel/10.0.0.1-10.0.0.2/default",
        ),
        (
            "ah/tunnel/10.0.0.1-10.0.0.2/",
            "ah/tunnel/10.0.0.1-10.0.0.2/default",
        ),
        (
            "esp/tunnel/::1-::2/ ah/transport//require",
            "esp/tunnel/::1-::2/default ah/transport//require",
        ),
        (
            "ipcomp/transport/me-any/unique",
            "ipcomp/transport/me-any/unique",
        ),
        (
            "esp/tunnel/any-me/unique:32767",
            "esp/tunnel/any-me/unique:32767",
        ),
        (
            "esp/tunnel/fe80::1%eth0-fe80::2%eth0/require",
            "esp/tunnel/fe80::1%eth0-fe80::2%eth0/require",
        ),
    ];
    for (written, canonical) in forms {
        let file = understood(format!("spdadd ::/0 ::/0 any -P out ipsec {written};").as_bytes());
        let printed = String::from_utf8(print(&file).to_vec()).unwrap();
        assert_eq!(
            printed,
            format!("spdadd ::/0 ::/0 any -P out ipsec {canonical};\n")
        );
    }
}

#[test]
fn every_form_of_an_upper_layer_is_read() {
    let forms = [
        ("any", "any"),
        ("ip", "any"),
        ("0", "any"),
        ("255", "any"),
        ("6", "tcp"),
        ("icmp6", "ipv6-icmp"),
        ("icmp6 135,0", "ipv6-icmp 135,0"),
        ("icmp 8", "icmp 8"),
        ("gre 1234", "gre 1234"),
        ("gre 0.0.4.210", "gre 1234"),
        ("253", "253"),
    ];
    for (written, canonical) in forms {
        let file = understood(format!("spdadd ::/0 ::/0 {written} -P in none;").as_bytes());
        let printed = String::from_utf8(print(&file).to_vec()).unwrap();
        assert_eq!(
            printed,
            format!("spdadd ::/0 ::/0 {canonical} -P in none;\n")
        );
    }
}
