//! How an agent is started on a host: the shell there creates a private folder, receives the programs, and starts it.
//! It outlives the agent, so that even a killed agent leaves nothing behind.

use super::protocol::UNDO;
use crate::tool::agent::quoted;

/// The first word of the shell's ready line, before the machine's architecture and the folder.
pub(super) const BOOTSTRAP_READY: &str = "esplanade-lab-here";
/// In the environment of the agent and of all that it starts, with the folder as its value.
const FOLDER_VARIABLE: &str = "ESPLANADE_LAB";

/// The script for the host's shell. On one line and without `!`, because the login shell is unknown. `after` is the
/// folder of an agent whose connection was lost: the script waits until that agent has undone its changes and removed
/// the folder.
///
/// Every program of the agent has the folder in its environment, so that the script finds and kills those that outlive
/// the agent: a gateway that is still ending could report that it is up.
pub(super) fn remote_command(names: &[&str], after: Option<&str>) -> String {
    let found: String = names
        .iter()
        .map(|name| {
            format!("p=$(command -v {name}) && sha256sum \"$p\" | sed \"s|^|found {name} |\"; ")
        })
        .collect();
    let wait = after.map_or_else(String::new, |folder| {
        format!("n=0; while [ -d {folder} ] && [ $n -lt 2500 ]; do sleep 0.1; n=$((n+1)); done; ")
    });
    let script = format!(
        "{wait}umask 077; PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH; \
         d=$(mktemp -d \"${{TMPDIR:-/tmp}}/esplanade-lab.XXXXXX\") || exit 1; \
         k() {{ grep -lzsxF \"{FOLDER_VARIABLE}=$d\" /proc/[0-9]*/environ | cut -d/ -f3; }}; \
         e() {{ n=0; while p=$(k) && [ -n \"$p\" ] && [ $n -lt 100 ]; do kill -9 $p; sleep 0.1; n=$((n+1)); done; \
         if [ -s \"$d/{UNDO}\" ]; then sh \"$d/{UNDO}\" >/dev/null; fi; rm -rf \"$d\"; }}; \
         trap e EXIT; trap : HUP INT TERM PIPE; \
         {found}\
         echo \"{BOOTSTRAP_READY} $(uname -m) $d\"; \
         while read -r word name more; do case $word in \
         put) head -c \"$more\" >\"$d/$name\" && chmod 700 \"$d/$name\" && echo got;; \
         link) ln -s \"$more\" \"$d/$name\" && echo got;; \
         start) {FOLDER_VARIABLE}=$d \"$d/esplanade-lab\" tool agent \"$d\"; exit;; \
         esac; done"
    );
    let root =
        "if [ \"$(id -u)\" = 0 ]; then exec sh -c \"$0\"; else exec sudo -n sh -c \"$0\"; fi";
    format!("exec sh -c {} {}", quoted(root), quoted(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_suits_any_login_shell() {
        let command = remote_command(
            &["esplanade-lab", "esplanade"],
            Some("/tmp/esplanade-lab.x"),
        );
        assert!(!command.contains(['\n', '!']), "{command}");
        assert!(command.starts_with("exec sh -c '"), "{command}");
    }
}
