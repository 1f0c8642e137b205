//! Specs that name machines, and what of them is refused at which place.

use std::collections::BTreeSet;

use crate::spec::{Spec, joined};
use crate::study;

const TWO: &str = "study = \"mine\"\n[testbed]\nkind = \"pair\"\n\
    hosts.left = { ssh = \"ssh://root@alpha\", wan = \"eth1\" }\n\
    hosts.right = { ssh = \"ssh://beta:2222\", wan = \"eth2\", wan_address = \"10.7.0.2/16\" }\n";
const PLAIN: &str = "[[contender]]\nkind = \"plain\"\n";

fn said(text: &str) -> String {
    match Spec::read(text, "mine.toml") {
        Ok(_) => panic!("this spec was accepted:\n{text}"),
        Err(complaint) => complaint.to_string(),
    }
}

#[test]
fn two_hosts_need_a_name_and_a_device_each() {
    let spec = Spec::read(&format!("{TWO}{PLAIN}"), "mine.toml").unwrap();
    let hosts = spec.hosts.unwrap();
    let (left, right) = (hosts.left.wan.unwrap(), hosts.right.wan.unwrap());
    assert_eq!(
        (left.device.as_str(), left.address.to_string().as_str()),
        ("eth1", "192.0.2.1")
    );
    assert_eq!(
        (right.address.to_string().as_str(), right.prefix),
        ("10.7.0.2", 16)
    );
    assert_eq!(hosts.right.at, "ssh://beta:2222");
    assert_eq!((hosts.client, hosts.server), (None, None));
}

#[test]
fn a_host_that_is_none_is_shown() {
    let bad = said(&format!("{TWO}{PLAIN}").replace("ssh://beta:2222", "beta"));
    assert!(
        bad.starts_with("error: `beta` is not an SSH URL\n --> mine.toml:5:"),
        "{bad}"
    );
    let option =
        said(&format!("{TWO}{PLAIN}").replace("ssh://beta:2222", "ssh://-oProxyCommand=x"));
    assert!(option.contains("is not an SSH URL"), "{option}");
    let address = said(&format!("{TWO}{PLAIN}").replace("10.7.0.2/16", "10.7.0.2"));
    assert!(address.contains("\"192.0.2.1/24\""), "{address}");
    let word = said(&format!("{TWO}{PLAIN}").replace("hosts.left", "hosts.lift"));
    assert!(word.contains("did you mean `left`?"), "{word}");
    let device = said(&format!("{TWO}{PLAIN}").replace("\"eth1\"", "\"../eth1\""));
    assert!(device.contains("is not a device name"), "{device}");
}

#[test]
fn as_many_hosts_as_the_testbed_needs_must_be_named() {
    let four = said(&format!("{TWO}{PLAIN}").replace("\"pair\"", "\"gateways\""));
    assert!(
        four.contains("a client and a server behind the gateways are missing"),
        "{four}"
    );
    let one = said(
        "study = \"x\"\n[testbed.hosts.left]\nssh = \"ssh://a\"\n[[contender]]\nkind = \"plain\"\n",
    );
    assert!(one.contains("the host `right` is missing"), "{one}");
    let wire = said(&format!("{TWO}{PLAIN}").replace(", wan = \"eth1\"", ""));
    assert!(wire.contains("the host `left` has no `wan`"), "{wire}");
}

#[test]
fn stamped_frames_need_no_common_clock() {
    for load in ["[load]\nkind = \"steady\"\n", "[load]\nkind = \"frames\"\n"] {
        let spec = Spec::read(&format!("{TWO}{load}{PLAIN}"), "mine.toml").unwrap();
        assert!(spec.hosts.is_some() && spec.cells.len() == 1);
    }
}

#[test]
fn what_works_only_in_namespaces_is_shown_at_its_place() {
    let link = said(&format!("{TWO}link.rate_mbit = 100\n{PLAIN}"));
    assert!(
        link.starts_with("error: `link.rate_mbit` needs virtual links"),
        "{link}"
    );
    assert!(link.contains("--> mine.toml:6:6\n"), "{link}");
    for (more, word) in [
        (
            "[factors]\nrx_gro_list = [true, false]\n",
            "`rx_gro_list` can only be set in namespaces",
        ),
        (
            "[smoke.factors]\nimpair.loss_percent = 1\n",
            "`impair.loss_percent`",
        ),
        ("[factors]\npath.mtu = [1300, 1400]\n", "`path.mtu`"),
        (
            "[[contender]]\nkind = \"kernel-xfrm\"\nsuite = \"null\"\n",
            "`kernel-xfrm` is measured in namespaces only",
        ),
        (
            "[[contender]]\nkind = \"esplanade\"\nsuite = \"null\"\nrekey_ms = 1000\n",
            "remove `rekey_ms`",
        ),
        (
            "[[contender]]\nkind = \"esplanade\"\nsuite = \"null\"\nshare = 0.5\n",
            "`share` needs control groups",
        ),
        (
            "[[part]]\nname = \"p\"\ntestbed.hosts.left.ssh = \"ssh://a\"\n",
            "a part cannot have its own hosts",
        ),
    ] {
        let said = said(&format!("{TWO}{PLAIN}{more}"));
        assert!(said.contains(word), "{said}");
    }
    let free = format!("study = \"x\"\n[testbed]\nlink.rate_mbit = 100\n{PLAIN}");
    assert_eq!(Spec::read(&free, "free.toml").unwrap().hosts, None);
}

const LEFT: &str =
    "[testbed.hosts.left]\nssh = \"ssh://root@alpha\"\nwan = \"eth1\"\nlan = \"eth0\"\n";
const RIGHT: &str = "[testbed.hosts.right]\nssh = \"ssh://beta\"\nwan = \"eth2\"\nlan = \"eth0\"\n";
const ENDS: &str = "[testbed.hosts.client]\nssh = \"ssh://gamma\"\nlan = \"eth1\"\n\
    [testbed.hosts.server]\nssh = \"ssh://delta\"\nlan = \"eth1\"\n";

fn on_hosts(study: &str, hosts: &str) -> Result<Spec, String> {
    let text = study::find(study).unwrap().text;
    let joined = joined(text, hosts, "hosts.toml").map_err(|error| error.to_string())?;
    Spec::read_for_hosts(&joined, study, None).map_err(|error| error.to_string())
}

#[test]
fn the_study_of_2010_is_left_without_what_only_namespaces_can_do() {
    let spec = on_hosts("klassert-2010", &format!("{LEFT}{RIGHT}")).unwrap();
    assert!(spec.hosts.is_some() && spec.reference == "plain");
    let parts: BTreeSet<&str> = spec
        .cells
        .iter()
        .filter_map(|cell| cell.part.as_deref())
        .collect();
    let left = [
        "latency",
        "order",
        "processors",
        "sizes",
        "stream",
        "workers",
    ];
    assert_eq!(parts.into_iter().collect::<Vec<_>>(), left);
    for cell in &spec.cells {
        let factors = cell.factors();
        assert_eq!(factors["testbed"], "pair");
        assert!(!factors.contains_key("rps_cpus") && !factors.contains_key("link.rate_mbit"));
        assert!(!cell.id.starts_with("kernel"), "{}", cell.id);
    }
    for why in [
        "`kernel-xfrm` is measured in namespaces only",
        "sizes: `link.rate_mbit` needs virtual links",
        "steering: `rps_cpus` can only be set in namespaces: cells with it are left out",
    ] {
        assert!(
            spec.skipped.iter().any(|said| said.starts_with(why)),
            "{:#?}",
            spec.skipped
        );
    }
}

#[test]
fn every_study_runs_on_two_hosts_and_on_four_or_says_that_nothing_of_it_can() {
    for study in &study::STUDIES {
        for hosts in [format!("{LEFT}{RIGHT}"), format!("{LEFT}{RIGHT}{ENDS}")] {
            match on_hosts(study.name, &hosts) {
                Ok(spec) => assert!(!spec.cells.is_empty()),
                Err(why) => assert!(why.contains("nothing of this spec can be"), "{why}"),
            }
        }
    }
}

#[test]
fn a_mistake_in_the_file_of_hosts_is_shown_in_that_file() {
    let said = |hosts: &str| on_hosts("klassert-2010", hosts).unwrap_err();
    let missing = said(LEFT);
    assert!(missing.contains("the host `right` is missing"), "{missing}");
    let url = said(&format!("{LEFT}{RIGHT}").replace("ssh://beta", "beta"));
    assert!(
        url.contains("`beta` is not an SSH URL\n --> hosts.toml:6:7"),
        "{url}"
    );
    let more = said(&format!("[testbed]\nmtu = 9000\n{LEFT}{RIGHT}"));
    assert!(more.contains("unknown field `mtu`"), "{more}");
    let none = said("# nothing\n");
    assert!(none.contains("this file names no hosts"), "{none}");
}
