//! Specs that name machines, and what of them is refused at which place.

use crate::spec::Spec;

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
            "[load]\nkind = \"steady\"\n",
            "the load `steady` needs both ends on one clock",
        ),
        (
            "[[part]]\nname = \"p\"\nload = { kind = \"frames\" }\n",
            "the load `frames`",
        ),
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
