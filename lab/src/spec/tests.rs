mod loads;

use super::*;
use crate::meter::IntrusiveMeter;
use crate::suite::SUITES;

const HEAD: &str = "study = \"mine\"\n";

fn complaint(text: &str) -> String {
    match Spec::read(text, "mine.toml") {
        Ok(_) => panic!("this spec was accepted:\n{text}"),
        Err(complaint) => complaint.to_string(),
    }
}

#[test]
fn a_short_spec_gets_the_usual_values() {
    let spec = Spec::read(
        &format!("{HEAD}[[contender]]\nkind = \"plain\"\n"),
        "mine.toml",
    )
    .unwrap();
    assert_eq!((spec.rounds, spec.duration), (3, Duration::from_secs(5)));
    assert_eq!(spec.cells[0].factors()["mtu"], "1500");
    assert_eq!(
        (spec.title.as_str(), spec.reference.as_str()),
        ("mine", "plain")
    );
    assert_eq!(spec.seed, None);
}

#[test]
fn a_misspelt_suite_is_shown_and_the_nearest_is_advised() {
    let text = format!("{HEAD}[[contender]]\nkind = \"esplanade\"\nsuite = \"aes-128-gmc\"\n");
    let all: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
    let expected = format!(
        "error: unknown suite `aes-128-gmc`
 --> mine.toml:4:9
  |
4 | suite = \"aes-128-gmc\"
  |         ^^^^^^^^^^^^^
  = did you mean `aes-128-gcm`? Known: {}",
        all.join(", ")
    );
    assert_eq!(complaint(&text), expected);
}

#[test]
fn an_unknown_key_is_shown_with_the_nearest() {
    let text = format!("{HEAD}raunds = 3\n[[contender]]\nkind = \"plain\"\n");
    let said = complaint(&text);
    assert!(
        said.starts_with("error: unknown field `raunds`\n --> mine.toml:2:1\n"),
        "{said}"
    );
    assert!(said.contains("did you mean `rounds`?"), "{said}");
}

#[test]
fn a_wrong_type_and_broken_toml_have_their_places() {
    let wrong = complaint(&format!("{HEAD}rounds = \"three\"\n"));
    assert!(wrong.contains("--> mine.toml:2:10"), "{wrong}");
    let broken = complaint("study = \n");
    assert!(broken.contains("--> mine.toml:1:"), "{broken}");
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    let said = complaint(&format!(
        "{HEAD}rounds = 0\n[[contender]]\nkind = \"plain\"\n"
    ));
    assert!(said.starts_with("error: `rounds` cannot be 0"), "{said}");
    assert!(said.ends_with("= a number from 1 to 10000"), "{said}");
}

#[test]
fn what_a_contender_cannot_use_is_refused() {
    let plain = complaint(&format!(
        "{HEAD}[[contender]]\nkind = \"plain\"\nsuite = \"null\"\n"
    ));
    assert!(
        plain.contains("`suite` does not apply to the contender `plain`"),
        "{plain}"
    );
    let libipsec = complaint(&format!(
        "{HEAD}[[contender]]\nkind = \"kernel-libipsec\"\nsuite = \"null\"\n"
    ));
    assert!(
        libipsec.contains("kernel-libipsec does not support `null`"),
        "{libipsec}"
    );
    let missing = complaint(&format!("{HEAD}[[contender]]\nkind = \"esplanade\"\n"));
    assert!(missing.contains("needs a suite"), "{missing}");
}

#[test]
fn what_cannot_exist_is_left_out_of_a_list_and_an_error_alone() {
    let asked = |combine: &str| {
        format!(
            "{HEAD}[[contender]]\nkind = \"esplanade\"\nsuite = \"aes-128-gcm\"\ncombine = {combine}\n"
        )
    };
    let alone = complaint(&asked("\"esp+ah\""));
    assert!(
        alone.contains("`aes-128-gcm` is not both\n --> mine.toml:5:"),
        "{alone}"
    );
    let listed = Spec::read(&asked("[\"esp-auth\", \"esp+ah\"]"), "mine.toml").unwrap();
    assert_eq!((listed.cells.len(), listed.skipped.len()), (1, 1));
}

#[test]
fn two_hosts_alone_have_both_modes_and_gateways_only_one() {
    let asked = |testbed: &str| {
        format!(
            "{HEAD}[testbed]\nkind = \"{testbed}\"\n[[contender]]\nkind = \"esplanade\"\nsuite = \"null\"\n\
             mode = [\"tunnel\", \"transport\"]\n"
        )
    };
    let modes = |testbed: &str| {
        let spec = Spec::read(&asked(testbed), "mine.toml").unwrap();
        (spec.cells.len(), spec.skipped.len())
    };
    assert_eq!((modes("pair"), modes("gateways")), ((2, 0), (1, 1)));
}

#[test]
fn a_spec_without_contenders_or_with_one_twice_is_refused() {
    assert!(complaint(HEAD).contains("names no contender"));
    let twice = complaint(&format!(
        "{HEAD}[[contender]]\nkind = \"plain\"\n[[contender]]\nkind = \"plain\"\n"
    ));
    assert!(
        twice.contains("`plain` is listed twice\n --> mine.toml:4:"),
        "{twice}"
    );
}

#[test]
fn a_reference_must_take_part() {
    let said = complaint(&format!(
        "{HEAD}reference = \"plane\"\n[[contender]]\nkind = \"plain\"\n"
    ));
    assert!(said.contains("did you mean `plain`?"), "{said}");
}

#[test]
fn no_text_makes_the_reader_panic() {
    let good = include_str!("../../studies/demo.toml");
    for end in (0..good.len()).filter(|&end| good.is_char_boundary(end)) {
        if let Err(complaint) = Spec::read(&good[..end], "cut.toml") {
            assert!(complaint.to_string().starts_with("error: "));
        }
    }
}

#[test]
fn contenders_have_the_ids_of_the_spec() {
    let spec = Spec::read(include_str!("../../studies/demo.toml"), "demo").unwrap();
    let cases = spec.cases(&Programs::default()).unwrap();
    for case in cases {
        let plain = case.id.trim_end_matches("-no-offloads");
        assert_eq!(case.contender.id(), plain);
    }
}

#[test]
fn a_guest_is_for_a_whole_spec_and_changes_no_cell() {
    let asked = |testbed: &str| format!("{HEAD}{testbed}[[contender]]\nkind = \"plain\"\n");
    let read = |testbed: &str| Spec::read(&asked(testbed), "mine.toml").unwrap();
    let (inside, outside) = (read("[testbed]\nkind = \"guest\"\n"), read(""));
    assert_eq!((inside.guest, outside.guest), (true, false));
    assert_eq!(inside.cells, outside.cells);
    let part = complaint(&asked("[[part]]\nname = \"p\"\ntestbed.kind = \"guest\"\n"));
    assert!(
        part.starts_with("error: a part cannot have its own guest"),
        "{part}"
    );
    assert!(part.contains(" --> mine.toml:4:16\n"), "{part}");
    let hosts = "[testbed]\nkind = \"guest\"\nhosts.left = { ssh = \"ssh://a\", wan = \"eth1\" }\n\
                 hosts.right = { ssh = \"ssh://b\", wan = \"eth1\" }\n";
    let said = complaint(&asked(hosts));
    assert!(said.starts_with("error: "), "{said}");
}

#[test]
fn families_are_for_contenders_that_support_them_and_count_their_headers() {
    let asked = |families: &str, kind: &str| {
        format!(
            "{HEAD}[testbed]\nfamilies = \"{families}\"\nlink.rate_mbit = 100\n[[contender]]\nkind = \"{kind}\"\n"
        )
    };
    let ideal = |families: &str, kind: &str| {
        let spec = Spec::read(&asked(families, kind), "mine.toml").unwrap();
        spec.cells[0].ideal_bps().unwrap()
    };
    assert!(ideal("6in6", "plain") < ideal("4in4", "plain"));
    // The tunnel's MTU is the same, so what is inside costs 20 bytes, and what is outside 20 bytes of the frame.
    let (inside, outside) = (
        ideal("6in4", "kernel-wireguard"),
        ideal("4in6", "kernel-wireguard"),
    );
    let exact = |payload: f64, frame: f64| 100e6 * payload / frame;
    assert_eq!(inside, exact(1420.0 - 72.0, 1480.0 + 38.0));
    assert_eq!(outside, exact(1420.0 - 52.0, 1500.0 + 38.0));
    let plain = complaint(&asked("6in4", "plain"));
    assert!(
        plain.starts_with(
            "error: plain IP has the same family inside and on the wire\n --> mine.toml:3:12\n"
        ),
        "{plain}"
    );
    let libipsec = complaint(&asked("6in6", "kernel-libipsec\"\nsuite = \"aes-128-gcm"));
    assert!(libipsec.contains("for IPv4 only"), "{libipsec}");
    let pair = complaint(
        &asked("4in6", "esplanade\"\nsuite = \"null")
            .replace("families", "kind = \"pair\"\nfamilies"),
    );
    assert!(
        pair.contains("two hosts without gateways have the same family"),
        "{pair}"
    );
    let word = complaint(&asked("6over4", "plain"));
    assert!(
        word.contains("did you mean `6in4`?") || word.contains("6in4"),
        "{word}"
    );
}

#[test]
fn pcrypt_needs_a_cipher() {
    let asked = |suite: &str| {
        format!("{HEAD}[[contender]]\nkind = \"kernel-xfrm\"\nsuite = \"{suite}\"\npcrypt = true\n")
    };
    assert!(Spec::read(&asked("aes-192-cbc-sha1"), "mine.toml").is_ok());
    let none = complaint(&asked("ah-sha1"));
    assert!(none.contains("--> mine.toml:5:10\n"), "{none}");
}

#[test]
fn openvpn_has_the_suites_that_it_shares_with_ipsec() {
    let asked = |suite: &str| format!("{HEAD}[[contender]]\nkind = \"openvpn\"\n{suite}");
    let ids = |suite: &str| {
        let spec = Spec::read(&asked(suite), "mine.toml").unwrap();
        spec.contenders().join(" ")
    };
    assert_eq!(ids(""), "openvpn-aes-128-gcm");
    let both = ids("suite = [\"aes-256-gcm\", \"chacha20-poly1305\", \"null\"]\n");
    assert_eq!(both, "openvpn-aes-256-gcm openvpn-chacha20-poly1305");
    let wrong = complaint(&asked("suite = \"3des-sha1\"\n"));
    assert!(
        wrong.starts_with("error: OpenVPN does not support `3des-sha1`\n --> mine.toml:4:9\n"),
        "{wrong}"
    );
}

#[test]
fn a_number_of_workers_is_counted_or_left_to_the_gateway() {
    let asked = |what: &str| {
        format!(
            "{HEAD}[[contender]]\nkind = \"esplanade\"\nsuite = \"null\"\nworkers = [0, {what}]\n"
        )
    };
    let read = Spec::read(&asked("\"auto\""), "mine.toml").unwrap();
    assert_eq!(
        read.contenders(),
        ["esplanade-null-workers-0", "esplanade-null-workers-auto"]
    );
    let wrong = complaint(&asked("\"aut\""));
    assert!(wrong.contains("did you mean `auto`?"), "{wrong}");
    let wrong = complaint(&asked("1025"));
    assert!(wrong.contains("a number from 0 to 1024"), "{wrong}");
}

#[test]
fn what_carries_nothing_on_the_kernels_plane_cannot_be_varied_there() {
    let asked = |more: &str| {
        format!("{HEAD}[[contender]]\nkind = \"esplanade\"\nsuite = \"null\"\nplane = {more}")
    };
    let read = Spec::read(&asked("[\"user\", \"kernel\"]\n"), "mine.toml").unwrap();
    assert_eq!(
        read.contenders(),
        ["esplanade-null-plane-user", "esplanade-null-plane-kernel"]
    );
    for (more, why) in [
        ("workers = 2\n", "no thread of the gateway carries packets"),
        ("native_io = \"raw\"\n", "no thread of the gateway"),
        ("share = 0.5\n", "which no CPU quota limits"),
        ("window = 8192\n", "at most 4096 packets"),
    ] {
        let wrong = complaint(&asked(&format!("\"kernel\"\n{more}")));
        let advice = "or `plane = \"user\"`";
        assert!(wrong.contains(why) && wrong.contains(advice), "{wrong}");
    }
}

#[test]
fn a_profile_is_asked_for_once_for_all_or_part_by_part_and_a_preset_may_leave_it_out() {
    let text = "study = \"x\"\nduration = 2\n[measure]\nprofile = true\n[[contender]]\nkind = \"plain\"\n\
                [[part]]\nname = \"a\"\n[[part]]\nname = \"b\"\nmeasure.profile = false\n\
                [smoke]\nmeasure.profile = false\n";
    let asked = |preset| {
        let spec = Spec::read_as(text, "x.toml", preset).unwrap();
        let cells = spec.cells.iter();
        let intrusive: Vec<usize> = cells.map(|cell| cell.intrusive.len()).collect();
        (intrusive, spec.estimate())
    };
    let (whole, takes) = asked(None);
    assert_eq!(whole, [1, 0]);
    // Three rounds of two trials, and one under the profile, which takes longer.
    assert!(takes > Duration::from_millis(7 * 2500), "{takes:?}");
    assert_eq!(asked(Some(Preset::Smoke)).0, [0, 0]);
}

#[test]
fn an_unknown_meter_and_a_word_for_a_flag_are_errors_with_their_place() {
    let error = |line: &str| {
        let text = format!("study = \"x\"\n[measure]\n{line}\n[[contender]]\nkind = \"plain\"\n");
        Spec::read(&text, "x.toml").unwrap_err().to_string()
    };
    let unknown = error("profil = true");
    assert!(
        unknown.contains("x.toml:3:1") && unknown.contains("did you mean `profile`?"),
        "{unknown}"
    );
    let word = error("profile = \"yes\"");
    assert!(
        word.contains("x.toml:3:11") && word.contains("true or false is expected here"),
        "{word}"
    );
}

#[test]
fn a_share_is_for_those_whose_packets_a_process_carries() {
    let asked = |what: &str, contenders: &[(&str, &str)]| {
        let named = contenders.iter().map(|(kind, more)| {
            format!("[[contender]]\nkind = \"{kind}\"\nsuite = \"aes-128-gcm\"\n{more}")
        });
        let text = format!("{HEAD}{what}{}", named.collect::<String>());
        text.replace(
            "kind = \"plain\"\nsuite = \"aes-128-gcm\"",
            "kind = \"plain\"",
        )
    };
    let read = |text: &str| Spec::read(text, "mine.toml").unwrap();
    let ours = read(&asked(
        "",
        &[("plain", ""), ("esplanade", "share = [0.25, 1]\n")],
    ));
    let shares = |spec: &Spec| -> Vec<Option<String>> {
        let cells = spec.cells.iter();
        cells
            .map(|cell| cell.factors().get("share").cloned())
            .collect()
    };
    assert_eq!(shares(&ours), [None, Some("0.25".into()), Some("1".into())]);
    let specs = ours.cases(&Programs::default()).unwrap();
    let specs: Vec<Option<f64>> = specs.iter().map(|case| case.topology_spec.share).collect();
    assert_eq!(specs, [None, Some(0.25), Some(1.0)]);
    let carried = [("esplanade", ""), ("kernel-libipsec", ""), ("openvpn", "")];
    assert_eq!(
        shares(&read(&asked("[testbed]\nshare = 0.5\n", &carried))).len(),
        3
    );
    let all = read(&asked(
        "[factors]\nshare = [0.5]\n",
        &[("esplanade", ""), ("kernel-xfrm", "")],
    ));
    assert_eq!((all.cells.len(), all.skipped.len()), (1, 1));
    assert!(all.skipped[0].starts_with("`kernel-xfrm` runs in the kernel"));
}

#[test]
fn a_share_of_what_no_quota_holds_back_is_shown_at_its_place() {
    let said = |what: &str| complaint(&format!("{HEAD}{what}"));
    let own = said("[[contender]]\nkind = \"kernel-xfrm\"\nsuite = \"null\"\nshare = 0.5\n");
    assert!(
        own.contains("--> mine.toml:5:9\n") && own.contains("wireguard-go"),
        "{own}"
    );
    let all = said("[testbed]\nshare = 0.5\n[[contender]]\nkind = \"plain\"\n");
    assert!(
        all.contains("`plain` runs in the kernel") && all.contains("mine.toml:3:9"),
        "{all}"
    );
    let none = said("[testbed]\nshare = 0.001\n[[contender]]\nkind = \"plain\"\n");
    assert!(none.contains("a number from 0.01 to 64"), "{none}");
    let reference = said(
        "reference = \"plain\"\n[factors]\nshare = [0.5, 1]\n[[contender]]\nkind = \"plain\"\n\
         [[contender]]\nkind = \"boringtun\"\n",
    );
    assert!(
        reference.starts_with("error: the reference is left out of this spec: `plain` runs"),
        "{reference}"
    );
}

#[test]
fn each_intrusive_meter_gets_a_trial_of_its_own_and_the_estimate_counts_them() {
    let read = |measure: &str| {
        let text = format!(
            "study = \"x\"\nduration = 2\nrounds = 1\n[measure]\n{measure}\n[[contender]]\nkind = \"plain\"\n"
        );
        let spec = Spec::read(&text, "x.toml").unwrap();
        (spec.cells[0].intrusive.clone(), spec.estimate())
    };
    let (none, alone) = read("");
    assert!(none.is_empty());
    let (both, longer) = read("soaker = true\nprofile = true");
    assert_eq!(both, IntrusiveMeter::ALL);
    let more: Duration = both.iter().map(|intrusive| intrusive.takes()).sum();
    assert_eq!(longer, 3 * alone + more);
}

/// The document is what a user has: each factor is there with its values and its owners, and nothing else is.
#[test]
fn the_document_lists_every_factor() {
    use super::factor::{FACTORS, Scope, Takes};
    use super::kinds::Named;
    let quoted = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        words.join(", ")
    };
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lab.md");
    let document = std::fs::read_to_string(document).unwrap();
    let (_, section) = document.split_once("### Every factor\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let listed: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    for (factor, line) in FACTORS.iter().zip(&listed) {
        let values = match factor.takes {
            Takes::Number(low, high, _) => format!("{low} to {high}"),
            Takes::CountOr(most, words) => format!("0 to {most}, {}", quoted(words)),
            Takes::Flag => quoted(&["true", "false"]),
            Takes::Word(words) => quoted(words),
            Takes::Suite => "a suite".into(),
            Takes::Processors => "as `0-3,8`".into(),
            Takes::Triple => "as `4096/87380/174760`".into(),
            Takes::Percentages => "as `50/90/99`".into(),
            Takes::Mix => "letters `a` to `g`".into(),
        };
        let whose = match factor.scope {
            Scope::Testbed => "testbed".into(),
            Scope::Contenders(kinds) => {
                quoted(&kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>())
            }
            Scope::Loads(kinds) => {
                quoted(&kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>())
            }
        };
        let expected = format!("| `{}` | {values} | {whose} | ", factor.name);
        assert!(line.starts_with(&expected), "{line}\nexpected: {expected}");
    }
    assert_eq!(listed.len(), FACTORS.len());
}
