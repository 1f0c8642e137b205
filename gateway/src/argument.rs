//! Parsers of arguments that several commands take.

/// A number, decimal or hexadecimal.
pub(crate) fn number(word: &str) -> Result<u32, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| "a number is expected, such as 0x10000000".to_owned())
}

/// An IP protocol, by name or number.
pub(crate) fn protocol(word: &str) -> Result<u8, String> {
    let number = match word {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "icmp6" | "icmpv6" => 58,
        other => other
            .parse()
            .map_err(|_| "a protocol is tcp, udp, icmp, icmp6 or a number up to 255".to_owned())?,
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
