//! Wycheproof's cases, each with the result that it expects.

use std::{fs::File, path::Path};

use flate2::read::GzDecoder;
use serde::Deserialize;

mod wycheproof {
    pub mod key_exchange;
    pub mod signatures;
}

/// A file of cases.
#[derive(Deserialize)]
struct Cases<Group> {
    #[serde(rename = "numberOfTests")]
    number: usize,
    #[serde(rename = "testGroups")]
    groups: Vec<Group>,
}

fn cases<Group: for<'a> Deserialize<'a>>(name: &str) -> Cases<Group> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/wycheproof");
    let file =
        File::open(folder.join(format!("{name}_test.json.gz"))).expect("a file of the repository");
    serde_json::from_reader(GzDecoder::new(file)).expect("Wycheproof's format")
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}
