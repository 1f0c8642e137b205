//! The commands that a text is compiled to.

use std::io;
use std::net::IpAddr;

use ipsec::aggfrag::Aggfrag;
use ipsec::algorithm::{Encryption, Integrity};
use ipsec::command::Command;
use ipsec::policy::{Action, Direction, Level, Policy, Template, Upper};
use ipsec::sa::{DontFragment, Dscp, Mode, Protocol, Reqid, SaConfig, UdpEncapsulation};
use ipsec::sa::{LifetimeLimits, Offload, OffloadKind};
use ipsec::setkey::{
    Forwarding, LookupError, Lowered, Names, NoNames, compile, parse, print, resolve,
};

fn accepted(text: &str) -> Lowered {
    compiled(text, Forwarding::WithIn, &mut NoNames)
}

fn compiled(text: &str, forwarding: Forwarding, names: &mut dyn Names) -> Lowered {
    let lowered = compile(text.as_bytes(), forwarding, names);
    lowered.unwrap_or_else(|problems| {
        let rendered: Vec<_> = problems
            .iter()
            .map(|problem| problem.render("text", text.as_bytes()))
            .collect();
        panic!("{}", rendered.concat())
    })
}

fn refused(text: &str) -> String {
    let problems = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).expect_err(text);
    problems[0].message.clone()
}

fn only_sa(text: &str) -> SaConfig {
    match &accepted(text).commands[..] {
        [Command::AddSa(config)] => SaConfig::clone(config),
        other => panic!("{other:?}"),
    }
}

fn policies(lowered: &Lowered) -> Vec<Policy> {
    let of = |command: &Command| match command {
        Command::AddPolicy(policy) | Command::UpdatePolicy(policy) => Some(Policy::clone(policy)),
        _ => None,
    };
    lowered.commands.iter().filter_map(of).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn every_key_length_of_every_encryption_algorithm_is_accepted_or_refused_as_the_table_has_it() {
    for row in Encryption::all() {
        for name in [row.name].iter().chain(row.aliases) {
            for length in 0..=80 {
                let key = "5a".repeat(length);
                let key = if length == 0 {
                    "\"\"".to_owned()
                } else {
                    format!("0x{key}")
                };
                let text = format!("add 192.0.2.1 192.0.2.2 esp 0x1000 -E {name} {key};");
                if row.key_lens.contains(&length) {
                    let config = only_sa(&text);
                    let (algorithm, key) = config.suite.encryption().unwrap();
                    assert!(algorithm == row);
                    assert_eq!(key.expose(), vec![0x5a; length]);
                } else {
                    let message = refused(&text);
                    let counts = [format!("this one has {length}"), "takes no key".to_owned()];
                    assert!(
                        counts.iter().any(|count| message.contains(count)),
                        "{message}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_key_length_of_every_integrity_algorithm_is_accepted_or_refused_as_the_table_has_it() {
    for row in Integrity::all() {
        for name in [row.name].iter().chain(row.aliases) {
            for length in 0..=80 {
                // What needs an IV is for AH alone (RFC 4543 5.3).
                let in_esp = (row.iv_len == 0).then_some("esp 0x1000 -E null");
                for protocol in in_esp.into_iter().chain(["ah 0x1000"]) {
                    let key = "k".repeat(length);
                    let text = format!("add ::1 ::2 {protocol} -A {name} \"{key}\";");
                    if row.key_len == length {
                        let config = only_sa(&text);
                        assert_eq!(config.suite.icv_len(), row.icv_len);
                        assert_eq!(config.suite.integrity().unwrap().1.expose(), key.as_bytes());
                    } else {
                        let wanted = format!(
                            "{} takes a key of {} bytes, this one has {length}",
                            row.name, row.key_len
                        );
                        assert_eq!(refused(&text), wanted);
                    }
                }
            }
        }
    }
}

#[test]
fn a_command_has_its_place_in_the_text() {
    let text =
        "flush;\nadd 192.0.2.1 192.0.2.2 esp 0x1000 -E null;\nspdadd ::/0 ::/0 any -P in none;";
    let lowered = accepted(text);
    let written: Vec<_> = lowered
        .spans
        .iter()
        .map(|place| &text[place.start..place.end])
        .collect();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(written, [lines[0], lines[1], lines[2], lines[2]]);
    assert!(matches!(lowered.commands[0], Command::FlushSas(None)));
}

#[test]
fn an_association_without_options_is_as_in_the_manual() {
    let config = only_sa(
        "add 10.0.11.41 10.0.11.33 esp 0x10001 -E des-cbc 0x3ffe05014819ffff -A hmac-md5 \"authentication!!\";",
    );
    assert_eq!(
        (config.source, config.id.destination),
        (ip("10.0.11.41"), ip("10.0.11.33"))
    );
    assert_eq!(
        (config.id.protocol, config.id.spi.get()),
        (Protocol::Esp, 0x10001)
    );
    assert_eq!(
        (config.mode, config.reqid, config.replay_window),
        (Mode::Any, Reqid(0), 0)
    );
    assert!(!config.esn && config.ecn && config.encapsulation.is_none());
    assert_eq!(
        (config.df, config.dscp, config.tfc),
        (DontFragment::Copy, Dscp::Copy, 0)
    );
    assert_eq!(config.lifetimes, Default::default());
}

#[test]
fn every_option_reaches_its_field() {
    let config = only_sa(
        "add 192.0.2.1 192.0.2.2 esp 4097 -m tunnel -r 64 -u 7 -f seq-pad -f nocyclic-seq -lh 100 -ls 80 -bh 1000 -bs 800
         -o esn=yes -o hard-packets=10 -o soft-packets=8 -o hard-use=50 -o soft-use=40 -o df=clear -o dscp=46 -o ecn=no
         -o tfc=1400 -o icv=12 -o encap=4501,4502 -E null -A hmac-sha256 \"12345678901234567890123456789012\";",
    );
    assert_eq!(
        (config.mode, config.reqid, config.replay_window),
        (Mode::Tunnel, Reqid(7), 64)
    );
    assert!(config.esn && !config.ecn);
    assert_eq!(
        config.lifetimes.hard,
        LifetimeLimits {
            bytes: 1000,
            packets: 10,
            age: 100,
            first_use: 50
        }
    );
    assert_eq!(
        config.lifetimes.soft,
        LifetimeLimits {
            bytes: 800,
            packets: 8,
            age: 80,
            first_use: 40
        }
    );
    assert_eq!(
        (config.df, config.dscp, config.tfc),
        (DontFragment::Clear, Dscp::Set(46), 1400)
    );
    assert_eq!(config.suite.icv_len(), 12);
    let ports = UdpEncapsulation {
        source_port: 4501,
        destination_port: 4502,
    };
    assert_eq!(config.encapsulation, Some(ports));
}

#[test]
fn a_device_of_its_own_and_keepalives_reach_their_fields() {
    let config = only_sa(
        "add 192.0.2.1 192.0.2.2 esp-udp 4097 -m tunnel -r 64 -o interface=vpn-0.1 -o keepalive=20 -o dummy=5 -E null;",
    );
    assert_eq!(config.interface.as_deref(), Some("vpn-0.1"));
    assert_eq!((config.keepalive, config.dummy), (20, 5));
}

#[test]
fn sequence_numbers_go_on_behind_the_last_one_while_any_is_left() {
    let add = |options: &str| {
        format!("add 192.0.2.1 192.0.2.2 esp 4097 -m tunnel -r 64 {options} -E null;")
    };
    assert_eq!(only_sa(&add("")).sequence, 0);
    assert_eq!(
        only_sa(&add("-o sequence=4294967294")).sequence,
        4_294_967_294
    );
    let extended = only_sa(&add("-o esn -o sequence=4294967295"));
    assert_eq!(extended.sequence, 4_294_967_295);
    assert!(only_sa(&add("-o key=fresh")).key_is_fresh && !extended.key_is_fresh);
}

#[test]
fn aggregation_reaches_its_fields_and_is_refused_where_it_means_nothing() {
    let add = |protocol: &str, options: &str| {
        let suite = match protocol {
            "ah" => "-A hmac-md5 \"1234567890123456\"",
            _ => "-E null",
        };
        format!("add 192.0.2.1 192.0.2.2 {protocol} 4097 -r 64 {options} {suite};")
    };
    let aggfrag = |options: &str| only_sa(&add("esp", options)).aggfrag;
    assert_eq!(aggfrag("-m tunnel -o aggfrag"), Some(Aggfrag::default()));
    assert_eq!(aggfrag("-m tunnel -o aggfrag=no"), None);
    let all = "-m tunnel -o aggfrag -o dont-frag -o aggfrag-size=900 -o aggfrag-rate=50 -o aggfrag-window=9 -o aggfrag-wait=7";
    let expected = Aggfrag {
        fragments: false,
        size: 900,
        rate: 50,
        reorder_window: 9,
        reorder_timeout_ms: 7,
    };
    assert_eq!(aggfrag(all), Some(expected));
    for (protocol, options, reason) in [
        ("esp", "-o aggfrag", "only whole packets"),
        ("esp", "-m transport -o aggfrag", "only whole packets"),
        ("ah", "-m tunnel -o aggfrag", "AH cannot aggregate"),
        (
            "esp",
            "-m tunnel -o aggfrag -o tfc=900",
            "padding of their own",
        ),
        ("esp", "-m tunnel -o dont-frag", "AGGFRAG mode alone"),
        (
            "esp",
            "-m tunnel -o aggfrag=no -o aggfrag-rate=9",
            "AGGFRAG mode alone",
        ),
        (
            "esp",
            "-m tunnel -o aggfrag -o aggfrag-size=255",
            "cannot have this value",
        ),
        (
            "esp",
            "-m tunnel -o aggfrag -o aggfrag-rate=1000001",
            "cannot have this value",
        ),
        (
            "esp",
            "-m tunnel -o aggfrag -o aggfrag-window=1025",
            "cannot have this value",
        ),
    ] {
        let told = refused(&add(protocol, options));
        assert!(told.contains(reason), "{options}: {told}");
    }
}

#[test]
fn a_processor_and_a_network_card_are_named() {
    let add = |protocol: &str, options: &str| {
        let suite = match protocol {
            "ah" => "-A hmac-sha1 0x000102030405060708090a0b0c0d0e0f10111213",
            _ => "-E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213",
        };
        format!("add 192.0.2.1 192.0.2.2 {protocol} 4097 -m tunnel -r 64 {options} {suite};")
    };
    let of = |options: &str| {
        let config = only_sa(&add("esp", options));
        (config.cpu, config.offload.clone())
    };
    let card = |kind, device: &str| {
        Some(Offload {
            kind,
            device: device.into(),
        })
    };
    assert_eq!(of(""), (None, None));
    assert_eq!(of("-o cpu=8191"), (Some(8191), None));
    let crypto = card(OffloadKind::Crypto, "eth0");
    assert_eq!(of("-o offload=crypto:eth0"), (None, crypto));
    let packet = card(OffloadKind::Packet, "eth0.5");
    assert_eq!(of("-o offload=packet:eth0.5"), (None, packet));
    for (protocol, options, reason) in [
        ("esp", "-o cpu=8192", "cannot have this value"),
        ("esp", "-o cpu", "cannot have this value"),
        ("esp", "-o offload=eth0", "cannot have this value"),
        ("esp", "-o offload=all:eth0", "cannot have this value"),
        ("esp", "-o offload=crypto:-", "cannot have this value"),
        ("ah", "-o offload=crypto:eth0", "no network card takes AH"),
        ("esp", "-o offload=crypto:eth0 -o tfc=900", "`-o tfc`"),
        ("esp", "-o offload=crypto:eth0 -o aggfrag", "`-o aggfrag`"),
        (
            "esp",
            "-o offload=crypto:eth0 -o interface=a",
            "`-o interface`",
        ),
    ] {
        let told = refused(&add(protocol, options));
        assert!(told.contains(reason), "{options}: {told}");
    }
}

#[test]
fn esp_in_udp_uses_port_4500_by_default() {
    let udp = |source_port, destination_port| {
        Some(UdpEncapsulation {
            source_port,
            destination_port,
        })
    };
    for (ends, encapsulation) in [
        ("192.0.2.1 192.0.2.2", udp(4500, 4500)),
        ("192.0.2.1[any] 192.0.2.2[0]", udp(4500, 4500)),
        ("192.0.2.1[4501] 192.0.2.2", udp(4501, 4500)),
        ("192.0.2.1[4500] 192.0.2.2[30000]", udp(4500, 30000)),
    ] {
        let config = only_sa(&format!("add {ends} esp-udp 0x1000 -m tunnel -E null;"));
        assert_eq!(config.encapsulation, encapsulation, "{ends}");
    }
}

#[test]
fn every_statement_has_its_command() {
    let lowered = accepted(
        "update ::1 ::2 esp 256 -E null; delete ::1 ::2 ah 256; deleteall ::1 ::2 esp; get ::1 ::2 esp 256;
         getspi ::1 ::2 esp 0; getspi ::1 ::2 esp 256; flush; flush ah; flush esp-udp; dump; dump esp;
         spdadd ::/0 ::/0 any -P out none; spdupdate ::/0 ::/0 any -P out discard; spddelete ::/0 ::/0 any -P out;
         spdget ::/0 ::/0 any -P in; spdflush; spddump; exit;",
    );
    let shown: Vec<_> = lowered
        .commands
        .iter()
        .map(|command| {
            let shown = format!("{command:?}");
            shown
                .split(['(', ' '])
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    let expected = "UpdateSa DeleteSa DeleteAllSas GetSa GetSpi GetSpi FlushSas FlushSas FlushSas DumpSas DumpSas \
                    AddPolicy UpdatePolicy DeletePolicy GetPolicy FlushPolicies DumpPolicies";
    assert_eq!(shown.join(" "), expected);
    let ranges: Vec<_> = lowered
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::GetSpi { range, .. } => Some(range.map(|(low, high)| (low.get(), high.get()))),
            _ => None,
        })
        .collect();
    assert_eq!(ranges, [None, Some((256, 256))]);
    assert!(lowered.commands[7] == Command::FlushSas(Some(Protocol::Ah)));
    assert!(lowered.commands[8] == Command::FlushSas(Some(Protocol::Esp)));
}

#[test]
fn an_in_policy_brings_a_fwd_policy_unless_the_kernels_way_is_asked_for() {
    let text = "spdadd 10.1.0.0/16 10.2.0.0/16 any -P in ipsec esp/transport//unique ah/transport//unique:5;
                spdadd 10.1.0.0/16 10.2.0.0/16 any -P out none;";
    let with_in = policies(&accepted(text));
    let directions: Vec<_> = with_in.iter().map(|policy| policy.direction).collect();
    assert_eq!(directions, [Direction::In, Direction::Fwd, Direction::Out]);
    assert_eq!(with_in[0].selector, with_in[1].selector);
    let levels = |policy: &Policy| match &policy.action {
        Action::Protect(templates) => templates.iter().map(|template| template.level).collect(),
        _ => Vec::new(),
    };
    assert_eq!(
        levels(&with_in[0]),
        [Level::Unique(None), Level::Unique(Some(Reqid(5)))]
    );
    assert_eq!(
        levels(&with_in[1]),
        [Level::Require, Level::Unique(Some(Reqid(5)))]
    );

    let as_written = policies(&compiled(text, Forwarding::AsWritten, &mut NoNames));
    let directions: Vec<_> = as_written.iter().map(|policy| policy.direction).collect();
    assert_eq!(directions, [Direction::In, Direction::Out]);

    let deleted = accepted("spddelete 10.1.0.0/16 10.2.0.0/16 any -P in;").commands;
    let named: Vec<_> = deleted
        .iter()
        .map(|command| match command {
            Command::DeletePolicy { direction, .. } => *direction,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(named, [Direction::In, Direction::Fwd]);
}

#[test]
fn a_selector_has_what_its_words_mean() {
    let port = |number, source_port, destination_port| Upper::Protocol {
        number,
        source_port,
        destination_port,
    };
    let cases = [
        ("::/0 ::/0 any", Upper::Any),
        ("::/0[any] ::/0[any] any", Upper::Any),
        (
            "::/0[0] ::/0 any",
            Upper::Ports {
                source_port: Some(0),
                destination_port: None,
            },
        ),
        (
            "::/0 ::/0[21] any",
            Upper::Ports {
                source_port: None,
                destination_port: Some(21),
            },
        ),
        ("::/0 ::/0[80] tcp", port(6, None, Some(80))),
        ("::/0[53] ::/0 udp", port(17, Some(53), None)),
        ("::/0 ::/0 132", port(132, None, None)),
        ("::/0 ::/0 gre", port(47, None, None)),
        (
            "::/0[any] ::/0[any] icmp6 135,0",
            Upper::Icmp {
                number: 58,
                kind: Some(135),
                code: None,
            },
        ),
        (
            "::/0 ::/0 icmp6 1,3",
            Upper::Icmp {
                number: 58,
                kind: Some(1),
                code: Some(3),
            },
        ),
        (
            "::/0 ::/0 icmp6",
            Upper::Icmp {
                number: 58,
                kind: None,
                code: None,
            },
        ),
    ];
    for (words, upper) in cases {
        let policy = &policies(&accepted(&format!("spdadd {words} -P out none;")))[0];
        assert_eq!(policy.selector.upper, upper, "{words}");
    }
    let policy = &policies(&accepted("spdadd 10.0.0.1/8 192.0.2.7 any -P out discard;"))[0];
    assert_eq!(
        (policy.selector.source.address, policy.selector.source.len),
        (ip("10.0.0.1"), 8)
    );
    assert_eq!(
        (
            policy.selector.destination.address,
            policy.selector.destination.len
        ),
        (ip("192.0.2.7"), 32)
    );
    assert_eq!(policy.action, Action::Discard);
}

#[test]
fn priorities_count_from_their_base() {
    for (words, value) in [
        ("", 0),
        ("prio 5", 5),
        ("priority -5", -5),
        ("prio low", -1_073_741_824),
        ("prio high - 1", 1_073_741_823),
        ("prio def + 7", 7),
        ("prio 2147483648", 2_147_483_648),
        ("prio low - 1073741823", -2_147_483_647),
    ] {
        let policy = &policies(&accepted(&format!(
            "spdadd ::/0 ::/0 any -P out {words} none;"
        )))[0];
        assert_eq!(policy.priority, value, "{words}");
    }
}

#[test]
fn the_third_study_is_a_bundle_of_esp_inside_ah() {
    let lowered = accepted(include_str!("study3.setkey"));
    let policies = policies(&lowered);
    let template = |protocol| Template {
        protocol,
        mode: Mode::Transport,
        endpoints: None,
        level: Level::Require,
    };
    let bundle = Action::Protect(vec![template(Protocol::Esp), template(Protocol::Ah)]);
    assert!(policies.iter().all(|policy| policy.action == bundle));
    assert_eq!(lowered.commands.len(), 2 + 4 + 3);
}

#[test]
fn the_second_study_as_printed_protects_the_wrong_direction() {
    let out = |text: &str| {
        let policies = policies(&accepted(text));
        let found = policies
            .into_iter()
            .find(|policy| policy.direction == Direction::Out);
        found.unwrap().selector.source.address
    };
    assert_eq!(
        out(include_str!("study2-printed-client.setkey")),
        ip("192.168.10.100")
    );
    assert_eq!(
        out(include_str!("study2-corrected-client.setkey")),
        ip("10.37.100.40")
    );
}

struct Hosts;

impl Names for Hosts {
    fn host(&mut self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        match name {
            "left" => Ok(vec![ip("192.0.2.1"), ip("2001:db8::1"), ip("192.0.2.1")]),
            "right" => Ok(vec![ip("2001:db8::2"), ip("192.0.2.2"), ip("192.0.2.3")]),
            _ => Err(io::Error::other("no such host").into()),
        }
    }

    fn service(&mut self, name: &str) -> Option<u16> {
        (name == "domain").then_some(53)
    }
}

#[test]
fn a_name_stands_for_all_its_addresses() {
    let lowered = compiled(
        "add left right esp 256 -E null;",
        Forwarding::WithIn,
        &mut Hosts,
    );
    let pairs: Vec<_> = lowered
        .commands
        .iter()
        .map(|command| match command {
            Command::AddSa(config) => {
                (config.source.to_string(), config.id.destination.to_string())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("192.0.2.1", "192.0.2.2"),
        ("192.0.2.1", "192.0.2.3"),
        ("2001:db8::1", "2001:db8::2"),
    ];
    assert_eq!(
        pairs,
        expected.map(|(from, to)| (from.to_owned(), to.to_owned()))
    );

    let six = compiled(
        "add -6 left right esp 256 -E null;",
        Forwarding::WithIn,
        &mut Hosts,
    );
    assert_eq!(six.commands.len(), 1);

    let policy = compiled(
        "spdadd left[domain] 192.0.2.9 udp -P out none;",
        Forwarding::WithIn,
        &mut Hosts,
    );
    assert_eq!(
        policies(&policy)[0].selector.upper,
        Upper::Protocol {
            number: 17,
            source_port: Some(53),
            destination_port: None
        }
    );

    let ambiguous = compile(
        b"delete left right esp 256;",
        Forwarding::WithIn,
        &mut Hosts,
    )
    .unwrap_err();
    assert_eq!(
        ambiguous[0].message,
        "these names stand for more than one pair of addresses"
    );
    let unknown = compile(
        b"delete nowhere right esp 256;",
        Forwarding::WithIn,
        &mut Hosts,
    )
    .unwrap_err();
    assert_eq!(
        unknown[0].message,
        "`nowhere`: this name cannot be looked up: no such host"
    );
}

/// One process may resolve the names and print the text, and another compile it: the commands are the same.
#[test]
fn a_text_resolved_and_printed_means_what_it_meant() {
    let text = "add left[domain] right esp-udp 256 -E null; update 192.0.2.1 192.0.2.2 esp 257 -E null;
                delete -6 left right esp 256; deleteall left right ah; flush; dump esp; spdflush; spddump;
                spdadd left[domain] 192.0.2.9/24 udp -P in ipsec esp/tunnel/left-192.0.2.9/require;";
    let direct = compiled(text, Forwarding::WithIn, &mut Hosts);
    let resolved = resolve(&parse(text.as_bytes()).file, &mut Hosts).unwrap();
    let printed = String::from_utf8(print(&resolved).to_vec()).unwrap();
    let indirect = compiled(&printed, Forwarding::WithIn, &mut NoNames);
    assert_eq!(direct.commands, indirect.commands);
    assert!(resolve(&parse(b"delete nowhere right esp 1;").file, &mut Hosts).is_err());
}

#[test]
fn one_bad_statement_leaves_no_commands_at_all() {
    let text = b"flush; add 192.0.2.1 192.0.2.2 esp 256 -E aes-cbc 0x00; spdflush;";
    assert!(compile(text, Forwarding::WithIn, &mut NoNames).is_err());
}
