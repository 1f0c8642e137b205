//! The last negotiation with a peer, for a network engineer: what happened, when, and which step ended it.

use ikev2::endpoint::Story;
use std::fmt::Write as _;
use std::time::Duration;

/// The story as text. Times count from its first step.
pub(crate) fn text(story: &Story) -> String {
    let mut text = format!("peer {}: the last negotiation\n", story.connection);
    let Some(first) = story.steps.first() else {
        text += "  nothing has happened yet: `esplanade up` begins a negotiation\n";
        return text;
    };
    let _ = writeln!(text, "  began {} ago", rough(first.ago));
    for step in &story.steps {
        let at = first.ago.saturating_sub(step.ago);
        let mark = if step.is_failure { "✗" } else { "·" };
        for (number, line) in step.text.lines().enumerate() {
            let _ = match number {
                0 => writeln!(text, "  {:>9} {mark} {line}", since(at)),
                _ => writeln!(text, "  {:>9}   {line}", ""),
            };
        }
    }
    let end = match story.steps.last() {
        Some(last) if last.is_failure => "the attempt ended there",
        _ => "no step failed",
    };
    let _ = writeln!(text, "  {end}");
    text
}

/// Milliseconds matter within one exchange, and not between attempts.
fn since(at: Duration) -> String {
    match at.as_secs() {
        0..=9 => format!("+{:.3} s", at.as_secs_f64()),
        10..=599 => format!("+{:.1} s", at.as_secs_f64()),
        seconds => format!("+{} min", seconds / 60),
    }
}

fn rough(ago: Duration) -> String {
    match ago.as_secs() {
        0..=119 => format!("{} s", ago.as_secs()),
        120..=7199 => format!("{} min", ago.as_secs() / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ikev2::endpoint::StoryStep;

    fn step(ago_ms: u64, is_failure: bool, text: &str) -> StoryStep {
        StoryStep {
            ago: Duration::from_millis(ago_ms),
            is_failure,
            text: text.to_owned(),
        }
    }

    #[test]
    fn each_step_has_its_time_and_the_one_that_failed_a_mark() {
        let story = Story {
            connection: "office".to_owned(),
            steps: vec![
                step(65_000, false, "sent IKE_SA_INIT to 192.0.2.2:500"),
                step(
                    64_990,
                    true,
                    "refused: no proposal chosen\nours: aes256\ntheirs: 3des",
                ),
            ],
        };
        assert_eq!(
            text(&story),
            "peer office: the last negotiation\n  began 65 s ago\n   +0.000 s · sent IKE_SA_INIT to 192.0.2.2:500\n   \
             +0.010 s ✗ refused: no proposal chosen\n              ours: aes256\n              theirs: 3des\n  the \
             attempt ended there\n"
        );
    }

    #[test]
    fn a_peer_without_a_negotiation_has_none() {
        let story = Story {
            connection: "office".to_owned(),
            steps: Vec::new(),
        };
        assert!(text(&story).contains("esplanade up"));
    }
}
