use super::super::{Client as Asker, NoAnswer};
use super::*;
use std::io::{BufRead, BufReader};

/// A folder of its own that is gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("esplanade-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves until `count` requests have been refused with their own name.
fn serve(mut server: Server, count: usize) -> Server {
    let mut done = 0;
    while done < count {
        for (id, request) in server.wait(&[], Duration::from_secs(5)).unwrap().requests {
            let name = serde_json::to_string(&request).unwrap();
            server.answer(id, &Answer::Refused(name));
            done += 1;
        }
    }
    server.flush(Duration::from_secs(5));
    server
}

#[test]
fn a_second_gateway_at_the_same_socket_is_refused() {
    let folder = Folder::new("second");
    let _first = Server::bind(&folder.socket()).unwrap();
    let error = Server::bind(&folder.socket()).err().unwrap();
    assert!(
        error.to_string().contains("another gateway answers"),
        "{error}"
    );
}

#[test]
fn a_socket_that_a_dead_gateway_left_is_replaced() {
    let folder = Folder::new("stale");
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(folder.socket().exists());
    let error = Asker::connect(&folder.socket()).err().unwrap();
    assert!(error.is_nobody());
    Server::bind(&folder.socket()).unwrap();
    assert!(!folder.socket().exists());
}

#[test]
fn a_file_in_the_way_is_left_alone() {
    let folder = Folder::new("file");
    std::fs::write(folder.socket(), "precious").unwrap();
    assert!(matches!(
        Server::bind(&folder.socket()),
        Err(Busy::NoSocket(_))
    ));
    assert_eq!(std::fs::read(folder.socket()).unwrap(), b"precious");
}

#[test]
fn the_socket_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode");
    let _server = Server::bind(&folder.socket()).unwrap();
    let mode = std::fs::metadata(folder.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn each_client_gets_the_answer_to_its_own_request() {
    let folder = Folder::new("pairs");
    let server = Server::bind(&folder.socket()).unwrap();
    let path = folder.socket();
    let asker = std::thread::spawn(move || {
        let ask = |request| match Asker::connect(&path).unwrap().ask(&request).unwrap() {
            Answer::Refused(text) => text,
            _ => panic!("another answer"),
        };
        (ask(Request::Status), ask(Request::Drops))
    });
    let _server = serve(server, 2);
    assert_eq!(
        asker.join().unwrap(),
        ("\"status\"".to_owned(), "\"drops\"".to_owned())
    );
}

#[test]
fn a_client_that_dawdles_holds_up_nobody() {
    let folder = Folder::new("slow");
    let server = Server::bind(&folder.socket()).unwrap();
    let mut slow = UnixStream::connect(folder.socket()).unwrap();
    slow.write_all(b"\"sta").unwrap();
    let path = folder.socket();
    let asker = std::thread::spawn(move || Asker::connect(&path).unwrap().ask(&Request::Drops));
    let server = serve(server, 1);
    assert!(asker.join().unwrap().is_ok());
    slow.write_all(b"tus\"\n").unwrap();
    let _server = serve(server, 1);
    let mut line = String::new();
    BufReader::new(slow).read_line(&mut line).unwrap();
    assert!(line.contains("status"), "{line}");
}

#[test]
fn nonsense_is_answered_and_leads_to_nothing() {
    let folder = Folder::new("nonsense");
    let mut server = Server::bind(&folder.socket()).unwrap();
    let mut client = UnixStream::connect(folder.socket()).unwrap();
    client.write_all(b"{\"setkey\": 7}\n").unwrap();
    let heard = server.wait(&[], Duration::from_secs(5)).unwrap();
    assert!(heard.requests.is_empty());
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).unwrap();
    assert!(line.contains("not understood"), "{line}");
}

#[test]
fn listeners_hear_every_event_until_they_leave() {
    let folder = Folder::new("events");
    let mut server = Server::bind(&folder.socket()).unwrap();
    let path = folder.socket();
    let listener = std::thread::spawn(move || -> Result<usize, NoAnswer> {
        let mut heard = 0;
        Asker::connect(&path)?.follow(&Request::Events, |_| {
            heard += 1;
            heard < 3
        })?;
        Ok(heard)
    });
    while !server.clients.values().any(|client| client.listens) {
        for (id, _) in server
            .wait(&[], Duration::from_millis(50))
            .unwrap()
            .requests
        {
            server.listen(id);
        }
    }
    for _ in 0..3 {
        server.tell(&Answer::Done);
    }
    server.flush(Duration::from_secs(5));
    assert_eq!(listener.join().unwrap().unwrap(), 3);
}
