//! Every bad text and its exact error message.
//!
//! `bad/` holds the texts that are refused, `unwise/` those that are applied with a warning. Each starts with a comment
//! that describes what is wrong; the snapshot beside it holds the messages.
//! `INSTA_UPDATE=always cargo test -p ipsec --test setkey` rewrites the snapshots after a deliberate change.

use std::fs;
use std::path::Path;

use ipsec::setkey::{Forwarding, Lowered, NoNames, compile, parse};

/// Whether a text is accepted, and its messages.
fn verdict(name: &str, text: &[u8]) -> (bool, String) {
    match compile(text, Forwarding::WithIn, &mut NoNames) {
        Ok(Lowered { warnings, .. }) => {
            let rendered: Vec<_> = warnings
                .iter()
                .map(|warning| warning.render(name, text))
                .collect();
            (true, rendered.join("\n"))
        }
        Err(problems) => {
            let rendered: Vec<_> = problems
                .iter()
                .map(|problem| problem.render(name, text))
                .collect();
            (false, rendered.join("\n"))
        }
    }
}

fn check_folder(folder: &str, expected: bool, at_least: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/setkey")
        .join(folder);
    let mut files: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "setkey")
    });
    files.sort();
    assert!(files.len() >= at_least);
    for path in files {
        let text = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let (accepted, rendered) = verdict(name, &text);
        assert_eq!(accepted, expected, "{name}\n{rendered}");
        assert!(!rendered.is_empty(), "{name}: nothing is said about it");
        insta::with_settings!({snapshot_path => folder, prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!(name.strip_suffix(".setkey").unwrap(), rendered);
        });
    }
}

#[test]
fn every_bad_text_is_refused_in_these_words() {
    check_folder("bad", false, 60);
}

#[test]
fn every_unwise_text_is_obeyed_with_these_warnings() {
    check_folder("unwise", true, 12);
}

/// The sample of ipsec-tools uses obsolete algorithms and protocols: each of them is refused, and nothing else.
#[test]
fn the_old_sample_is_refused_for_what_is_old_in_it() {
    let text = include_bytes!("../vectors/setkey/sample.cf");
    let (accepted, rendered) = verdict("sample.cf", text);
    assert!(!accepted);
    insta::with_settings!({snapshot_path => "bad", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("sample.cf", rendered);
    });
}

#[test]
fn no_message_ever_shows_a_key() {
    let keys = [
        "0x00112233445566778899aabbccddeeff",
        "00112233445566778899aabbccddeeff",
        "\"a secret of mine\"",
        "\"a secret of mine",
    ];
    let lines = [
        "add 192.0.2.1 192.0.2.2 esp 0x1000 -E aes-cbc KEY -A;",
        "add 192.0.2.1 192.0.2.2 esp 0x1000 -E KEY aes-cbc;",
        "add 192.0.2.1 192.0.2.2 esp 0x1000 KEY;",
        "add 192.0.2.1 192.0.2.2 esp KEY;",
        "add 192.0.2.1 192.0.2.2 KEY esp 0x1000;",
        "add KEY 192.0.2.2 esp 0x1000;",
        "add 192.0.2.1 192.0.2.2 esp 0x1000 -r KEY;",
        "add 192.0.2.1 192.0.2.2 esp 0x1000 -m KEY;",
        "add 192.0.2.1 192.0.2.2 esp 0x1000 -A hmac-md5 KEY more;",
        "add 192.0.2.1 192.0.2.2 esp 0x1000 -E null -A hmac-sha1 KEY;",
        "add 192.0.2.1 192.0.2.2 esp 0x1000 -E keyed-md5 KEY -o KEY=1;",
        "KEY;",
        "flush KEY;",
        "spdadd 10.0.0.0/8 KEY any -P out none;",
        "spdadd 10.0.0.0/8 10.0.0.0/8 KEY -P out none;",
        "spdadd 10.0.0.0/8 10.0.0.0/8 any -P out KEY;",
        "spdadd 10.0.0.0/8 10.0.0.0/8 any -P out ipsec esp/transport/KEY;",
    ];
    for line in lines {
        for key in keys {
            let text = line.replace("KEY", key);
            let (_, rendered) = verdict("text", text.as_bytes());
            for part in ["00112233", "778899", "ccddeeff", "secret"] {
                assert!(!rendered.contains(part), "{rendered}");
            }
        }
    }
}

#[test]
fn an_excerpt_cannot_command_a_terminal() {
    let text = b"add 192.0.2.1 \x1b[31mevil\x07 esp 1;";
    let rendered = parse(text).problems[0].render("text", text);
    assert!(!rendered.contains(|character: char| character.is_control() && character != '\n'));
}

#[test]
fn a_flood_of_mistakes_is_cut_off() {
    let text = "nonsense;\n".repeat(10_000);
    assert_eq!(parse(text.as_bytes()).problems.len(), 50);
}
