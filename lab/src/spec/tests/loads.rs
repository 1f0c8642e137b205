//! What a spec may say of loads.

use super::*;

#[test]
fn a_mix_of_sizes_is_read_by_its_letters_and_stands_alone() {
    let asked = |load: &str| {
        format!("{HEAD}[load]\nkind = \"frames\"\n{load}[[contender]]\nkind = \"plain\"\n")
    };
    assert!(Spec::read(&asked("imix = \"aaaaaaaddddg\"\n"), "mine.toml").is_ok());
    let stranger = complaint(&asked("imix = \"aaz\"\n"));
    assert!(
        stranger.starts_with("error: `z` is no size\n --> mine.toml:4:8\n"),
        "{stranger}"
    );
    assert!(stranger.contains("g 1518"), "{stranger}");
    let both = complaint(&asked("imix = \"ag\"\nframe_bytes = 64\n"));
    assert!(both.contains("not both"), "{both}");
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
        frames
            .starts_with("error: the load `frames` goes one way at a time\n --> mine.toml:5:13\n"),
        "{frames}"
    );
}
