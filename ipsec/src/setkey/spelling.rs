//! Which known word a misspelt one was meant to be.

/// Words are compared up to this length: a longer one is not a misspelt word of this language.
const MAX_COMPARED_CHARACTERS: usize = 32;

/// The word of `known` nearest to `word`, if it is near enough to be worth proposing.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = match word.chars().count() {
        0..3 => 0,
        length => length.min(24).div_ceil(4),
    };
    let scored = known
        .into_iter()
        .map(|other| (distance(word, other), other));
    let best = scored.min_by_key(|&(score, _)| score);
    best.filter(|&(score, _)| score <= limit)
        .map(|(_, other)| other)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    strsim::osa_distance(compared(a), compared(b))
}

fn compared(word: &str) -> &str {
    let end = word.char_indices().nth(MAX_COMPARED_CHARACTERS);
    end.map_or(word, |(end, _)| &word[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_counts_as_one_mistake() {
        assert_eq!(distance("spdadd", "spadd"), 1);
        assert_eq!(distance("tunnle", "tunnel"), 1);
        assert_eq!(distance("", "esp"), 3);
    }

    #[test]
    fn only_a_near_word_is_proposed() {
        let known = ["transport", "tunnel", "any"];
        assert_eq!(nearest("transprot", known), Some("transport"));
        assert_eq!(nearest("tunel", known), Some("tunnel"));
        assert_eq!(nearest("beet", known), None);
        assert_eq!(nearest("-l", ["-m", "-r"]), None);
    }
}
