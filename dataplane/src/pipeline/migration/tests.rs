use super::*;
use std::path::Path;

/// As Linux 6.18 writes it; the second processor is missing, as one that was taken offline.
const TABLE: &[u8] = b"01145735 00000000 00000003 00000000 00000000 00000000 00000000 00000000 00000000 0013cf6a 00000000 00000000 00000000 00000000 00000000
00768c86 00000000 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0000002a 00000002 00000028 00000002
";

#[test]
fn a_backlog_is_found_by_the_number_of_its_processor() {
    assert_eq!(backlog(TABLE, 0), Some(0));
    assert_eq!(backlog(TABLE, 1), None);
    assert_eq!(backlog(TABLE, 2), Some(42));
    assert_eq!(backlog(b"", 0), None);
    // Kernels before 5.10 had eleven numbers.
    assert_eq!(
        backlog(b"1 2 3 4 5 6 7 8 9 a b\n1 2 3 4 5 6 7 8 9 a b c\n", 0),
        None
    );
    assert_eq!(backlog(b"1 2 3 4 5 6 7 8 9 a b zz 0\n", 0), None);
}

#[test]
fn the_backlog_of_each_allowed_processor_is_read_from_the_kernel() {
    let mut backlogs = Backlogs::open().unwrap();
    // A first look with too little room grows it.
    backlogs.text = vec![0; 7];
    for cpu in super::super::affinity::allowed().unwrap() {
        assert!(backlogs.read(cpu).is_some(), "processor {cpu}");
    }
    assert_eq!(backlogs.read(usize::MAX), None);
    assert!(backlogs.text.len() > 100);
}

/// What waits by the table in this file, which never changes.
fn crossing_with(table: &Path, text: &str) -> MigrationGuard {
    std::fs::write(table, text).unwrap();
    let backlogs = Backlogs {
        file: std::fs::File::open(table).unwrap().into(),
        text: vec![0; 4096],
    };
    MigrationGuard {
        last: None,
        backlogs: Some(backlogs),
    }
}

fn line(waiting: u32, processor: usize) -> String {
    format!("{}{waiting:08x} {processor:08x} 0 0\n", "0 ".repeat(11))
}

#[test]
fn only_a_thread_that_has_moved_looks_and_it_waits_for_what_it_left() {
    let cpus = super::super::affinity::allowed().unwrap();
    let [first, .., last] = cpus[..] else {
        return; // Nobody moves on one processor.
    };
    let table = std::env::temp_dir().join(format!("backlogs-{}", std::process::id()));
    let mut migration = crossing_with(&table, &(line(3, first) + &line(0, last)));
    let on = |cpu| super::super::affinity::pin(&[cpu]).unwrap();
    let worker = std::thread::spawn(move || {
        on(first);
        assert_eq!(migration.wait_for_backlog(), Migration::None);
        assert_eq!(migration.wait_for_backlog(), Migration::None);
        on(last);
        assert_eq!(migration.wait_for_backlog(), Migration::Waited);
        assert_eq!(migration.wait_for_backlog(), Migration::None);
        on(first);
        // What it left on the last one was empty.
        assert_eq!(migration.wait_for_backlog(), Migration::Drained);
    });
    worker.join().unwrap();
    std::fs::remove_file(table).unwrap();
}
