//! What an agent must undo, as a script that any shell can run if the agent cannot.

use crate::host::Command;

/// The latest first. Each has a timeout, so that one that hangs does not stop the others. One that fails is repeated: a
/// gateway that is being killed may still accept a request and send no response.
pub(super) fn undoing(commands: &[Command]) -> String {
    let line = |command: &Command| {
        let words = std::iter::once(&command.program).chain(&command.arguments);
        let words: Vec<String> = words.map(|word| quoted(word)).collect();
        format!(
            "for n in 1 2 3 4 5; do timeout 60 {} && break; sleep 1; done\n",
            words.join(" ")
        )
    };
    commands.iter().rev().map(line).collect()
}

/// A word as a shell takes it literally.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_last_is_undone_first_and_literally() {
        let commands = [
            Command::line("ip link set wan down"),
            Command::line("echo").arg("it's $HOME"),
        ];
        let undone = undoing(&commands);
        let lines: Vec<&str> = undone.lines().collect();
        assert!(lines[0].contains(" 'echo' 'it'\\''s $HOME' "), "{undone}");
        assert!(
            lines[1].contains(" 'ip' 'link' 'set' 'wan' 'down' "),
            "{undone}"
        );
    }
}
