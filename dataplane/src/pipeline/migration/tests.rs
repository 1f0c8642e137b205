use super::super::affinity;
use super::*;
use std::path::Path;

/// As Linux 6.18 writes it; the second processor is missing, as one that was taken offline.
const TABLE: &[u8] = b"01145735 00000000 00000003 00000000 00000000 00000000 00000000 00000000 00000000 0013cf6a 00000000 00000000 00000000 00000000 00000000
00768c86 00000000 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0000002a 00000002 00000028 00000002
";

#[test]
fn a_backlog_is_found_by_the_number_of_its_processor() {
    let waiting = |table, processor| backlog(table, processor).map(|backlog| backlog.waiting);
    assert_eq!(waiting(TABLE, 0), Some(0));
    assert_eq!(backlog(TABLE, 0).unwrap().processed, 0x0114_5735);
    assert_eq!(backlog(TABLE, 1), None);
    assert_eq!(waiting(TABLE, 2), Some(42));
    assert_eq!(backlog(b"", 0), None);
    // Kernels before 5.10 had eleven numbers.
    assert_eq!(
        backlog(b"1 2 3 4 5 6 7 8 9 a b\n1 2 3 4 5 6 7 8 9 a b c\n", 0),
        None
    );
    assert_eq!(backlog(b"1 2 3 4 5 6 7 8 9 a b zz 0\n", 0), None);
}

#[test]
fn a_processor_that_does_not_work_is_waited_for_longer() {
    let backlog = |processed, waiting| Backlog { processed, waiting };
    let begin = backlog(u32::MAX - 9, 10);
    assert_eq!(backlog(u32::MAX, 64).timeout(begin), IDLE_BACKLOG_TIMEOUT);
    // Forty packets, so that the ten have passed four cables.
    assert_eq!(backlog(29, 64).timeout(begin), IDLE_BACKLOG_TIMEOUT);
    assert_eq!(backlog(30, 64).timeout(begin), BUSY_BACKLOG_TIMEOUT);
}

#[test]
fn the_backlog_of_each_allowed_processor_is_read_from_the_kernel() {
    let mut backlogs = Backlogs::open().unwrap();
    // A first look with too little room grows it.
    backlogs.text = vec![0; 7];
    for cpu in affinity::allowed().unwrap() {
        assert!(backlogs.read(cpu).is_some(), "processor {cpu}");
    }
    assert_eq!(backlogs.read(usize::MAX), None);
    assert!(backlogs.text.len() > 100);
}

/// What waits by the table in this file, which never changes.
fn guard_with(table: &Path, text: &str) -> MigrationGuard {
    std::fs::write(table, text).unwrap();
    let backlogs = Backlogs {
        file: std::fs::File::open(table).unwrap().into(),
        text: vec![0; 4096],
    };
    MigrationGuard {
        sent_on: [None; 2],
        pinned_calls_left: 0,
        backlogs: Some(backlogs),
    }
}

fn line(waiting: u32, processor: usize) -> String {
    format!("{}{waiting:08x} {processor:08x} 0 0\n", "0 ".repeat(11))
}

/// A guard of a thread that starts on the first of two processors; the first one's backlog has packets, the last one's
/// has none. None on a machine with one processor.
fn guard_between_two(name: &str) -> Option<(MigrationGuard, [usize; 2])> {
    let cpus = affinity::allowed().unwrap();
    let [first, .., last] = cpus[..] else {
        return None;
    };
    let table = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    let guard = guard_with(&table, &(line(3, first) + &line(0, last)));
    std::fs::remove_file(table).unwrap();
    Some((guard, [first, last]))
}

fn on(cpu: usize) {
    affinity::pin(&[cpu]).unwrap();
}

#[test]
fn only_a_thread_that_has_moved_looks_and_it_waits_for_what_it_left() {
    let Some((mut guard, [first, last])) = guard_between_two("moved") else {
        return;
    };
    let worker = std::thread::spawn(move || {
        on(first);
        assert_eq!(guard.wait_for_backlogs(), Migration::None);
        assert_eq!(guard.wait_for_backlogs(), Migration::None);
        on(last);
        assert_eq!(guard.wait_for_backlogs(), Migration::Waited);
        assert_eq!(guard.wait_for_backlogs(), Migration::None);
        on(first);
        // What it left on the last one was empty.
        assert_eq!(guard.wait_for_backlogs(), Migration::Drained);
    });
    worker.join().unwrap();
}

#[test]
fn a_thread_that_moves_during_a_call_waits_for_both_and_stays_where_it_is_in_the_next_calls() {
    let Some((mut guard, [first, last])) = guard_between_two("moved-during") else {
        return;
    };
    let worker = std::thread::spawn(move || {
        let both = [first, last];
        on(last);
        guard.send(|| on(first));
        assert_eq!(guard.pinned_calls_left, PINNED_CALLS_AFTER_MIGRATION);
        // The packets of that call may wait on the first one, although the call began on the last one.
        on(last);
        assert_eq!(guard.wait_for_backlogs(), Migration::Waited);
        affinity::pin(&both).unwrap();
        let where_it_may_run = guard.send(|| affinity::allowed().unwrap().len());
        assert_eq!(where_it_may_run, 1);
        assert_eq!(affinity::allowed().unwrap(), both);
        assert_eq!(guard.pinned_calls_left, PINNED_CALLS_AFTER_MIGRATION - 1);
        guard.pinned_calls_left = 0;
        let where_it_may_run = guard.send(|| affinity::allowed().unwrap().len());
        assert_eq!(where_it_may_run, 2);
    });
    worker.join().unwrap();
}
