//! Loads in specs.

use super::*;

#[test]
fn a_mix_of_sizes_is_read_by_its_letters_and_stands_alone() {
    let asked = |load: &str| {
        format!("{HEAD}[load]\nkind = \"frames\"\n{load}[[contender]]\nkind = \"plain\"\n")
    };
    assert!(Spec::read(&asked("imix = \"aaaaaaaddddg\"\n"), "mine.toml").is_ok());
    let stranger = complaint(&asked("imix = \"aaz\"\n"));
    assert!(
        stranger.starts_with("error: `z` is not a frame size\n --> mine.toml:4:8\n"),
        "{stranger}"
    );
    assert!(stranger.contains("g 1518"), "{stranger}");
    let both = complaint(&asked("imix = \"ag\"\nframe_bytes = 64\n"));
    assert!(both.contains("not both"), "{both}");
}

#[test]
fn delays_at_shares_of_the_rate_take_a_trial_each_behind_the_search() {
    let asked = |load: &str| {
        format!("{HEAD}[load]\nkind = \"frames\"\n{load}[[contender]]\nkind = \"plain\"\n")
    };
    let read = |load: &str| Spec::read(&asked(load), "mine.toml").unwrap();
    let alone = read("").estimate();
    let three = read("latency_at_percent = \"50/90/99\"\n");
    assert_eq!(three.cells[0].factors()["latency_at_percent"], "50/90/99");
    assert!(three.estimate() > alone);
    for wrong in ["99/50", "50/50", "0", "101", "half", ""] {
        let said = complaint(&asked(&format!("latency_at_percent = \"{wrong}\"\n")));
        let what = format!("error: `{wrong}` is not a list of percentages\n --> mine.toml:4:22\n");
        assert!(said.starts_with(&what), "{said}");
    }
}

#[test]
fn direction_connections_and_the_number_of_associations_have_their_words() {
    let asked = |what: &str| {
        format!(
            "{HEAD}{what}[[contender]]\nkind = \"esplanade\"\nsuite = \"null\"\nsas = [1, 60000]\n"
        )
    };
    let read = |what: &str| Spec::read(&asked(what), "mine.toml").unwrap();
    let many = read("[load]\nkind = \"connections\"\n");
    assert_eq!(
        many.contenders(),
        ["esplanade-null", "esplanade-null-sas-60000"]
    );
    let reverse = read("[load]\ndirection = \"reverse\"\n");
    assert_eq!(reverse.cells[0].factors()["direction"], "reverse");
    let wrong = complaint(&asked("[load]\ndirection = \"revers\"\n"));
    assert!(wrong.contains("did you mean `reverse`?"), "{wrong}");
}

#[test]
fn both_ways_at_once_is_for_iperf3_and_fills_a_link_twice() {
    let asked = |what: &str| {
        format!(
            "{HEAD}testbed.link.rate_mbit = 100\n[load]\n{what}[[contender]]\nkind = \"plain\"\n"
        )
    };
    let ideal = |what: &str| {
        let spec = Spec::read(&asked(what), "mine.toml").unwrap();
        spec.cells[0].ideal_bps().unwrap()
    };
    let both = ideal("direction = \"both\"\n");
    assert_eq!(both, 2.0 * ideal("direction = \"reverse\"\n"));
    let frames = complaint(&asked("kind = \"frames\"\ndirection = \"both\"\n"));
    assert!(
        frames.starts_with(
            "error: the load `frames` runs in one direction at a time\n --> mine.toml:5:13\n"
        ),
        "{frames}"
    );
}

#[test]
fn netperf_takes_what_it_has_an_option_for() {
    let read = |load: &str| {
        let text = format!(
            "{HEAD}testbed.link.rate_mbit = 100\n[load]\n{load}[[contender]]\nkind = \"plain\"\n"
        );
        Spec::read(&text, "mine.toml")
    };
    let everything = "message_bytes = 512\nnodelay = true\nstreams = 4\noffered_mbit = 5\n\
                      request_bytes = 32\ndirection = \"reverse\"\nwarm_up_megabytes = 1\n";
    let taken = |kind: &str, id: &str| {
        let spec = read(&format!("kind = \"{kind}\"\n{everything}")).unwrap();
        assert_eq!(spec.cases(&Programs::default()).unwrap()[0].load.id(), id);
        let all = spec.cells[0].factors().into_keys();
        let own = all.filter(|name| !["load", "mtu", "link.rate_mbit"].contains(&name.as_str()));
        own.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        taken("netperf", "netperf-tcp"),
        "direction message_bytes nodelay warm_up_megabytes"
    );
    assert_eq!(
        taken("netperf-udp", "netperf-udp"),
        "direction message_bytes"
    );
    assert_eq!(taken("netperf-rr", "netperf-rr"), "nodelay request_bytes");
    let ideal = |kind: &str| read(&format!("kind = \"{kind}\"\n")).unwrap().cells[0].ideal_bps();
    assert_eq!(ideal("netperf"), ideal("iperf3"));
    assert_eq!(ideal("netperf-rr"), None);
    // A link's rate is for what is on the wire: 1024 bytes, the headers of UDP and IP, and an Ethernet's.
    assert_eq!(ideal("netperf-udp"), Some(100e6 * 1024.0 / 1090.0));
    // iperf3 chooses a datagram's length by the path MTU.
    assert_eq!(ideal("iperf3-udp"), None);
    assert_eq!(
        ideal("iperf3-udp\"\nmessage_bytes = 1024#"),
        ideal("netperf-udp")
    );
    assert_eq!(ideal("frames\"\nframe_bytes = 1070#"), ideal("netperf-udp"));
    assert_eq!(ideal("frames\"\nframe_bytes = 1519#"), None);
    assert_eq!(ideal("steady"), None);
}

#[test]
fn netperf_goes_one_way_and_a_datagram_has_an_end() {
    let said = |load: &str| {
        complaint(&format!(
            "{HEAD}[load]\n{load}[[contender]]\nkind = \"plain\"\n"
        ))
    };
    let both = said("kind = \"netperf\"\ndirection = \"both\"\n");
    assert!(
        both.starts_with(
            "error: the load `netperf` runs in one direction at a time\n --> mine.toml:4:13\n"
        ),
        "{both}"
    );
    for kind in ["netperf-udp", "iperf3-udp"] {
        let long = said(&format!("kind = \"{kind}\"\nmessage_bytes = 65508\n"));
        assert!(
            long.starts_with("error: a datagram holds at most 65507 bytes\n --> mine.toml:4:17\n"),
            "{long}"
        );
    }
    let misspelt = said("kind = \"netperf-tcp\"\n");
    assert!(misspelt.contains("did you mean `netperf"), "{misspelt}");
}
