//! Summaries of made-up gateways.

use super::*;
use crate::status::{InterfaceStatus, PathStatus, RekeyPeer, RekeyStatus};

fn peer(name: &str, state: BriefState) -> BriefPeer<'_> {
    BriefPeer {
        name,
        state,
        why: None,
        next_attempt_seconds: None,
        hook_failure: None,
    }
}

fn status() -> Status {
    Status {
        dropped: 7,
        clear_dropped: 3,
        warnings: vec!["a warning".to_owned()],
        ..Status::default()
    }
}

#[test]
fn more_than_six_hundred_entries_are_summarized() {
    assert!(!is_summary(600));
    assert!(is_summary(601));
}

#[test]
fn a_summary_counts_by_state_and_lists_the_peers_that_are_not_up() {
    let mut summary = Summary::default();
    (0..1997).for_each(|_| summary.add_peer(peer("up", BriefState::Up)));
    summary.add_peer(BriefPeer {
        why: Some("the peer answered AUTHENTICATION_FAILED".to_owned()),
        next_attempt_seconds: Some(70),
        ..peer("office", BriefState::Down)
    });
    summary.add_peer(peer("half", BriefState::UpWithoutChild));
    summary.add_peer(BriefPeer {
        hook_failure: Some("on_up /bin/x: exit status 3 after 0.01 s".to_owned()),
        ..peer("hooked", BriefState::Up)
    });
    (0..3990).for_each(|_| summary.add_association("mature"));
    (0..10).for_each(|_| summary.add_association("dying"));
    summary.add_policies("out", 2000);
    summary.add_policies("in", 2000);
    summary.add_policies("fwd", 0);
    summary.answer_age = Some(3);
    let text = status().summary(&summary);
    let peers = "packets dropped: 7 · unencrypted packets blocked: 3\n\
                 peers: 2000 · 1998 up · 1 up without a child SA · 1 down\n  \
                 office · DOWN · the peer answered AUTHENTICATION_FAILED · next attempt in 1 min 10 s\n  \
                 half · UP WITHOUT A CHILD SA\n  \
                 hooked: hook on_up /bin/x: exit status 3 after 0.01 s · FAILED\n\
                 IKE: the key exchange process answered 3 s ago\n";
    assert!(text.contains(peers), "{text}");
    let end = "\nassociations: 4000 · 10 dying · 3990 mature\npolicies: 4000 · 2000 out · 2000 in\nwarning: a warning\n\
               This is a summary: `esplanade status NAME…` shows single peers, `esplanade status --all` lists \
               everything.\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_long_list_ends_with_how_many_more_there_are() {
    let mut summary = Summary::default();
    let names: Vec<_> = (0..MAX_LISTED + 7).map(|n| format!("p{n}")).collect();
    for name in &names {
        summary.add_peer(peer(name, BriefState::Connecting));
    }
    let text = status().summary(&summary);
    let last = format!(
        "  p{} · CONNECTING\n  and 7 more that are not up\n",
        MAX_LISTED - 1
    );
    assert!(text.contains(&last), "{text}");
    assert!(!text.contains(&format!("p{MAX_LISTED} ")), "{text}");
}

#[test]
fn a_key_exchange_process_that_does_not_answer_is_named_with_the_age_of_what_is_known() {
    let mut summary = Summary {
        answer_age: Some(24),
        silence: Some(20),
        ..Summary::default()
    };
    summary.add_peer(peer("office", BriefState::Up));
    let text = status().summary(&summary);
    let line = "IKE: the key exchange process has not answered for 20 s: peers are shown as they were before\n";
    assert!(text.contains(line), "{text}");
    assert!(!text.contains("answered 24 s ago"), "{text}");
}

#[test]
fn without_peers_of_ike_none_are_named() {
    let text = status().summary(&Summary::default());
    assert!(!text.contains("peers") && !text.contains("IKE"), "{text}");
    assert!(
        text.ends_with("This is a summary: `esplanade status --all` lists everything.\n"),
        "{text}"
    );
}

#[test]
fn devices_paths_and_a_rekey_of_thousands_are_bounded_too() {
    let mut told = status();
    let device = |number: usize| InterfaceStatus {
        name: format!("vpn{number}"),
        mtu: 1400,
        leads_out: number != 1999,
    };
    told.interfaces = (0..2000).map(device).collect();
    let path = |number: u32| PathStatus {
        peer: std::net::Ipv4Addr::from(number).into(),
        mtu: 1400,
    };
    told.paths = (0..2000).map(path).collect();
    let rekeyed = |number: u32| RekeyPeer {
        peer: std::net::Ipv4Addr::from(number).into(),
        state: "waits".to_owned(),
    };
    told.rekey = Some(RekeyStatus {
        peers: (0..2000).map(rekeyed).collect(),
        ..RekeyStatus::default()
    });
    let text = told.summary(&Summary::default());
    assert!(
        text.contains(
            "devices: 2000 · 1 without an outbound association\ndevice vpn1999 · MTU 1400"
        ),
        "{text}"
    );
    assert_eq!(text.matches("path MTU to").count(), MAX_LISTED);
    assert_eq!(text.matches(": waits").count(), MAX_LISTED);
    assert_eq!(text.matches("and 1950 more").count(), 2);
    assert!(told.table().lines().count() > 6000, "the table is complete");
}
