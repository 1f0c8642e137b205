//! A runner on a thread of the test, with real programs.

use super::message::{Ended, Outcome, ToRunner};
use super::runner::serve;
use super::running::{KEPT_BYTES, TIME_LIMIT};
use crate::config::HookCommand;
use crate::ike::Channel;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

struct Served {
    channel: Channel,
    thread: JoinHandle<std::io::Result<()>>,
}

fn shell(script: &str) -> HookCommand {
    HookCommand {
        program: "/bin/sh".to_owned(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
    }
}

fn serving(programs: Vec<HookCommand>) -> Served {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || serve(theirs));
    let mut channel = Channel::new(ours).unwrap();
    channel.push(&ToRunner::Programs(programs)).unwrap();
    Served { channel, thread }
}

impl Served {
    fn ask(&mut self, run: u64, program: u32, variables: &[(&str, &str)]) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = variables.iter().map(owned).collect();
        let message = ToRunner::Run {
            run,
            program,
            variables,
        };
        self.channel.push(&message).unwrap();
        self.channel.flush().unwrap();
    }

    fn ended(&mut self) -> Ended {
        let end = Instant::now() + TIME_LIMIT + Duration::from_secs(20);
        loop {
            if let Some(ended) = self.channel.receive().unwrap() {
                return ended;
            }
            assert!(Instant::now() < end, "nothing ends");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn exit_status_signal_and_the_last_words_come_back() {
    let long = "i=0; while [ $i -lt 200 ]; do echo line $i >&2; i=$((i+1)); done; exit 3";
    let mut served = serving(vec![shell(long), shell("kill -9 $$"), shell("exit 0")]);
    served.ask(1, 0, &[]);
    let ended = served.ended();
    assert_eq!((ended.run, &ended.outcome), (1, &Outcome::Exited(3)));
    assert!(ended.words.ends_with("line 199") && ended.words.len() <= KEPT_BYTES);
    assert!(ended.is_failure());
    served.ask(2, 1, &[]);
    assert_eq!(served.ended().outcome, Outcome::Signal(9));
    served.ask(3, 2, &[]);
    assert!(!served.ended().is_failure());
}

#[test]
fn the_environment_is_ours_alone_and_words_have_no_control_characters() {
    let script = "env >&2; printf '\\033[31mred\\n' >&2";
    let mut served = serving(vec![shell(script)]);
    served.ask(1, 0, &[("ESPLANADE_PEER", "x y"), ("LD_PRELOAD", "/bad")]);
    let words = served.ended().words;
    assert!(words.contains("ESPLANADE_PEER=x y"), "{words}");
    assert!(
        !words.contains("LD_PRELOAD") && !words.contains("HOME"),
        "{words}"
    );
    assert!(
        words.contains("[31mred") && !words.contains('\u{1b}'),
        "{words}"
    );
}

#[test]
fn programs_are_those_of_the_first_message_alone() {
    let mut served = serving(vec![shell("exit 0")]);
    let more = ToRunner::Programs(vec![shell("exit 1"), shell("exit 1")]);
    served.channel.push(&more).unwrap();
    served.ask(1, 0, &[]);
    assert_eq!(served.ended().outcome, Outcome::Exited(0));
    served.ask(2, 1, &[]);
    assert!(
        matches!(served.ended().outcome, Outcome::NotStarted(why) if why.contains("was not there"))
    );
    let missing = HookCommand {
        program: "/nowhere/at/all".to_owned(),
        arguments: Vec::new(),
    };
    let mut served = serving(vec![missing]);
    served.ask(3, 0, &[]);
    assert!(matches!(served.ended().outcome, Outcome::NotStarted(_)));
}

#[test]
fn one_that_hangs_is_killed_with_its_group_while_others_run_and_what_is_left_goes_too() {
    let mark = std::env::temp_dir().join(format!("esplanade-hook-{}", std::process::id()));
    let hangs = format!("(sleep 11; touch {}) & wait", mark.display());
    let leaves = format!(
        "(sleep 11; touch {}) >/dev/null 2>&1 & exit 0",
        mark.display()
    );
    let mut served = serving(vec![shell(&hangs), shell("exit 0"), shell(&leaves)]);
    served.ask(1, 0, &[]);
    served.ask(2, 1, &[]);
    assert_eq!(served.ended().run, 2);
    served.ask(3, 2, &[]);
    assert_eq!(served.ended().run, 3);
    let ended = served.ended();
    assert_eq!((ended.run, &ended.outcome), (1, &Outcome::TimeOver));
    assert!(ended.time >= TIME_LIMIT && ended.to_string().contains("still ran after 10 s"));
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!mark.exists(), "a process of a hook goes on");
}

#[test]
fn with_the_main_process_the_runner_ends_and_kills_what_runs() {
    let mut served = serving(vec![shell("sleep 60")]);
    served.ask(1, 0, &[]);
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    drop(served.channel);
    served.thread.join().unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
}
