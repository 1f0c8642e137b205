//! The file that `esplanade init` writes, and what to do then.

use std::path::Path;

/// One tunnel by a pre-shared key.
pub(super) struct Tunnel {
    /// The peer's name.
    pub(super) name: String,
    /// This gateway's address, if it is known.
    pub(super) local: Option<String>,
    /// The peer's.
    pub(super) remote: Option<String>,
    /// Who this gateway is.
    pub(super) local_id: String,
    /// Who the peer is.
    pub(super) remote_id: String,
    /// What is behind this gateway.
    pub(super) local_networks: Vec<String>,
    /// What is behind the peer.
    pub(super) remote_networks: Vec<String>,
}

/// The column in which comments begin.
const COMMENT_COLUMN: usize = 41;

impl Tunnel {
    /// The configuration. `key` is the file with the pre-shared key.
    pub(super) fn text(&self, key: &Path) -> String {
        let address = |name: &str, address: &Option<String>, example: &str| match address {
            Some(address) => format!("{name} = {}", quoted(address)),
            None => format!("# {name} = \"{example}\""),
        };
        let list = |networks: &[String]| {
            networks
                .iter()
                .map(|network| quoted(network))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let lines = [
            (
                address("local", &self.local, "192.0.2.1"),
                "this gateway's address; left out: any",
            ),
            (
                address("remote", &self.remote, "198.51.100.7"),
                "the peer's, or a list; left out: the peer begins",
            ),
            (
                format!("local_id = {}", quoted(&self.local_id)),
                "who this gateway is",
            ),
            (
                format!("remote_id = {}", quoted(&self.remote_id)),
                "who the peer has to prove to be",
            ),
            (
                format!("psk_file = {}", quoted(&key.display().to_string())),
                "the same key on both sides",
            ),
            (
                format!(
                    "networks = {{ local = [{}], remote = [{}] }}",
                    list(&self.local_networks),
                    list(&self.remote_networks)
                ),
                "",
            ),
            (
                "# mode = \"policy\"".to_owned(),
                "\"route\" (a device for the peer) where left out",
            ),
            (
                "# start = \"demand\"".to_owned(),
                "\"start\" (at once), \"demand\" or \"wait\"",
            ),
            (
                "# ike = [\"aes256gcm16-prfsha384-ecp384\"]".to_owned(),
                "left out: what is safe, fastest first",
            ),
            (
                "# esp = [\"aes256gcm16-ecp384\"]".to_owned(),
                "with a group: new secrets at each rekey",
            ),
        ];
        let mut text = format!(
            "# The configuration of Esplanade. `esplanade config check FILE` explains it and its mistakes. Every key:\n\
             # docs/ikev2-configuration.md\n\n\
             [gateway]\n\
             # The options of `esplanade run`, with _ for -:\n\
             # control = \"/run/esplanade/control.sock\"\n\
             # setkey = [\"by-hand.setkey\"]             # tunnels with keys set by hand\n\n\
             [peer.{}]\n",
            self.name
        );
        for (setting, comment) in lines {
            match comment {
                "" => text.push_str(&setting),
                comment => text.push_str(&format!("{setting:<COMMENT_COLUMN$} # {comment}")),
            }
            text.push('\n');
        }
        text
    }

    /// What to do with the two files.
    pub(super) fn what_next(&self, file: &Path, key: &Path) -> String {
        let (file, key) = (file.display(), key.display());
        let option = |name: &str, value: &Option<String>| {
            value
                .as_ref()
                .map_or_else(String::new, |value| format!(" {name} {value}"))
        };
        format!(
            "{file} is written; its pre-shared key is {key}.\n\n\
             1. Copy {key} to the peer, over a channel that others cannot read.\n\
             2. Configure the peer. If it is Esplanade:\n   \
             esplanade init --name {}{}{} --local-id {} --remote-id {} --local-network {} --remote-network {} --psk-file {}\n\
             3. On both sides: esplanade config check {file}, then: esplanade run --config {file}\n",
            self.name,
            option("--local", &self.remote),
            option("--remote", &self.local),
            shell(&self.remote_id),
            shell(&self.local_id),
            self.remote_networks.join(","),
            self.local_networks.join(","),
            key,
        )
    }
}

/// As TOML has texts.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// One word of a shell: names in a directory have blanks.
fn shell(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._@:/=,+".contains(letter);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
