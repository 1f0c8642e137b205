//! The fuzzer's body for captures over its corpus, on every toolchain: each file whole, cut short, and with bytes
//! changed. `fuzz/` holds the target that searches further.

use std::fs;
use std::path::Path;

#[test]
fn captures_are_read_without_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/capture_file");
    let mut files = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is part of the repository") {
        let path = entry.expect("readable").path();
        println!("{}", path.display());
        vary(fs::read(&path).expect("readable"));
        files += 1;
    }
    assert!(files >= 20, "{files} files in {}", folder.display());
}

fn vary(mut data: Vec<u8>) {
    let body = gateway::capture::check_any_file;
    body(&data);
    for len in 0..data.len() {
        body(&data[..len]);
    }
    for at in 0..data.len() {
        for flip in [0x01, 0x80, 0xff] {
            data[at] ^= flip;
            body(&data);
            data[at] ^= flip;
        }
    }
}
