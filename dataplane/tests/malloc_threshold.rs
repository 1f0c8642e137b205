//! What buffers cost, by the kernel's accounting. Alone in its process: memory of other tests would be counted too.

use dataplane::io::{MAX_ITEM_BYTES, set_malloc_threshold};
use std::process::Command;
use std::{env, fs};

/// Kilobytes of anonymous memory of this process.
fn anonymous() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel reports this process");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.parse().ok())
        .expect("a number of kilobytes")
}

fn buffer() -> Vec<u8> {
    vec![0; 64 * MAX_ITEM_BYTES]
}

/// Whether `body` holds in a process whose threads all share one heap, as those of a program's main thread do.
fn in_one_heap(test: &str, body: fn()) {
    const SWITCH: &str = "MALLOC_ARENA_MAX";
    if env::var_os(SWITCH).is_some() {
        return body();
    }
    let program = env::current_exe().expect("this test is a program");
    let mut again = Command::new(program);
    let status = again.args(["--exact", test]).env(SWITCH, "1").status();
    assert!(status.expect("it starts").success());
}

#[test]
fn a_buffer_costs_nothing_until_it_is_used_though_another_was_freed() {
    let test = "a_buffer_costs_nothing_until_it_is_used_though_another_was_freed";
    in_one_heap(test, || {
        set_malloc_threshold();
        let before = anonymous();
        for _ in 0..4 {
            drop(buffer());
        }
        let buffers = [buffer(), buffer(), buffer()];
        let grown = anonymous() - before;
        assert!(
            grown < 1024,
            "three buffers of 4 MB cost {grown} KB at rest"
        );
        drop(buffers);
    });
}
