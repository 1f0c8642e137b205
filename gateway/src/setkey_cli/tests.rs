use super::*;
use clap::Parser;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("setkey-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.join("tunnel.conf");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A thread that reads one request at `control.sock`, answers with `answer` and returns the request.
    fn gateway(&self, answer: &'static str) -> JoinHandle<Request> {
        let listener = UnixListener::bind(self.0.join("control.sock")).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap())
                .read_line(&mut line)
                .unwrap();
            writeln!(stream, "{answer}").unwrap();
            serde_json::from_str(&line).unwrap()
        })
    }

    /// Success, standard output and standard error of `setkey` with these options.
    fn setkey(&self, options: &[&str]) -> (bool, String, String) {
        let control = self.0.join("control.sock");
        let own = ["setkey", "--control", control.to_str().unwrap()];
        let program = Program::try_parse_from(own.iter().chain(options)).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(&program.arguments, &mut out, &mut err);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (code == ExitCode::SUCCESS, text(out), text(err))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn setkey_text(request: Request) -> SetkeyText {
    match request {
        Request::Setkey(text) => text,
        _ => panic!("not setkey text"),
    }
}

const DONE: &str = r#"{"setkey":{"output":"","warnings":[]}}"#;

#[test]
fn a_file_reaches_the_gateway_byte_for_byte() {
    let folder = Folder::new();
    let text = "flush;\nadd 192.0.2.1 192.0.2.2 esp 256 -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;\n";
    let path = folder.file(text);
    let gateway = folder.gateway(DONE);
    let outcome = folder.setkey(&["-kvf", path.to_str().unwrap()]);
    let sent = setkey_text(gateway.join().unwrap());
    assert_eq!(*sent.text, text.as_bytes());
    assert!(sent.kernel_semantics && !sent.dry_run);
    assert_eq!(
        outcome,
        (
            true,
            String::new(),
            "setkey: 2 statements applied\n".to_owned()
        )
    );
}

#[test]
fn a_file_with_a_mistake_never_reaches_the_gateway() {
    let folder = Folder::new();
    let path = folder.file("flush;\nad 192.0.2.1 192.0.2.2 esp 256 -E null;\n");
    let (success, out, err) = folder.setkey(&["-f", path.to_str().unwrap()]);
    assert!(!success && out.is_empty());
    let name = path.display();
    let expected = format!(
        "{name}:2:1: error: `ad` is no statement\n  |\n2 | ad 192.0.2.1 192.0.2.2 esp 256 -E null;\n  | ^^\n\
         \u{20} = help: it is one of"
    );
    assert!(err.starts_with(&expected), "{err}");
    assert!(
        err.ends_with(&format!("setkey: 1 error in {name}; nothing was changed\n")),
        "{err}"
    );
}

#[test]
fn checking_needs_no_gateway_and_warns_all_the_same() {
    let folder = Folder::new();
    let path = folder.file(
        "add 192.0.2.1 192.0.2.2 esp 256 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;",
    );
    let (success, _, err) = folder.setkey(&["-n", "-f", path.to_str().unwrap()]);
    assert!(success);
    assert_eq!(err.lines().count(), 1);
    assert!(
        err.contains(":1:29: warning: without `-r` packets can be replayed"),
        "{err}"
    );
    let (_, _, err) = folder.setkey(&["-nv", "-f", path.to_str().unwrap()]);
    assert!(err.contains("^^^"), "{err}");
    assert!(
        err.ends_with("setkey: 1 statement valid, nothing changed\n"),
        "{err}"
    );
}

#[test]
fn names_are_looked_up_before_anything_is_sent() {
    let folder = Folder::new();
    let path = folder.file("deleteall -4 localhost localhost esp;");
    let gateway = folder.gateway(DONE);
    assert!(folder.setkey(&["-f", path.to_str().unwrap()]).0);
    let sent = setkey_text(gateway.join().unwrap());
    assert_eq!(*sent.text, b"deleteall -4 127.0.0.1 127.0.0.1 esp;\n");
}

#[test]
fn a_dump_is_shown_as_the_gateway_words_it() {
    for (option, question) in [("-D", "dump;"), ("-DP", "spddump;")] {
        let folder = Folder::new();
        let gateway = folder.gateway(r#"{"setkey":{"output":"No SAD entries.\n","warnings":[]}}"#);
        let outcome = folder.setkey(&[option, "-pa"]);
        assert_eq!(
            outcome,
            (true, "No SAD entries.\n".to_owned(), String::new())
        );
        let sent = setkey_text(gateway.join().unwrap());
        assert_eq!(*sent.text, question.as_bytes());
        assert!(sent.with_ports && sent.with_dead && sent.pid == std::process::id());
    }
}

#[test]
fn a_refusal_is_printed_and_is_a_failure() {
    let folder = Folder::new();
    let gateway = folder.gateway(r#"{"refused":"there is such an association already"}"#);
    let outcome = folder.setkey(&["-F"]);
    let expected = "there is such an association already\n".to_owned();
    assert_eq!(outcome, (false, String::new(), expected));
    drop(gateway.join());
}

#[test]
fn a_warning_is_printed_once_though_both_ends_find_it() {
    let folder = Folder::new();
    let path = folder.file("spdadd ::/0 ::/0 any -P out entrust;");
    let gateway = folder.gateway(
        r#"{"setkey":{"output":"","warnings":["`entrust` leaves the choice to sockets; for a gateway it is the same as `none`","something else"]}}"#,
    );
    let (success, _, err) = folder.setkey(&["-f", path.to_str().unwrap()]);
    assert!(success);
    assert_eq!(err.matches("entrust").count(), 1, "{err}");
    assert!(err.ends_with("something else\n"), "{err}");
    drop(gateway.join());
}

#[test]
fn without_a_gateway_the_advice_is_to_start_one() {
    let (success, _, err) = Folder::new().setkey(&["-D"]);
    assert!(!success);
    assert!(
        err.starts_with("setkey: no gateway is running at "),
        "{err}"
    );
    assert!(err.contains("esplanade run"), "{err}");
}

#[test]
fn a_file_that_is_not_there_is_one_clear_line() {
    let (success, _, err) = Folder::new().setkey(&["-f", "/nowhere/tunnel.conf"]);
    assert!(!success);
    assert_eq!(
        err,
        "setkey: cannot read /nowhere/tunnel.conf: No such file or directory (os error 2)\n"
    );
}
