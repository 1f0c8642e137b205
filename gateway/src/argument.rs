//! Parsers of arguments that several commands take.

/// What is expected in the place of a word of the command line. The message of the parser names word and option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidWord(pub &'static str);

/// A number, decimal or hexadecimal.
pub(crate) fn number(word: &str) -> Result<u32, InvalidWord> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| InvalidWord("a number is expected, such as 0x10000000"))
}

/// An IP protocol, by name or number.
pub(crate) fn protocol(word: &str) -> Result<u8, InvalidWord> {
    let number = match word {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "icmp6" | "icmpv6" => 58,
        other => other.parse().map_err(|_| {
            InvalidWord("a protocol is tcp, udp, icmp, icmp6 or a number up to 255")
        })?,
    };
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::DEFAULT_MARK;

    #[test]
    fn marks_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x10000000"), Ok(DEFAULT_MARK));
        assert_eq!(number("16"), Ok(16));
        assert!(number("0xg").is_err());
    }
}
