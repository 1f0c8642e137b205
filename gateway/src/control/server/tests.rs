use super::super::{Client as Asker, NoAnswer};
use super::*;
use std::io::{BufRead, BufReader, Read, Write};

/// A folder of its own, removed at the end.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("esplanade-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bind(folder: &TempFolder) -> Result<Server, Busy> {
    Server::bind(Folder::make(&folder.socket()).unwrap())
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
    let folder = TempFolder::new("second");
    let _first = bind(&folder).unwrap();
    let error = bind(&folder).err().unwrap();
    assert!(
        error.to_string().contains("another gateway is running"),
        "{error}"
    );
}

#[test]
fn a_socket_that_a_dead_gateway_left_is_replaced() {
    let folder = TempFolder::new("stale");
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(folder.socket().exists());
    let error = Asker::connect(&folder.socket()).err().unwrap();
    assert!(error.is_not_running());
    bind(&folder).unwrap();
    assert!(!folder.socket().exists());
}

#[test]
fn a_file_in_the_way_is_left_alone() {
    let folder = TempFolder::new("file");
    std::fs::write(folder.socket(), "precious").unwrap();
    assert!(matches!(bind(&folder), Err(Busy::NoSocket(_))));
    assert_eq!(std::fs::read(folder.socket()).unwrap(), b"precious");
}

#[test]
fn the_socket_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempFolder::new("mode");
    let _server = bind(&folder).unwrap();
    let mode = std::fs::metadata(folder.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn each_client_gets_the_answer_to_its_own_request() {
    let folder = TempFolder::new("pairs");
    let server = bind(&folder).unwrap();
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
fn a_slow_client_delays_no_other() {
    let folder = TempFolder::new("slow");
    let server = bind(&folder).unwrap();
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
fn a_client_that_takes_a_large_answer_in_parts_gets_all_of_it() {
    let folder = TempFolder::new("parts");
    let mut server = bind(&folder).unwrap();
    let mut taking = UnixStream::connect(folder.socket()).unwrap();
    let idle = UnixStream::connect(folder.socket()).unwrap();
    for mut client in [&taking, &idle] {
        client.write_all(b"\"status\"\n").unwrap();
    }
    let text = "4000 policies".repeat(200_000);
    let mut asked = 0;
    while asked < 2 {
        for (id, _) in server.wait(&[], Duration::from_secs(5)).unwrap().requests {
            server.answer(id, &Answer::Refused(text.clone()));
            asked += 1;
        }
    }
    taking.set_nonblocking(true).unwrap();
    let (mut taken, mut part) = (0, vec![0; 1 << 16]);
    loop {
        while let Ok(count) = taking.read(&mut part) {
            taken += count;
            if count == 0 {
                assert!(taken > text.len(), "let go after {taken} bytes");
                return;
            }
        }
        // As after a long change by the gateway: a client that has read nothing meanwhile is disconnected, the other
        // continues.
        for client in server.clients.values_mut() {
            client.deadline = Some(Instant::now() - Duration::from_millis(1));
        }
        server.wait(&[], Duration::ZERO).unwrap();
        assert!(server.clients.len() <= 1);
    }
}

/// How many clients other work waits for.
fn preferred(server: &Server) -> usize {
    let clients = server.clients.values();
    clients.filter_map(Client::preferred_until).count()
}

#[test]
fn other_work_waits_for_a_client_until_it_has_asked_and_not_for_what_other_work_brings() {
    let folder = TempFolder::new("asking");
    let mut server = bind(&folder).unwrap();
    let mut client = UnixStream::connect(folder.socket()).unwrap();
    server.wait(&[], Duration::from_secs(5)).unwrap();
    assert_eq!(preferred(&server), 1);
    let until = server.preferred_until();
    assert!(until.is_none_or(|end| end <= Instant::now() + Duration::from_millis(20)));
    client.write_all(b"\"status-").unwrap();
    server.wait(&[], Duration::from_secs(5)).unwrap();
    assert_eq!(preferred(&server), 1);
    client.write_all(b"table\"\n").unwrap();
    let received = server.wait(&[], Duration::from_secs(5)).unwrap();
    assert_eq!((received.requests.len(), preferred(&server)), (1, 0));
    std::thread::sleep(Duration::from_millis(25));
    let _silent = UnixStream::connect(folder.socket()).unwrap();
    server.wait(&[], Duration::from_secs(5)).unwrap();
    std::thread::sleep(Duration::from_millis(25));
    assert_eq!(server.preferred_until(), None, "one that never asks");
}

#[test]
fn other_work_waits_for_an_answer_that_is_read_in_parts_and_for_no_listener() {
    let folder = TempFolder::new("sending");
    let mut server = bind(&folder).unwrap();
    let mut reader = UnixStream::connect(folder.socket()).unwrap();
    let mut listener = UnixStream::connect(folder.socket()).unwrap();
    reader.write_all(b"\"status-table\"\n").unwrap();
    listener.write_all(b"\"events\"\n").unwrap();
    let mut asked = Vec::new();
    while asked.len() < 2 {
        asked.extend(server.wait(&[], Duration::from_secs(5)).unwrap().requests);
    }
    let text = "4000 policies".repeat(200_000);
    for (id, request) in asked {
        assert_eq!(preferred(&server), 0);
        match request {
            Request::Events => server.listen(id),
            _ => continue,
        }
        server.publish(&Answer::Refused(text.clone()));
    }
    assert_eq!(preferred(&server), 0);
    let id = ClientId(1);
    server.answer(id, &Answer::Text(text.clone()));
    assert_eq!(preferred(&server), 1);
    reader.set_nonblocking(true).unwrap();
    let (mut taken, mut part) = (0, vec![0; 1 << 16]);
    while preferred(&server) > 0 {
        while let Ok(count @ 1..) = reader.read(&mut part) {
            taken += count;
        }
        server.wait(&[], Duration::ZERO).unwrap();
    }
    reader.set_nonblocking(false).unwrap();
    taken += reader.read_to_end(&mut Vec::new()).unwrap();
    assert!(taken > text.len(), "let go after {taken} bytes");
}

#[test]
fn nonsense_is_answered_and_leads_to_nothing() {
    let folder = TempFolder::new("nonsense");
    let mut server = bind(&folder).unwrap();
    let mut client = UnixStream::connect(folder.socket()).unwrap();
    client.write_all(b"{\"setkey\": 7}\n").unwrap();
    let received = server.wait(&[], Duration::from_secs(5)).unwrap();
    assert!(received.requests.is_empty());
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).unwrap();
    assert!(line.contains("invalid request"), "{line}");
}

#[test]
fn listeners_get_every_event_until_they_disconnect() {
    let folder = TempFolder::new("events");
    let mut server = bind(&folder).unwrap();
    let path = folder.socket();
    let listener = std::thread::spawn(move || -> Result<usize, NoAnswer> {
        let mut received = 0;
        Asker::connect(&path)?.follow(&Request::Events, |_| {
            received += 1;
            received < 3
        })?;
        Ok(received)
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
        server.publish(&Answer::Done);
    }
    server.flush(Duration::from_secs(5));
    assert_eq!(listener.join().unwrap().unwrap(), 3);
}

#[test]
fn listeners_leave_places_for_requests() {
    let folder = TempFolder::new("places");
    let mut server = bind(&folder).unwrap();
    let mut listeners = Vec::new();
    for _ in 0..=MAX_EVENT_LISTENERS {
        let mut client = UnixStream::connect(folder.socket()).unwrap();
        client.write_all(b"\"events\"\n").unwrap();
        listeners.push(client);
    }
    let mut served = 0;
    while served <= MAX_EVENT_LISTENERS {
        for (id, _) in server.wait(&[], Duration::from_secs(5)).unwrap().requests {
            server.listen(id);
            served += 1;
        }
    }
    let mut line = String::new();
    let last = listeners.pop().unwrap();
    BufReader::new(last).read_line(&mut line).unwrap();
    assert!(
        line.contains("48 clients listen to events already"),
        "{line}"
    );
    let path = folder.socket();
    let asker = std::thread::spawn(move || Asker::connect(&path).unwrap().ask(&Request::Drops));
    let _server = serve(server, 1);
    assert!(asker.join().unwrap().is_ok());
}

#[test]
fn a_client_too_many_gets_an_error() {
    let folder = TempFolder::new("full");
    let mut server = bind(&folder).unwrap();
    let connect = |_| UnixStream::connect(folder.socket()).unwrap();
    let mut clients: Vec<_> = (0..=MAX_CLIENTS).map(connect).collect();
    server.wait(&[], Duration::from_secs(5)).unwrap();
    let mut line = String::new();
    let last = clients.pop().unwrap();
    BufReader::new(last).read_line(&mut line).unwrap();
    assert!(line.contains("64 clients are connected already"), "{line}");
}

#[test]
fn a_server_that_never_came_up_leaves_no_folder_of_its_own() {
    let temp = TempFolder::new("undone");
    let socket = temp.0.join("inner/control.sock");
    drop(Server::bind(Folder::make(&socket).unwrap()).unwrap());
    assert!(!temp.0.join("inner").exists());
    let mut server = Server::bind(Folder::make(&socket).unwrap()).unwrap();
    server.is_up();
    drop(server);
    assert!(temp.0.join("inner").exists() && !socket.exists());
}
