// Part of the tests called fuzz_corpora, each of which includes this file: runs a corpus through its fuzz target, with
// no sanitizer.

use std::fs;
use std::path::Path;

/// The least files of a corpus.
const LEAST: usize = 20;

/// Each file whole, cut short, and with bytes changed.
pub fn replay(corpus: &str, body: fn(&[u8])) {
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
    assert!(files >= LEAST, "{files} files in {}", folder.display());
}

/// Short files are varied at every byte, long ones at about a hundred.
fn vary(data: &[u8], body: fn(&[u8])) {
    let step = data.len() / 100 + 1;
    for len in (0..data.len()).step_by(step) {
        body(&data[..len]);
    }
    let mut changed = data.to_vec();
    for at in (0..data.len()).step_by(step) {
        for flip in [0x01, 0x80, 0xff] {
            changed[at] ^= flip;
            body(&changed);
            changed[at] ^= flip;
        }
    }
}
