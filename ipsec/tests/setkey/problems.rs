//! Every bad text and the exact words it is refused with.
//!
//! `bad/` holds the texts. Each starts with a comment that says what is wrong; the snapshot beside it is what a user
//! reads. `INSTA_UPDATE=always cargo test -p ipsec --test setkey` rewrites the snapshots after a deliberate change.

use std::fs;
use std::path::Path;

use ipsec::setkey::parse;

#[test]
fn every_bad_text_is_refused_in_these_words() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/setkey/bad");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "setkey")
    });
    files.sort();
    assert!(files.len() >= 20);
    for path in files {
        let text = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let problems = parse(&text).problems;
        assert!(!problems.is_empty(), "{name} is not bad");
        let rendered: Vec<_> = problems
            .iter()
            .map(|problem| problem.render(&name, &text))
            .collect();
        insta::with_settings!({snapshot_path => "bad", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!(name.strip_suffix(".setkey").unwrap(), rendered.join("\n"));
        });
    }
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
            for problem in parse(text.as_bytes()).problems {
                let rendered = problem.render("text", text.as_bytes());
                for part in ["00112233", "778899", "ccddeeff", "secret"] {
                    assert!(!rendered.contains(part), "{rendered}");
                }
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
