//! Which places of a file must not be shown in a message: pre-shared keys, also in a file that is no TOML, and what
//! stands behind a key that is like no other, because that may be a misspelt `psk`.

use super::keys;
use ipsec::setkey::{Span, nearest};

/// The keys whose value is a secret.
const SECRET_KEYS: [&str; 1] = ["psk"];

/// The secrets of `text`. In doubt it is more than that.
pub(super) fn places(text: &str) -> Vec<Span> {
    let mut scanner = Scanner {
        text: text.as_bytes(),
        at: 0,
        hides: false,
        found: Vec::new(),
    };
    while scanner.step() {}
    scanner.found.extend(behind_words(text));
    scanner.found
}

/// What stands behind the word itself, to the end of its line, whatever is wrong with quotes and brackets around it.
fn behind_words(text: &str) -> impl Iterator<Item = Span> {
    let words = SECRET_KEYS
        .into_iter()
        .flat_map(|word| text.match_indices(word));
    words.filter_map(|(start, word)| {
        let rest = text.get(start + word.len()..)?;
        let line = rest.split('\n').next().unwrap_or_default();
        // `psk_file = "office.psk"`.
        let ends_name = |behind: &str| {
            behind.trim_start().is_empty() || behind.trim_start().starts_with([',', ']', '}', '#'])
        };
        let is_file =
            line.starts_with("_file") || line.strip_prefix(['"', '\'']).is_some_and(ends_name);
        let value = line.trim_start_matches([' ', '\t', '=']);
        let end = start + word.len() + line.len();
        (!is_file).then(|| Span::new(end - value.len(), end))
    })
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Whether the last word was a key whose value is hidden.
    hides: bool,
    found: Vec<Span>,
}

impl Scanner<'_> {
    /// Goes past one string, word, comment or other byte; false at the end.
    fn step(&mut self) -> bool {
        let Some(&byte) = self.text.get(self.at) else {
            return false;
        };
        match byte {
            b'"' | b'\'' => self.string(byte),
            b'#' => self.at = self.end_of_line(self.at),
            _ if is_of_word(byte) => self.word(),
            _ => self.at += 1,
        }
        true
    }

    /// A bare word: a key decides about what follows it; behind a key that hides, a word is a secret without quotes.
    fn word(&mut self) {
        let rest = &self.text[self.at..];
        let len = rest.iter().position(|&byte| !is_of_word(byte));
        let end = self.at + len.unwrap_or(rest.len());
        if self.hides && self.follows_key() {
            let end = self.end_of_line(self.at);
            self.found.push(Span::new(self.at, end));
            self.at = end;
            return;
        }
        self.key(self.at, end);
        self.at = end;
    }

    fn string(&mut self, quote: u8) {
        let start = self.at;
        let end = self.end_of_string(quote);
        self.at = end;
        // A string before `=` or in the brackets of a table's name is a key.
        let behind = self.text[end..]
            .iter()
            .find(|byte| !byte.is_ascii_whitespace());
        if behind == Some(&b'=') {
            return self.key((start + 1).min(end), end.saturating_sub(1).max(start));
        }
        if self.hides {
            self.found.push(Span::new(start, end));
        }
    }

    fn key(&mut self, start: usize, end: usize) {
        let word = self.text.get(start..end).unwrap_or_default();
        let word = String::from_utf8_lossy(word);
        // A misspelt key is taken for the nearest one.
        let known = keys::all()
            .find(|known| *known == word)
            .or_else(|| nearest(&word, keys::all()));
        let may_be_secret = known.is_none_or(|known| SECRET_KEYS.contains(&known));
        // Numbers and `true` are values, and the names of peers and children are followed by `]` or a dot.
        let is_key = self.text[end..]
            .iter()
            .find(|byte| !matches!(byte, b' ' | b'\t'));
        self.hides = match is_key {
            Some(b']' | b'.') => false,
            _ => may_be_secret,
        };
    }

    /// Whether nothing but blanks and `=` stands between the last word of this line and this place.
    fn follows_key(&self) -> bool {
        let before = self.text[..self.at].iter().rev();
        let mut before = before.take_while(|&&byte| byte != b'\n');
        let last = before.find(|byte| !matches!(byte, b' ' | b'\t'));
        last.is_some_and(|&byte| byte == b'=' || is_of_word(byte))
    }

    /// Behind the closing quotes; at the end of the line, or of the text for three quotes, where there are none.
    fn end_of_string(&self, quote: u8) -> usize {
        let triple = [quote; 3];
        if self.text[self.at..].starts_with(&triple) {
            let body = self.at + 3;
            let close = self.text[body..]
                .windows(3)
                .position(|three| three == triple);
            return close.map_or(self.text.len(), |close| body + close + 3);
        }
        let (mut at, line_end) = (self.at + 1, self.end_of_line(self.at));
        while at < line_end {
            match self.text[at] {
                b'\\' if quote == b'"' => at += 1,
                byte if byte == quote => return at + 1,
                _ => {}
            }
            at += 1;
        }
        line_end
    }

    fn end_of_line(&self, from: usize) -> usize {
        let newline = self.text[from..].iter().position(|&byte| byte == b'\n');
        newline.map_or(self.text.len(), |newline| from + newline)
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        for place in places(text) {
            bytes[place.start..place.end].fill(b'*');
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_pre_shared_key_is_hidden_however_it_is_written() {
        for text in [
            "psk = \"SECRET\"",
            "psk='SECRET'",
            "\"psk\" = \"SECRET\"",
            "psk = \"SECRET",
            "psk \"SECRET\"",
            "psk = SECRET and SECRET",
            "psk SECRET",
            "psk = \"\"SECRET\"",
            "\"psk = \"SECRET\"",
            "# psk = \"SECRET\"",
            "psk = \"\"\"\nSECRET\nSECRET\"\"\"",
            "psk = \"a\\\"SECRET\"",
            "pks = \"SECRET\"",
            "peer.office = { psk = \"SECRET\", mode = \"policy\" }",
            "peer.office.psk = \"SECRET\"",
            "psk = [\"SECRET\"]",
        ] {
            let shown = shown(text);
            assert!(!shown.contains("SECRET"), "{text}: {shown}");
        }
    }

    #[test]
    fn what_is_known_to_be_no_secret_is_shown() {
        for text in [
            "[peer.office]",
            "remoteid = \"b.example.org\"",
            "remote_id = \"b.example.org\"",
            "networks = { local = [\"10.1.0.0/16\"], remote = [\"10.2.0.0/16\"] }",
            "batch = 64",
            "fail_open = true",
            "# it's \"\"\" here\nmode = \"policy\"",
            "psk_file = \"office.psk\" # the same on both sides",
        ] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(
            shown("psk = \"x\" # why\nmode = \"route\""),
            "psk = *********\nmode = \"route\""
        );
    }
}
