//! A mix of frame sizes as RFC 6985 writes it: one letter for each frame, in the order in which they go out.

/// RFC 6985 4: letters and bytes of the frame, its check sequence included. The larger ones of the table fit no
/// ordinary link, and `z` (the link's own MTU) has no fixed size.
const FRAME_SIZES: [(char, u32); 7] = [
    ('a', 64),
    ('b', 128),
    ('c', 256),
    ('d', 512),
    ('e', 1024),
    ('f', 1280),
    ('g', 1518),
];
/// The longest mix.
const MAX_MIX_FRAMES: usize = 64;

/// The sizes of a mix; what is no letter of it has none.
pub(super) fn sizes(genome: &str) -> Vec<u32> {
    genome.chars().filter_map(size).collect()
}

/// Why this is no mix, if it is none.
pub(super) fn wrong(genome: &str) -> Option<String> {
    if genome.is_empty() || genome.len() > MAX_MIX_FRAMES {
        return Some(format!("a mix has 1 to {MAX_MIX_FRAMES} frames"));
    }
    let stranger = genome.chars().find(|letter| size(*letter).is_none())?;
    Some(format!("`{stranger}` is not a frame size"))
}

/// What to write instead.
pub(super) fn advice() -> String {
    let letters = FRAME_SIZES.map(|(letter, bytes)| format!("{letter} {bytes}"));
    format!(
        "a letter for each frame (RFC 6985), such as \"aaaaaaaddddg\": {}",
        letters.join(", ")
    )
}

fn size(letter: char) -> Option<u32> {
    let found = FRAME_SIZES.iter().find(|(known, _)| *known == letter);
    found.map(|(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_letter_by_letter() {
        assert_eq!(sizes("aafg"), [64, 64, 1280, 1518]);
        assert_eq!(wrong("abcdefg"), None);
        assert_eq!(wrong("aaz").unwrap(), "`z` is not a frame size");
        assert!(wrong("").is_some() && wrong(&"a".repeat(65)).is_some());
    }
}
