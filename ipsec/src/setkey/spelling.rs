//! Which known word a misspelt one was meant to be.

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

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. Words are compared up to
/// 32 characters: whoever typed more did not misspell a word of this language.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(32).collect();
    let b: Vec<char> = b.chars().take(32).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &to) in b.iter().enumerate() {
            let replaced = above[j] + usize::from(from != to);
            let mut least = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
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
