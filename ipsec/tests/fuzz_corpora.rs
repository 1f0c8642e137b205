//! The fuzzer's bodies over its corpora, on every toolchain: each file whole, cut short, and with bytes changed.
//! `fuzz/` holds the targets that search further.

use std::fs;
use std::path::Path;

fn replay(corpus: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(corpus);
    let mut files = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is part of the repository") {
        let path = entry.expect("readable").path();
        let data = fs::read(&path).expect("readable");
        println!("{}", path.display());
        body(&data);
        vary(&data, body);
        files += 1;
    }
    assert!(files >= 20, "{files} files in {}", folder.display());
}

/// Short files are varied at every byte, long ones at about a hundred.
fn vary(data: &[u8], body: fn(&[u8])) {
    let step = data.len() / 100 + 1;
    for len in (0..data.len()).step_by(step) {
        body(&data[..len]);
    }
    let mut changed = data.to_vec();
    for at in (0..data.len()).step_by(step) {
        for flip in [0x01, 0xff] {
            changed[at] ^= flip;
            body(&changed);
            changed[at] ^= flip;
        }
    }
}

#[test]
fn setkey_texts_are_parsed_without_a_panic() {
    replay("setkey_text", ipsec::setkey::check_any_text);
}

#[test]
fn headers_are_read_without_a_panic() {
    replay("wire_headers", ipsec::wire::fuzz_body::headers);
}

#[test]
fn fragments_are_joined_without_a_panic() {
    replay("fragments", ipsec::wire::fuzz_body::fragments);
}

#[test]
fn payloads_are_taken_apart_without_a_panic() {
    replay("aggfrag", ipsec::aggfrag::fuzz_body::payloads);
}

#[test]
fn packets_are_opened_without_a_panic() {
    replay("packet_open", ipsec::esp::fuzz_body::packets);
}

#[test]
fn packets_with_ah_are_checked_without_a_panic() {
    replay("ah_check", ipsec::ah::fuzz_body::packets);
}
