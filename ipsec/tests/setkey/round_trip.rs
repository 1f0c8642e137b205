//! `parse(print(file)) == file` for random files, and the parser never panics on random bytes.

use std::net::IpAddr;

use super::setkey_text;
use ipsec::setkey::ast::*;
use ipsec::setkey::{Span, parse, print};
use ipsec::suite::Secret;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

fn at<T>(node: T) -> At<T> {
    At::new(node, Span::default())
}

fn some_at<T: std::fmt::Debug>(
    strategy: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<At<T>>> {
    of(strategy.prop_map(at))
}

fn hosts() -> impl Strategy<Value = At<Host>> {
    let name =
        "[a-z][a-z0-9-]{0,8}(\\.[a-z][a-z0-9]{0,5})?".prop_filter("words of their own", |name| {
            ![
                "tagged", "esp", "ah", "tcp", "ipcomp", "esp-old", "esp-udp", "ah-old",
            ]
            .contains(&&**name)
        });
    let zone = (any::<[u8; 16]>(), "[a-z]{1,4}[0-9]");
    prop_oneof![
        6 => any::<[u8; 4]>().prop_map(|bytes| Host::Address(IpAddr::from(bytes))),
        6 => any::<[u8; 16]>().prop_map(|bytes| Host::Address(IpAddr::from(bytes))),
        1 => zone.prop_map(|(bytes, zone)| Host::Scoped(IpAddr::from(bytes), zone)),
        2 => name.prop_map(Host::Name),
    ]
    .prop_map(at)
}

fn ports() -> impl Strategy<Value = Option<At<Port>>> {
    some_at(prop_oneof![
        Just(Port::Any),
        any::<u16>().prop_map(Port::Number),
        "[a-z]{4,8}".prop_map(Port::Service),
    ])
}

fn endpoints() -> impl Strategy<Value = Endpoint> {
    (hosts(), ports()).prop_map(|(host, port)| Endpoint { host, port })
}

fn ranges() -> impl Strategy<Value = Range> {
    (hosts(), of(0..=32_u8), ports()).prop_map(|(host, prefix, port)| Range {
        host,
        prefix: prefix.map(at),
        port,
    })
}

fn lookups() -> impl Strategy<Value = Lookup> {
    let family = prop_oneof![Just(None), Just(Some(Family::V4)), Just(Some(Family::V6))];
    (family, any::<bool>()).prop_map(|(family, numeric)| Lookup { family, numeric })
}

fn protocols() -> impl Strategy<Value = At<ProtocolWord>> {
    let original = hosts().prop_filter("told from an SPI by its dots", |host| {
        !matches!(host.node, Host::Name(_))
    });
    prop_oneof![
        Just(ProtocolWord::Esp),
        Just(ProtocolWord::EspOld),
        of(original).prop_map(ProtocolWord::EspUdp),
        Just(ProtocolWord::Ah),
        Just(ProtocolWord::AhOld),
        Just(ProtocolWord::IpComp),
        Just(ProtocolWord::Tcp),
    ]
    .prop_map(at)
}

fn labels() -> impl Strategy<Value = Option<At<Label>>> {
    let label = (any::<u64>(), any::<u64>(), "[^\"\\n]{0,12}");
    some_at(label.prop_map(|(domain, algorithm, text)| Label {
        domain,
        algorithm,
        text,
    }))
}

fn options() -> impl Strategy<Value = Vec<At<NamedOption>>> {
    let option = ("[a-z]{1,6}(-[a-z]{1,6})?", of("[a-z0-9,=]{0,6}"));
    vec(
        option.prop_map(|(name, value)| at(NamedOption { name, value })),
        0..3,
    )
}

fn extensions() -> impl Strategy<Value = Extensions> {
    let modes = prop_oneof![
        Just(ModeWord::Transport),
        Just(ModeWord::Tunnel),
        Just(ModeWord::Any)
    ];
    let paddings = prop_oneof![
        Just(Padding::Zero),
        Just(Padding::Random),
        Just(Padding::Sequential)
    ];
    let numbers = [(); 6].map(|()| some_at(any::<u64>()));
    (
        some_at(modes),
        some_at(paddings),
        some_at(Just(())),
        numbers,
        labels(),
        options(),
    )
        .prop_map(|(mode, padding, nocyclic, numbers, label, options)| {
            let [
                replay,
                reqid,
                hard_seconds,
                soft_seconds,
                hard_bytes,
                soft_bytes,
            ] = numbers;
            Extensions {
                mode,
                replay,
                reqid,
                padding,
                nocyclic,
                hard_seconds,
                soft_seconds,
                hard_bytes,
                soft_bytes,
                label,
                options,
            }
        })
}

fn sa_names() -> impl Strategy<Value = SaName> {
    let ends = (endpoints(), endpoints());
    (lookups(), ends, protocols(), any::<u32>(), extensions()).prop_map(
        |(lookup, (source, destination), protocol, spi, extensions)| SaName {
            lookup,
            source,
            destination,
            protocol,
            spi: at(spi),
            extensions,
        },
    )
}

fn algorithms() -> impl Strategy<Value = Option<At<Algorithm>>> {
    let quoted = vec(
        any::<u8>().prop_filter("no end of string", |byte| !b"\"\n".contains(byte)),
        0..40,
    );
    let key = prop_oneof![
        vec(any::<u8>(), 1..40).prop_map(|bytes| Key::Hexadecimal(Secret::new(bytes))),
        quoted.prop_map(|bytes| Key::Quoted(Secret::new(bytes))),
    ];
    some_at(
        ("[a-z0-9][a-z0-9-]{0,15}", some_at(key)).prop_map(|(name, key)| Algorithm {
            name: at(name),
            key,
        }),
    )
}

fn sa_entries() -> impl Strategy<Value = Box<SaEntry>> {
    let compression = some_at(
        ("[a-z]{1,8}", any::<bool>()).prop_map(|(name, raw)| Compression {
            name: at(name),
            raw,
        }),
    );
    (sa_names(), algorithms(), algorithms(), compression).prop_map(
        |(name, encryption, integrity, compression)| {
            Box::new(SaEntry {
                name,
                encryption,
                integrity,
                compression,
            })
        },
    )
}

fn uppers() -> impl Strategy<Value = At<UpperClause>> {
    let message = (
        prop_oneof![Just(1), Just(58), Just(135)],
        any::<u8>(),
        of(any::<u8>()),
    );
    prop_oneof![
        Just(UpperClause::Any),
        (1..=254_u8).prop_map(UpperClause::Protocol),
        message.prop_map(|(protocol, kind, code)| UpperClause::Message {
            protocol,
            kind,
            code
        }),
        any::<u32>().prop_map(UpperClause::Gre),
    ]
    .prop_map(at)
}

fn selectors() -> impl Strategy<Value = SelectorClause> {
    let ranges = (ranges(), ranges(), uppers());
    prop_oneof![
        8 => ranges.prop_map(|(source, destination, upper)| {
            SelectorClause::Ranges(Box::new(Ranges { source, destination, upper }))
        }),
        1 => "[^\"\\n]{0,12}".prop_map(|tag| SelectorClause::Tagged(at(tag))),
    ]
}

fn priorities() -> impl Strategy<Value = Option<At<Priority>>> {
    let bases = prop_oneof![
        Just(PriorityBase::Low),
        Just(PriorityBase::Default),
        Just(PriorityBase::High)
    ];
    some_at(prop_oneof![
        (-(1_i64 << 31) + 1..=1 << 31).prop_map(|offset| Priority { base: None, offset }),
        (bases, -(1_i64 << 30) + 1..=1 << 30).prop_map(|(base, offset)| Priority {
            base: Some(base),
            offset
        }),
    ])
}

/// In a policy the hyphen is a sign, so that names of hosts there cannot have one.
fn template_ends() -> impl Strategy<Value = Ends> {
    let end = || endpoints().prop_filter("no hyphens", |end| !print_has_hyphen(end));
    prop_oneof![
        8 => (end(), end()).prop_map(|(near, far)| Ends::Between(Box::new([near, far]))),
        1 => Just(Ends::MeAny),
        1 => Just(Ends::AnyMe),
    ]
}

fn print_has_hyphen(end: &Endpoint) -> bool {
    matches!(&end.host.node, Host::Name(name) if name.contains('-') || name == "me" || name == "any")
}

fn templates() -> impl Strategy<Value = At<TemplateClause>> {
    let protocol = prop_oneof![
        Just(TemplateProtocol::Esp),
        Just(TemplateProtocol::Ah),
        Just(TemplateProtocol::IpComp)
    ];
    let level = prop_oneof![
        Just(LevelWord::Default),
        Just(LevelWord::Use),
        Just(LevelWord::Require),
        Just(LevelWord::Unique(None)),
        (1..=u32::MAX).prop_map(|id| LevelWord::Unique(Some(id))),
    ];
    (protocol, of(template_ends()), any::<bool>(), level).prop_map(
        |(protocol, ends, tunnel, level)| {
            let mode = if tunnel && ends.is_some() {
                ModeWord::Tunnel
            } else {
                ModeWord::Transport
            };
            at(TemplateClause {
                protocol: at(protocol),
                mode: at(mode),
                ends: ends.map(at),
                level: at(level),
            })
        },
    )
}

fn policies() -> impl Strategy<Value = PolicyClause> {
    let direction = prop_oneof![
        Just(DirectionWord::In),
        Just(DirectionWord::Out),
        Just(DirectionWord::Forward)
    ];
    let bare = prop_oneof![
        Just(ActionWord::Discard),
        Just(ActionWord::None),
        Just(ActionWord::Entrust),
        Just(ActionWord::Bypass)
    ];
    let action = prop_oneof![
        bare.prop_map(|action| (action, Vec::new())),
        vec(templates(), 1..4).prop_map(|templates| (ActionWord::Ipsec, templates)),
    ];
    (direction, priorities(), action).prop_map(|(direction, priority, (action, templates))| {
        PolicyClause {
            direction: at(direction),
            priority,
            action: Some(at(action)),
            templates,
        }
    })
}

fn policy_entries() -> impl Strategy<Value = Box<PolicyEntry>> {
    (lookups(), selectors(), labels(), options(), policies()).prop_map(
        |(lookup, selector, label, options, policy)| {
            Box::new(PolicyEntry {
                lookup,
                selector,
                label,
                options,
                policy,
            })
        },
    )
}

/// A policy as `spddelete` may name it, by its direction alone.
fn named_policies() -> impl Strategy<Value = Box<PolicyEntry>> {
    (policy_entries(), any::<bool>()).prop_map(|(mut entry, bare)| {
        if bare {
            let policy = &mut entry.policy;
            (policy.priority, policy.action, policy.templates) = (None, None, Vec::new());
        }
        entry
    })
}

fn groups() -> impl Strategy<Value = Box<SaGroup>> {
    sa_names().prop_map(|name| {
        let SaName {
            lookup,
            source,
            destination,
            protocol,
            ..
        } = name;
        Box::new(SaGroup {
            lookup,
            source,
            destination,
            protocol,
        })
    })
}

fn statements() -> impl Strategy<Value = Statement> {
    prop_oneof![
        sa_entries().prop_map(Statement::Add),
        sa_entries().prop_map(Statement::Update),
        sa_names().prop_map(|name| Statement::GetSpi(Box::new(name))),
        sa_names().prop_map(|name| Statement::Get(Box::new(name))),
        sa_names().prop_map(|name| Statement::Delete(Box::new(name))),
        groups().prop_map(Statement::DeleteAll),
        of(protocols()).prop_map(Statement::Flush),
        of(protocols()).prop_map(Statement::Dump),
        policy_entries().prop_map(Statement::SpdAdd),
        policy_entries().prop_map(Statement::SpdUpdate),
        named_policies().prop_map(Statement::SpdDelete),
        named_policies().prop_map(Statement::SpdGet),
        Just(Statement::SpdFlush),
        Just(Statement::SpdDump),
    ]
}

fn files() -> impl Strategy<Value = File> {
    (vec(statements(), 0..6), any::<bool>()).prop_map(|(mut statements, exits)| {
        statements.extend(exits.then_some(Statement::Exit));
        File {
            statements: statements.into_iter().map(at).collect(),
        }
    })
}

proptest! {
    #[test]
    fn every_file_survives_printing(file in files()) {
        let printed = print(&file);
        let parsed = parse(&printed);
        let shown = String::from_utf8_lossy(&printed);
        prop_assert!(parsed.problems.is_empty(), "{}\n{:?}", shown, parsed.problems);
        prop_assert!(parsed.file == file, "{}", shown);
    }

    #[test]
    fn no_bytes_make_the_parser_stumble(text in vec(any::<u8>(), 0..200)) {
        setkey_text::check(&text);
    }

    #[test]
    fn no_jumble_of_the_languages_own_words_makes_the_parser_stumble(words in vec(0..WORDS.len(), 0..60)) {
        let text: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
        setkey_text::check(text.join(" ").as_bytes());
        setkey_text::check(text.concat().as_bytes());
    }

    #[test]
    fn no_damage_to_a_sample_makes_the_parser_stumble(
        cuts in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..8),
    ) {
        let mut text = include_bytes!("../vectors/setkey/sample.cf").to_vec();
        text.extend_from_slice(include_bytes!("../vectors/setkey/sample-policy02.cf"));
        text.drain(..1500);
        for (index, byte, kind) in cuts {
            let place = index.index(text.len());
            match kind {
                0 => text[place] = byte,
                1 => drop(text.remove(place)),
                _ => text.insert(place, byte),
            }
        }
        setkey_text::check(&text);
    }
}

const WORDS: [&str; 62] = [
    "add",
    "update",
    "delete",
    "deleteall",
    "get",
    "getspi",
    "flush",
    "dump",
    "spdadd",
    "spdupdate",
    "spddelete",
    "spdget",
    "spdflush",
    "spddump",
    "exit",
    "tagged",
    "\"tag\"",
    "10.0.0.1",
    "::1",
    "host.example",
    "/24",
    "[any]",
    "[80]",
    "esp",
    "ah",
    "esp-udp",
    "ipcomp",
    "tcp",
    "icmp6",
    "135,0",
    "any",
    "0x1000",
    "4097",
    "-m",
    "tunnel",
    "transport",
    "-r",
    "-u",
    "-f",
    "zero-pad",
    "-lh",
    "-bh",
    "-ctx",
    "-o",
    "esn=yes",
    "-E",
    "aes-cbc",
    "-A",
    "-C",
    "-R",
    "-P",
    "in",
    "out",
    "ipsec",
    "none",
    "prio",
    "high",
    "+",
    "-",
    "/",
    ";",
    "\n",
];

/// Every prefix of a text with every kind of statement: the text may end anywhere.
#[test]
fn a_text_cut_off_anywhere_makes_the_parser_stumble_nowhere() {
    let text = b"add -6n ::1[5] b.c esp-udp 10.0.0.1 0x1000 -m any -r 4 -f seq-pad -ctx 1 2 \"l\" -o esn -E aes-cbc 0x00 -A null;\nspdadd ::/0[any] ::/0 icmp6 135,0 -o a=b -P in prio low + 5 ipsec esp/tunnel/::1[4500]-::2/unique:5 ah/transport;\nspdadd tagged \"x\" -P out none; flush esp; exit;";
    for end in 0..=text.len() {
        setkey_text::check(&text[..end]);
    }
}
