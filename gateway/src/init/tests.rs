use super::*;
use clap::{Args, Command, FromArgMatches};
use std::os::unix::fs::PermissionsExt;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("esplanade-init-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Options for a file in this folder.
    fn options(&self, file: &str, more: &[&str]) -> InitOptions {
        let command = InitOptions::augment_args(Command::new("init").no_binary_name(true));
        let path = self.0.join(file).display().to_string();
        let words: Vec<_> = [path.as_str()]
            .iter()
            .chain(more)
            .map(ToString::to_string)
            .collect();
        InitOptions::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    fn init(&self, file: &str, more: &[&str]) -> Result<String, Failure> {
        let options = self.options(file, more);
        let tunnel = questions::tunnel(&options, &mut Questions::new(None))?;
        write(&options, &tunnel)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SITES: [&str; 8] = [
    "--local",
    "192.0.2.1",
    "--remote",
    "198.51.100.7",
    "--local-network",
    "10.1.0.0/16",
    "--remote-network",
    "10.2.0.0/16,10.3.0.0/16",
];

#[test]
fn a_file_and_a_key_that_only_the_owner_reads() {
    let folder = Folder::new("plain");
    let next = folder.init("new/e.toml", &SITES).ok().unwrap();
    assert!(
        next.contains("--local 198.51.100.7 --remote 192.0.2.1"),
        "{next}"
    );
    let key = folder.0.join("new/office.psk");
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = fs::read_to_string(&key).unwrap();
    assert!(
        text.len() == 65
            && text
                .trim_end()
                .bytes()
                .all(|digit| digit.is_ascii_hexdigit())
    );
    let config = config::load(&folder.0.join("new/e.toml"), &[])
        .ok()
        .unwrap();
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let connection = &config.peers[0].connection;
    assert_eq!(connection.remote_id.to_string(), "198.51.100.7");
    assert_eq!(connection.children[0].remote.len(), 2);
}

#[test]
fn keys_differ_and_never_begin_with_0() {
    let keys: std::collections::BTreeSet<_> =
        (0..200).map(|_| pre_shared_key().to_string()).collect();
    assert_eq!(keys.len(), 200);
    assert!(keys.iter().all(|key| !key.starts_with('0')));
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_behind() {
    let folder = Folder::new("twice");
    folder.init("e.toml", &SITES).ok().unwrap();
    let (file, key) = (folder.0.join("e.toml"), folder.0.join("office.psk"));
    let before = (fs::read(&file).unwrap(), fs::read(&key).unwrap());
    for name in ["e.toml", "other.toml"] {
        let why = folder.init(name, &SITES).err().unwrap().to_string();
        assert!(why.contains("is not overwritten"), "{why}");
    }
    assert_eq!(before, (fs::read(&file).unwrap(), fs::read(&key).unwrap()));
    assert!(!folder.0.join("other.toml").exists());

    let wrong = [&SITES[..], &["--name", "b", "--psk-file", "nowhere.psk"]].concat();
    let why = folder.init("b.toml", &wrong).err().unwrap().to_string();
    assert!(
        why.contains("cannot read") && !folder.0.join("b.toml").exists(),
        "{why}"
    );
}

#[test]
fn both_sides_have_one_key() {
    let folder = Folder::new("sides");
    folder.init("a.toml", &SITES).ok().unwrap();
    let key = folder.0.join("office.psk").display().to_string();
    let other = [
        "--local",
        "198.51.100.7",
        "--remote",
        "192.0.2.1",
        "--local-network",
        "10.2.0.0/16",
        "--remote-network",
        "10.1.0.0/16",
        "--psk-file",
        &key,
    ];
    folder.init("b.toml", &other).ok().unwrap();
    let peer = |name: &str| {
        config::load(&folder.0.join(name), &[])
            .ok()
            .unwrap()
            .peers
            .remove(0)
    };
    let (a, b) = (peer("a.toml"), peer("b.toml"));
    assert!(a.credential == b.credential);
    assert_eq!(
        a.connection.local_id.to_string(),
        b.connection.remote_id.to_string()
    );
}

#[test]
fn what_is_not_known_is_asked_until_the_answer_is_right() {
    let folder = Folder::new("asked");
    let options = folder.options("e.toml", &["--local", "192.0.2.1"]);
    let mut input =
        "branch\n\n\n\nb.example.org\n10.1.0.1/16\n10.1.0.0/16\n10.2.0.0/16, 10.3.0.0/16\n"
            .as_bytes();
    let mut output = Vec::new();
    let tunnel = questions::tunnel(
        &options,
        &mut Questions::new(Some((&mut input, &mut output))),
    )
    .ok()
    .unwrap();
    let shown = String::from_utf8(output).unwrap();
    assert!(
        shown.contains("What is the peer called [office]: "),
        "{shown}"
    );
    assert!(shown.contains("did you mean \"10.1.0.0/16\""), "{shown}");
    assert_eq!(
        (
            tunnel.name.as_str(),
            tunnel.remote,
            tunnel.local_id.as_str()
        ),
        ("branch", None, "192.0.2.1")
    );
    assert_eq!(tunnel.remote_networks, ["10.2.0.0/16", "10.3.0.0/16"]);
}

#[test]
fn without_a_terminal_what_is_missing_is_named() {
    let folder = Folder::new("missing");
    let why = folder
        .init("e.toml", &SITES[..6])
        .err()
        .unwrap()
        .to_string();
    assert!(
        why.starts_with("--remote-network: this is not known"),
        "{why}"
    );
    let why = folder
        .init("e.toml", &["--local-id", "*.example.org"])
        .err()
        .unwrap()
        .to_string();
    assert!(why.starts_with("--local-id: write one identity"), "{why}");
}
