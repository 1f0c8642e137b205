//! The steps of a story, in two pieces of memory however many there are: most IKE SAs keep theirs for hours.

use std::time::Duration;

/// Steps that are kept.
pub(crate) const MAX_STORY_STEPS: usize = 48;

/// Bytes of a step's text: a peer can propose very much.
const MAX_STEP_BYTES: usize = 4096;

/// What happened, the oldest first.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Steps {
    marks: Vec<Mark>,
    texts: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// Milliseconds; a step that came after more than 49 days counts as one of then.
    at_ms: u32,
    len: u16,
    is_failure: bool,
}

/// A step of the story.
pub(crate) struct Step<'a> {
    pub at: Duration,
    pub is_failure: bool,
    pub text: &'a str,
}

impl Steps {
    /// Adds a step, in place of the oldest if there are too many.
    pub fn push(&mut self, at: Duration, is_failure: bool, text: &str) {
        let text = &text[..text.floor_char_boundary(MAX_STEP_BYTES)];
        if self.marks.len() >= MAX_STORY_STEPS {
            let oldest = self.marks.remove(0);
            self.texts.drain(..usize::from(oldest.len));
        }
        self.texts.push_str(text);
        self.marks.push(Mark {
            at_ms: u32::try_from(at.as_millis()).unwrap_or(u32::MAX),
            len: text.len() as u16,
            is_failure,
        });
    }

    /// Gives back the room for more.
    pub fn shrink(&mut self) {
        self.marks.shrink_to_fit();
        self.texts.shrink_to_fit();
    }

    pub fn iter(&self) -> impl Iterator<Item = Step<'_>> {
        let mut rest = self.texts.as_str();
        self.marks.iter().map(move |mark| {
            let (text, behind) = rest.split_at(usize::from(mark.len));
            rest = behind;
            Step {
                at: Duration::from_millis(mark.at_ms.into()),
                is_failure: mark.is_failure,
                text,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_steps_come_out_as_they_went_in() {
        let mut steps = Steps::default();
        for number in 0..MAX_STORY_STEPS as u64 + 3 {
            let text = format!("step {number}\nö");
            steps.push(Duration::from_millis(number), number % 2 == 0, &text);
            steps.shrink();
        }
        steps.push(Duration::MAX, true, &"é".repeat(MAX_STEP_BYTES));
        let all: Vec<_> = steps.iter().collect();
        assert_eq!(all.len(), MAX_STORY_STEPS);
        assert_eq!(all[0].text, "step 4\nö");
        assert_eq!((all[0].at.as_millis(), all[0].is_failure), (4, true));
        assert_eq!(all[all.len() - 2].text, "step 50\nö");
        assert_eq!(all[all.len() - 1].text.len(), MAX_STEP_BYTES);
    }
}
