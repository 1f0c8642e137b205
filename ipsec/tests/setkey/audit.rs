//! The whole language of ipsec-tools, word by word: what each does here, and that the manual describes it.

use std::net::IpAddr;

use ipsec::command::Command;
use ipsec::sa::{Mode, SaConfig};
use ipsec::setkey::{Forwarding, LookupError, Lowered, Names, Problem, compile, parse, print};
use ipsec::suite::NAMED_SUITES;

const MANUAL: &str = include_str!("../../../docs/setkey.md");
const KEY: &str = "-E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213";
const SA: &str = "192.0.2.1 192.0.2.2 esp 0x1000";

/// Every word of a statement or an option, a text with it, and the place of the manual that explains it.
#[rustfmt::skip]
const SUPPORTED: [(&str, &str, &str); 44] = [
    ("add",           "add SA KEY;",                                             "| `add ["),
    ("update",        "update SA KEY;",                                          "| `update ["),
    ("delete",        "delete SA;",                                              "| `delete ["),
    ("deleteall",     "deleteall 192.0.2.1 192.0.2.2 esp;",                      "| `deleteall ["),
    ("get",           "get SA;",                                                 "| `get ["),
    ("getspi",        "getspi 192.0.2.1 192.0.2.2 esp 0;",                       "| `getspi ["),
    ("flush",         "flush;",                                                  "| `flush ["),
    ("dump",          "dump esp;",                                               "| `dump ["),
    ("spdadd",        "spdadd ::/0 ::/0 any -P out none;",                       "| `spdadd ["),
    ("spdupdate",     "spdupdate ::/0 ::/0 any -P out none;",                    "| `spdupdate ["),
    ("spddelete",     "spddelete ::/0 ::/0 any -P out;",                         "| `spddelete ["),
    ("spdget",        "spdget ::/0 ::/0 any -P out;",                            "| `spdget ["),
    ("spdflush",      "spdflush;",                                               "| `spdflush ;"),
    ("spddump",       "spddump;",                                                "| `spddump ;"),
    ("exit",          "flush; exit; nonsense",                                   "| `exit ;`"),
    ("-4",            "deleteall -4 both both esp;",                             "`-4` and `-6` choose a family"),
    ("-6",            "deleteall -6 both both esp;",                             "`-4` and `-6` choose a family"),
    ("-n",            "delete -n SA;",                                           "`-n` forbids names"),
    ("-m transport",  "add SA -m transport KEY;",                                "`-m transport`"),
    ("-m tunnel",     "add SA -m tunnel KEY;",                                   "`-m tunnel`"),
    ("-m any",        "add SA -m any KEY;",                                      "`-m any`"),
    ("-r",            "add SA -r 64 KEY;",                                       "| `-r N` |"),
    ("-u",            "add SA -u 7 KEY;",                                        "| `-u N` |"),
    ("-f seq-pad",    "add SA -f seq-pad KEY;",                                  "`-f seq-pad`"),
    ("-f zero-pad",   "add SA -f zero-pad KEY;",                                 "`-f zero-pad`"),
    ("-f random-pad", "add SA -f random-pad KEY;",                               "`-f random-pad`"),
    ("-f nocyclic-seq", "add SA -f nocyclic-seq KEY;",                           "`-f nocyclic-seq`"),
    ("-lh -ls",       "add SA -lh 90 -ls 80 KEY;",                               "| `-lh N`, `-ls N` |"),
    ("-bh -bs",       "add SA -bh 90 -bs 80 KEY;",                               "| `-bh N`, `-bs N` |"),
    ("-o",            "add SA -o df=set KEY;",                                   "| `-o NAME=VALUE` |"),
    ("esp-udp",       "add 192.0.2.1[5000] 192.0.2.2[any] esp-udp 9999 KEY;",    "| `esp-udp` |"),
    ("ah",            "add 192.0.2.1 192.0.2.2 ah 9999 -A hmac-sha1 \"12345678901234567890\";", "| `ah` |"),
    ("ipcomp",        "add 192.0.2.1 192.0.2.2 ipcomp 9999 -C deflate;",        "| `ipcomp` |"),
    ("-C -R",         "add 192.0.2.1 192.0.2.2 ipcomp 9999 -C deflate -R;",     "`-C deflate`"),
    ("quoted key",    "add SA -E aes-cbc \"sixteen bytes ok\";",                 "characters in double quotes"),
    ("odd hex key",   "add SA -E aes-cbc 0x00102030405060708090a0b0c0d0e0f;",    "An odd number of digits"),
    ("a name",        "delete -4 both 192.0.2.2 esp 9999;",                         "names that `setkey` looks up"),
    ("address",       "spdadd 192.0.2.1 192.0.2.2 any -P out none;",                     "`address`"),
    ("prefix",        "spdadd 10.1.0.0/16 10.2.0.0/16 any -P out none;",         "`address/prefix`"),
    ("port",          "spdadd 10.1.0.1[80] 10.2.0.1[any] tcp -P out none;",      "`address[port]`"),
    ("prefix, port",  "spdadd fd00::/64[http] fd01::/64[443] 6 -P out none;",    "`address/prefix[port]`"),
    ("icmp6 type",    "spdadd ::/0 ::/0 icmp6 135,0 -P out none;",               "`icmp6 135,0`"),
    ("priority",      "spdadd ::/0 ::/0 any -P out prio high + 5 none;",         "`prio high`"),
    ("levels",        "spdadd ::/0 ::/0 any -P out ipsec esp/transport//use ah/transport//default;", "| `default` |"),
];

/// What parses and is refused, with a word of the reason.
#[rustfmt::skip]
const REFUSED: [(&str, &str, &str); 17] = [
    ("lzs",        "add 192.0.2.1 192.0.2.2 ipcomp 9999 -C lzs;",              "RFC 2395"),
    ("lzjh",       "add 192.0.2.1 192.0.2.2 ipcomp 9999 -C lzjh;",             "RFC 3051"),
    ("esp-old",    "add 192.0.2.1 192.0.2.2 esp-old 9999 KEY;",                "RFC 1827"),
    ("ah-old",     "add 192.0.2.1 192.0.2.2 ah-old 9999 -A hmac-sha1 \"12345678901234567890\";", "RFC 1826"),
    ("tcp",        "add 192.0.2.1 192.0.2.2 tcp 0x1000 -A tcp-md5 \"secret\";", "belong to TCP"),
    ("tagged",     "spdadd tagged \"x\" -P in none;",                          "tag"),
    ("-ctx",       "add SA -ctx 1 1 \"label\" KEY;",                           "label"),
    ("keyed-md5",  "add SA -E null -A keyed-md5 \"k\";",                       "RFC 1828"),
    ("keyed-sha1", "add SA -E null -A keyed-sha1 \"k\";",                      "RFC 1852"),
    ("tcp-md5",    "add SA -E null -A tcp-md5 \"k\";",                         "belong to TCP"),
    ("des-deriv",  "add SA -E des-deriv \"12345678\";",                        "never became an RFC"),
    ("3des-deriv", "add SA -E 3des-deriv \"12345678\";",                       "never became an RFC"),
    ("des-32iv",   "add SA -E des-32iv \"12345678\";",                         "RFC 1827"),
    ("rc5-cbc",    "add SA -E rc5-cbc \"12345678\";",                          "RC5"),
    ("twofish-cbc", "add SA -E twofish-cbc \"12345678\";",                     "Twofish"),
    ("skipjack",   "add SA -E skipjack \"12345678\";",                         "Skipjack"),
    ("bypass",     "spdadd ::/0 ::/0 any -P out bypass;",                      "sockets"),
];

/// A resolver that knows one name.
struct Both;

impl Names for Both {
    fn host(&mut self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let found = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        match name {
            "both" => Ok(found.to_vec()),
            _ => Err(LookupError::NumericOnly),
        }
    }

    fn service(&mut self, name: &str) -> Option<u16> {
        (name == "http").then_some(80)
    }
}

fn lowered(text: &str) -> Result<Lowered, Vec<Problem>> {
    let text = text.replace("SA", SA).replace("KEY", KEY);
    compile(text.as_bytes(), Forwarding::WithIn, &mut Both)
}

#[test]
fn every_word_is_obeyed_survives_printing_and_stands_in_the_manual() {
    for (word, text, place) in SUPPORTED {
        let lowered = lowered(text).unwrap_or_else(|problems| {
            panic!("{word}: {}", problems[0].render(word, text.as_bytes()))
        });
        assert!(!lowered.commands.is_empty(), "{word}");
        let file = parse(text.replace("SA", SA).replace("KEY", KEY).as_bytes()).file;
        assert!(parse(&print(&file)).file == file, "{word}");
        assert!(MANUAL.contains(place), "the manual lacks {word}: {place}");
    }
}

#[test]
fn every_word_that_is_not_done_is_refused_with_its_reason() {
    for (word, text, reason) in REFUSED {
        let problems = lowered(text)
            .err()
            .unwrap_or_else(|| panic!("{word} is accepted"));
        let message = &problems[0].message;
        assert!(message.contains(reason), "{word}: {message}");
        assert!(MANUAL.contains(&format!("`{word}`")), "{word}");
    }
}

fn config(text: &str) -> SaConfig {
    match &lowered(text).unwrap().commands[..] {
        [Command::AddSa(config)] => SaConfig::clone(config),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_option_reaches_its_field() {
    let told = config("add SA -m tunnel -r 64 -u 7 -lh 90 -ls 80 -bh 900 -bs 800 KEY;");
    assert_eq!(
        (told.mode, told.replay_window, told.reqid.0),
        (Mode::Tunnel, 64, 7)
    );
    let (soft, hard) = (told.lifetimes.soft, told.lifetimes.hard);
    assert_eq!(
        (hard.age, soft.age, hard.bytes, soft.bytes),
        (90, 80, 900, 800)
    );
    let told = config("add SA -E aes-cbc \"sixteen bytes ok\";");
    assert_eq!(
        told.suite.encryption().unwrap().1.expose(),
        b"sixteen bytes ok"
    );
    let told = config("add SA -E aes-cbc 0x00102030405060708090a0b0c0d0e0f;");
    assert_eq!(told.suite.encryption().unwrap().1.expose()[..3], [0, 1, 2]);
}

#[test]
fn a_family_chooses_among_the_addresses_of_a_name() {
    for (flag, wanted) in [("-4", "192.0.2.1"), ("-6", "2001:db8::1")] {
        let lowered = lowered(&format!("deleteall {flag} both both esp;")).unwrap();
        let wanted: IpAddr = wanted.parse().unwrap();
        let [
            Command::DeleteAllSas {
                source,
                destination,
                ..
            },
        ] = &lowered.commands[..]
        else {
            panic!("{:?}", lowered.commands);
        };
        assert_eq!((*source, *destination), (wanted, wanted));
    }
}

/// RFC 4301 4.5.2: the first bytes of the keying material encrypt, the rest authenticates.
#[test]
fn a_named_suite_is_the_same_as_its_algorithms_with_the_key_cut_in_two() {
    for (suite, apart) in [
        ("vpn-a", "-E 3des-cbc 0xCUT:24 -A hmac-sha1 0xREST:24+20"),
        ("vpn-b", "-E aes-cbc 0xCUT:16 -A aes-xcbc-mac 0xREST:16+16"),
        ("suite-b-gcm-128", "-E aes-gcm-16 0xCUT:20"),
        ("suite-b-gcm-256", "-E aes-gcm-16 0xCUT:36"),
        ("suite-b-gmac-128", "-E aes-gmac 0xCUT:20"),
        ("suite-b-gmac-256", "-E aes-gmac 0xCUT:36"),
    ] {
        let key: String = (0..80).map(|byte| format!("{byte:02x}")).collect();
        let mut total = 0;
        let words: Vec<_> = apart
            .split(' ')
            .map(|word| match word.split_once(':') {
                Some((_, range)) => {
                    let (from, len) = range.split_once('+').unwrap_or(("0", range));
                    let (from, len): (usize, usize) = (from.parse().unwrap(), len.parse().unwrap());
                    total = from + len;
                    format!("0x{}", &key[2 * from..2 * total])
                }
                None => word.to_owned(),
            })
            .collect();
        let apart = config(&format!("add SA {};", words.join(" ")));
        let named = config(&format!("add SA -E {suite} 0x{};", &key[..2 * total]));
        assert!(named == apart, "{suite}");
    }
    for suite in &NAMED_SUITES {
        let row = format!(
            "| `{}` | {} | {} |",
            suite.name,
            suite.key_len(),
            suite.document
        );
        assert!(MANUAL.contains(&row), "{row}");
    }
}

/// One key and salt in two associations is as bad under a name.
#[test]
fn a_salted_key_that_serves_twice_draws_its_warning_under_any_name() {
    let key = "0x000102030405060708090a0b0c0d0e0f10111213";
    let text = format!(
        "add 192.0.2.1 192.0.2.2 esp 0x1000 -r 64 -E suite-b-gcm-128 {key};
         add 192.0.2.2 192.0.2.1 esp 0x1001 -r 64 -E aes-gcm-16 {key};"
    );
    let warnings = lowered(&text).unwrap().warnings;
    assert!(
        warnings.len() == 1 && warnings[0].message.contains("this key and salt"),
        "{warnings:?}"
    );
}
