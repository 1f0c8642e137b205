//! What `setkey -D` and `-DP` print, against the layout of ipsec-tools on Linux.

use std::sync::Arc;

use ipsec::command::{Command, PolicyReport, SaReport};
use ipsec::sa::Phase;
use ipsec::setkey::{
    DumpContext, Forwarding, NoNames, compile, dump_policies, dump_sas, dump_short,
    policy_statement,
};

/// 21 November 2026, 12:00:00 UTC.
const NOON: u64 = 1_795_262_400;

fn context(ports: bool) -> DumpContext<'static> {
    DumpContext {
        now: NOON + 7,
        utc_offset: &|_| 0,
        pid: 4321,
        ports,
    }
}

fn sas(text: &str) -> Vec<SaReport> {
    let lowered = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames).unwrap();
    let report = |command: Command| match command {
        Command::AddSa(config) => SaReport {
            config,
            sequence: 0,
            created: NOON,
            first_used: NOON + 1,
            last_used: NOON + 5,
            bytes: 840,
            packets: 10,
            phase: Phase::Mature,
            drops: Vec::new(),
        },
        other => panic!("{other:?}"),
    };
    lowered.commands.into_iter().map(report).collect()
}

fn policies(text: &str) -> Vec<PolicyReport> {
    let lowered = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames).unwrap();
    let policies = lowered.commands.into_iter().map(|command| match command {
        Command::AddPolicy(policy) => policy,
        other => panic!("{other:?}"),
    });
    let report = |(index, policy): (usize, Arc<_>)| PolicyReport {
        policy,
        id: index as u32 + 1,
        created: NOON,
        last_used: NOON + 5,
    };
    policies.enumerate().map(report).collect()
}

fn text(sas: &[SaReport], ports: bool) -> String {
    String::from_utf8(dump_sas(sas, &context(ports)).to_vec()).unwrap()
}

const TWO_SAS: &str = "
    add 192.0.2.1 192.0.2.2 esp 4097 -m tunnel -r 4
        -E aes-cbc 0x000102030405060708090a0b0c0d0e0f -A hmac-sha1 0x000102030405060708090a0b0c0d0e0f10111213;
    add 192.0.2.2 192.0.2.1 esp-udp 0x850 -u 7 -lh 3600 -ls 3000 -bh 5000 -bs 4000
        -o hard-use=90 -o soft-use=80 -o hard-packets=20 -o soft-packets=15
        -E null -A hmac-sha2-256 \"12345678901234567890123456789012\";";

#[test]
fn an_association_is_printed_as_ipsec_tools_prints_it() {
    let mut sas = sas(TWO_SAS);
    sas[1].phase = Phase::Dying;
    sas[1].sequence = 0x1_0000_00ff;
    let expected = "192.0.2.1 192.0.2.2 \n\
        \tesp mode=tunnel spi=4097(0x00001001) reqid=0(0x00000000)\n\
        \tE: aes-cbc  00010203 04050607 08090a0b 0c0d0e0f\n\
        \tA: hmac-sha1  00010203 04050607 08090a0b 0c0d0e0f 10111213\n\
        \tseq=0x00000000 replay=4 flags=0x00000000 state=mature \n\
        \tcreated: Nov 21 12:00:00 2026\tcurrent: Nov 21 12:00:07 2026\n\
        \tdiff: 7(s)\thard: 0(s)\tsoft: 0(s)\n\
        \tlast: Nov 21 12:00:05 2026\thard: 0(s)\tsoft: 0(s)\n\
        \tcurrent: 840(bytes)\thard: 0(bytes)\tsoft: 0(bytes)\n\
        \tallocated: 10\thard: 0\tsoft: 0\n\
        \tsadb_seq=1 pid=4321 refcnt=0\n\
        192.0.2.2[4500] 192.0.2.1[4500] \n\
        \tesp-udp mode=any spi=2128(0x00000850) reqid=7(0x00000007)\n\
        \tA: hmac-sha256  31323334 35363738 39303132 33343536 37383930 31323334 35363738 39303132\n\
        \tseq=0x000000ff replay=0 flags=0x00000000 state=dying \n\
        \tcreated: Nov 21 12:00:00 2026\tcurrent: Nov 21 12:00:07 2026\n\
        \tdiff: 7(s)\thard: 3600(s)\tsoft: 3000(s)\n\
        \tlast: Nov 21 12:00:05 2026\thard: 90(s)\tsoft: 80(s)\n\
        \tcurrent: 840(bytes)\thard: 5000(bytes)\tsoft: 4000(bytes)\n\
        \tallocated: 10\thard: 20\tsoft: 15\n\
        \tsadb_seq=0 pid=4321 refcnt=0\n";
    assert_eq!(text(&sas, false), expected);
    assert!(text(&sas, true).starts_with("192.0.2.1[0] 192.0.2.2[0] \n"));
}

#[test]
fn compression_is_printed_in_place_of_keys() {
    let dump = text(&sas("add ::1 ::2 ipcomp 256 -m tunnel -C deflate;"), false);
    let expected = "::1 ::2 \n\
        \tipcomp mode=tunnel spi=256(0x00000100) reqid=0(0x00000000)\n\
        \tC: deflate\n\
        \tseq=0x";
    assert!(dump.starts_with(expected), "{dump}");
    let policies =
        policies("spdadd ::1 ::2 any -P out ipsec ipcomp/transport//use esp/transport//require;");
    let dump = dump_policies(&policies, &context(false));
    assert!(dump.contains("\tipcomp/transport//use\n\tesp/transport//require\n"));
}

#[test]
fn a_time_that_never_was_is_blank() {
    let mut sas = sas("add ::1 ::2 ah 256 -A hmac-md5 \"1234567890123456\";");
    sas[0].last_used = 0;
    let expected = format!("\tlast: {}\thard: 0(s)\tsoft: 0(s)\n", " ".repeat(20));
    assert!(text(&sas, false).contains(&expected));
}

#[test]
fn local_time_is_the_callers_affair() {
    let tokyo = DumpContext {
        utc_offset: &|_| 9 * 3600,
        ..context(false)
    };
    let dump = dump_sas(
        &sas("add ::1 ::2 ah 256 -A hmac-md5 \"1234567890123456\";"),
        &tokyo,
    );
    assert!(String::from_utf8_lossy(&dump).contains("\tcreated: Nov 21 21:00:00 2026\t"));
}

#[test]
fn an_empty_database_prints_that_it_is_empty() {
    assert_eq!(text(&[], false), "No SAD entries.\n");
    assert_eq!(dump_policies(&[], &context(false)), "No SPD entries.\n");
}

#[test]
fn a_policy_is_printed_as_ipsec_tools_prints_it() {
    let expected = "10.1.0.0/24[any] 10.2.0.0/24[any] 255\n\
        \tout prio def ipsec\n\
        \tesp/tunnel/192.0.2.1-192.0.2.2/require\n\
        \tcreated: Nov 21 12:00:00 2026  lastused: Nov 21 12:00:05 2026\n\
        \tlifetime: 0(s) validtime: 0(s)\n\
        \tspid=1 seq=0 pid=4321\n\
        \trefcnt=1\n";
    let policies = policies(
        "spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;",
    );
    assert_eq!(dump_policies(&policies, &context(false)), expected);
    assert!(
        dump_policies(&policies, &context(true))
            .contains("esp/tunnel/192.0.2.1[0]-192.0.2.2[0]/require")
    );
}

#[test]
fn selectors_priorities_and_templates_are_printed_in_their_own_words() {
    let first_lines = |words: &str| {
        let dump = dump_policies(&policies(&format!("spdadd {words};")), &context(false));
        let lines: Vec<_> = dump
            .lines()
            .take_while(|line| !line.starts_with("\tcreated"))
            .map(str::to_owned)
            .collect();
        lines.join("|")
    };
    for (words, lines) in [
        (
            "192.0.2.1 192.0.2.2[80] tcp -P in none",
            "192.0.2.1[any] 192.0.2.2[80] tcp|\tin prio def none",
        ),
        (
            "::/0 ::/0[53] any -P fwd discard",
            "::/0[any] ::/0[53] 255|\tfwd prio def discard",
        ),
        (
            "::/0 ::/0 icmp6 135,0 -P in none",
            "::/0 ::/0 ipv6-icmp 135,0|\tin prio def none",
        ),
        (
            "::/0 ::/0 icmp6 -P in none",
            "::/0 ::/0 ipv6-icmp|\tin prio def none",
        ),
        (
            "::/0 ::/0 gre -P in entrust",
            "::/0 ::/0 gre|\tin prio def entrust",
        ),
        (
            "::/0 ::/0 200 -P in none",
            "::/0[any] ::/0[any] 200|\tin prio def none",
        ),
        (
            "::/0 ::/0 any -P in prio high none",
            "::/0[any] ::/0[any] 255|\tin prio high none",
        ),
        (
            "::/0 ::/0 any -P in prio high - 3 none",
            "::/0[any] ::/0[any] 255|\tin prio high - 3 none",
        ),
        (
            "::/0 ::/0 any -P in prio -7 none",
            "::/0[any] ::/0[any] 255|\tin prio def - 7 none",
        ),
        (
            "::/0 ::/0 any -P in prio low + 2 none",
            "::/0[any] ::/0[any] 255|\tin prio low + 2 none",
        ),
        (
            "::/0 ::/0 any -P in prio 536870912 none",
            "::/0[any] ::/0[any] 255|\tin prio def + 536870912 none",
        ),
        (
            "::/0 ::/0 any -P in prio -536870912 none",
            "::/0[any] ::/0[any] 255|\tin prio low + 536870912 none",
        ),
        (
            "::/0 ::/0 any -P in prio 2147483648 none",
            "::/0[any] ::/0[any] 255|\tin none",
        ),
        (
            "::/0 ::/0 any -P out ipsec esp/transport//unique:5 ah/transport//use esp/transport/::1-::2/unique:20000",
            "::/0[any] ::/0[any] 255|\tout prio def ipsec|\tesp/transport//unique:5|\tah/transport//use|\tesp/transport/::1-::2/unique#20000",
        ),
    ] {
        assert_eq!(first_lines(words), lines);
    }
}

/// What is printed about a policy can be typed again.
#[test]
fn a_dumped_policy_reads_back_as_itself() {
    for words in [
        "10.1.0.0/24 10.2.0.0/24[80] tcp -P in prio high - 3 ipsec esp/tunnel/192.0.2.1-192.0.2.2/unique:5",
        "2001:db8::/32[any] 2001:db8:1::/48[any] 255 -P out prio def none",
        "::/0 ::/0 ipv6-icmp 135,1 -P fwd prio low discard",
    ] {
        let before = policies(&format!("spdadd {words};"));
        let dump = dump_policies(&before, &context(false));
        let (selector, rest) = dump.split_once("\n\t").unwrap();
        let (decision, _) = rest.split_once("\tcreated").unwrap();
        let after = policies(&format!("spdadd {selector} -P {decision};"));
        assert_eq!(before[0].policy, after[0].policy);
    }
}

#[test]
fn the_short_form_is_one_line_each_without_keys() {
    let dump = dump_short(&sas(TWO_SAS));
    assert_eq!(
        dump,
        "mature esp     0x00001001 192.0.2.1 -> 192.0.2.2 840 bytes\n\
         mature esp-udp 0x00000850 192.0.2.2 -> 192.0.2.1 840 bytes\n"
    );
}

#[test]
fn the_statement_of_a_policy_makes_the_same_policy() {
    for words in [
        "10.1.0.9 10.2.0.9 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require",
        "10.1.0.0/24 10.2.0.0/24[80] tcp -P in prio high - 3 ipsec esp/tunnel/192.0.2.1-192.0.2.2/unique:5",
        "10.1.0.0/24[53] 10.2.0.0/24 any -P out discard",
        "::/0 ::/0 ipv6-icmp 135,1 -P fwd prio low discard",
        "10.1.0.0/24 10.2.0.0/24 icmp 8 -P out none",
        "10.1.0.0/24 10.2.0.0/24 200 -P out prio def + 7 none",
        "10.1.0.0/24 10.2.0.0/24 any -o spread=4 -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/use",
        "10.1.0.5 10.2.0.5 any -P out ipsec esp/transport//use ah/transport//require",
    ] {
        let before = policies(&format!("spdadd {words};"));
        let statement = policy_statement(&before[0].policy);
        let after = policies(&statement);
        assert_eq!(before[0].policy, after[0].policy, "{statement}");
        assert_eq!(statement, format!("spdadd {words};"));
    }
}
