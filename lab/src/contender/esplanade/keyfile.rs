//! The two setkey files of a tunnel. They are results like the table: readable, and enough to repeat the tunnel by hand.

use std::fs::File;
use std::io::Read;

use crate::capture::EspKey;
use crate::contender::Side;
use crate::fault::Fault;
use crate::suite::Suite;
use crate::testbed::Addresses;

/// Fresh keys for both directions, never used by another tunnel of any run.
pub struct Keys {
    suite: &'static Suite,
    to_right: Direction,
    to_left: Direction,
}

struct Direction {
    spi: u32,
    cipher: String,
    hash: String,
}

impl Keys {
    /// Draws keys from the system. The two SPIs are `spi + 1` and `spi + 2`.
    pub fn fresh(suite: &'static Suite, spi: u32) -> Result<Keys, Fault> {
        Ok(Keys {
            suite,
            to_right: Direction::fresh(suite, spi + 1)?,
            to_left: Direction::fresh(suite, spi + 2)?,
        })
    }

    /// The file of one gateway: both read the same SAs, and mirrored policies.
    pub fn text(&self, side: Side, map: &Addresses) -> String {
        let (left, right) = (map.left, map.right);
        let (near, far) = (&map.left_network, &map.right_network);
        let (to_right, to_left) = match side {
            Side::Left => ("out", "in"),
            Side::Right => ("in", "out"),
        };
        format!(
            "# The {} gateway: {near} and {far} reach each other through ESP in UDP, {}.\n\
             # Start it with: esplanade run --setkey THIS_FILE\n\
             {}{}\
             spdadd {near} {far} any -P {to_right} ipsec esp/tunnel/{left}-{right}/require;\n\
             spdadd {far} {near} any -P {to_left} ipsec esp/tunnel/{right}-{left}/require;\n",
            side.name(),
            self.suite.label,
            self.add(&format!("{left} {right}"), &self.to_right),
            self.add(&format!("{right} {left}"), &self.to_left),
        )
    }

    fn add(&self, ends: &str, direction: &Direction) -> String {
        let algorithm = |option: &str, name: &str, key: &str| match (name, key) {
            ("", _) => String::new(),
            (name, "") => format!(" {option} {name}"),
            (name, key) => format!(" {option} {name} 0x{key}"),
        };
        format!(
            "add {ends} esp-udp 0x{:04x} -m tunnel -r 1024{}{};\n",
            direction.spi,
            algorithm("-E", self.suite.cipher, &direction.cipher),
            algorithm("-A", self.suite.hash, &direction.hash),
        )
    }

    /// What opens the capture, where an analyser can open it.
    pub fn for_analysers(&self, map: &Addresses) -> Vec<EspKey> {
        let Some(names) = self.suite.wireshark else {
            return Vec::new();
        };
        let (left, right) = (map.left.to_string(), map.right.to_string());
        vec![
            self.to_right
                .for_analyser(left.clone(), right.clone(), names),
            self.to_left.for_analyser(right, left, names),
        ]
    }
}

impl Direction {
    fn fresh(suite: &Suite, spi: u32) -> Result<Direction, Fault> {
        Ok(Direction {
            spi,
            cipher: random_hex(suite.cipher_key)?,
            hash: random_hex(suite.hash_key)?,
        })
    }

    fn for_analyser(
        &self,
        source: String,
        destination: String,
        (cipher, hash): (&'static str, &'static str),
    ) -> EspKey {
        EspKey {
            source,
            destination,
            spi: self.spi,
            cipher,
            cipher_key: self.cipher.clone(),
            hash,
            hash_key: self.hash.clone(),
        }
    }
}

fn random_hex(length: usize) -> Result<String, Fault> {
    let mut key = vec![0; length];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut key))
        .map_err(|error| Fault::failed(format!("cannot draw keys from /dev/urandom: {error}")))?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    fn keys(name: &str) -> Keys {
        let direction = |spi| Direction {
            spi,
            cipher: "ab".repeat(suite::find(name).unwrap().cipher_key),
            hash: "cd".repeat(suite::find(name).unwrap().hash_key),
        };
        Keys {
            suite: suite::find(name).unwrap(),
            to_right: direction(0x1001),
            to_left: direction(0x1002),
        }
    }

    #[test]
    fn the_left_file_reads_as_a_person_would_write_it() {
        let text = keys("aes-128-cbc-sha1").text(Side::Left, &Addresses::default());
        let key = "ab".repeat(16);
        let hash = "cd".repeat(20);
        let expected = format!(
            "# The left gateway: 10.1.0.0/24 and 10.2.0.0/24 reach each other through ESP in UDP, AES-128-CBC + SHA1.
# Start it with: esplanade run --setkey THIS_FILE
add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 1024 -E aes-cbc 0x{key} -A hmac-sha1 0x{hash};
add 192.0.2.2 192.0.2.1 esp-udp 0x1002 -m tunnel -r 1024 -E aes-cbc 0x{key} -A hmac-sha1 0x{hash};
spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;
spdadd 10.2.0.0/24 10.1.0.0/24 any -P in ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;
"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn the_right_file_mirrors_the_policies_and_keeps_the_associations() {
        let keys = keys("null");
        let (left, right) = (
            keys.text(Side::Left, &Addresses::default()),
            keys.text(Side::Right, &Addresses::default()),
        );
        let lines = |text: &str, word: &str| -> Vec<String> {
            text.lines()
                .filter(|line| line.starts_with(word))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(lines(&left, "add"), lines(&right, "add"));
        assert!(left.contains("-E null;"));
        let swapped: Vec<String> = lines(&left, "spdadd")
            .iter()
            .map(|line| match line.contains("-P out") {
                true => line.replace("-P out", "-P in"),
                false => line.replace("-P in", "-P out"),
            })
            .collect();
        assert_eq!(swapped, lines(&right, "spdadd"));
    }

    #[test]
    fn fresh_keys_differ_and_fit() {
        let suite = suite::find("aes-128-gcm").unwrap();
        let keys = Keys::fresh(suite, 0x1000).unwrap();
        assert_eq!(keys.to_right.cipher.len(), 40);
        assert_ne!(keys.to_right.cipher, keys.to_left.cipher);
        assert_eq!((keys.to_right.spi, keys.to_left.spi), (0x1001, 0x1002));
    }
}
