//! A rekey between two gateways in memory: each receives what the other has sent.

use super::*;
use crate::control::SetkeyText;
use crate::plane::{Plane, Recorder};
use ipsec::command::Command;
use ipsec::sa::SequenceNumber;
use zeroize::Zeroizing;

const OURS: &str = "192.0.2.1";
const NEVER: Pace = Pace {
    wait: None,
    keep: 10,
};

fn request(text: &str) -> SetkeyText {
    SetkeyText {
        name: "new.conf".to_owned(),
        text: Zeroizing::new(text.as_bytes().to_vec()),
        ..SetkeyText::default()
    }
}

/// One association each way, with SPIs `spi` and `spi + 1`, and policies that are always the same.
fn pair(spi: u32) -> String {
    let sa = |ends: &str, spi: u32| {
        let key = format!("{:02x}", spi % 256).repeat(20);
        format!("add {ends} esp {spi} -m tunnel -r 64 -E aes-gcm-16 0x{key};\n")
    };
    sa("192.0.2.1 192.0.2.2", spi)
        + &sa("192.0.2.2 192.0.2.1", spi + 1)
        + "spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;\n"
}

fn gateway(text: &str) -> Recorder {
    let mut plane = Recorder::default();
    let lowered = crate::apply::parse(&request(text)).ok().unwrap();
    plane.apply(&lowered.commands).unwrap();
    plane
}

fn begin(plane: &mut Recorder, text: &str, pace: Pace) -> RekeyProgress {
    let plan = RekeyPlan::of(plane, &request(text), &[OURS.parse().unwrap()])
        .ok()
        .unwrap();
    plane.apply(&plan.install).unwrap();
    RekeyProgress::new("new.conf", plan.peers, pace, &plane.snapshot(), 100)
}

fn refusal(plane: &mut Recorder, text: &str) -> String {
    let ours = [OURS.parse().unwrap()];
    RekeyPlan::of(plane, &request(text), &ours)
        .err()
        .unwrap()
        .to_string()
}

/// A packet arrives on the association with this SPI.
fn arrive(plane: &Recorder, spi: u32, now: u64) {
    let snapshot = plane.snapshot();
    let sa = snapshot.sas().find(|sa| sa.config.id.spi.get() == spi);
    let sa = sa.unwrap();
    let next = sa.state.usage().sequence + 1;
    sa.state
        .admit(&sa.config, SequenceNumber(next), 100, now)
        .unwrap();
}

/// Performs the check of one second, and carries out the steps that are due.
fn second(plane: &mut Recorder, progress: &mut RekeyProgress, now: u64) -> Vec<Turn> {
    let steps = progress.due_steps(&plane.snapshot(), now);
    take(plane, progress, &steps, now)
}

fn take(plane: &mut Recorder, progress: &mut RekeyProgress, steps: &[Step], now: u64) -> Vec<Turn> {
    for step in steps {
        plane.apply(&step.commands).unwrap();
        progress.carried_out(step, now);
    }
    steps.iter().map(|step| step.turn).collect()
}

fn spis(plane: &Recorder) -> Vec<u32> {
    let snapshot = plane.snapshot();
    snapshot.sas().map(|sa| sa.config.id.spi.get()).collect()
}

/// The SPI with which packets of the policy are sent.
fn sends_by(plane: &Recorder) -> u32 {
    let snapshot = plane.snapshot();
    let (_, mut paths) = snapshot.outbound_paths().next().unwrap();
    let path = paths.next().unwrap();
    snapshot.sa(path[0]).config.id.spi.get()
}

#[test]
fn the_new_keys_send_once_the_peer_uses_them_and_the_old_ones_are_deleted_once_unused() {
    let mut plane = gateway(&pair(300));
    let mut progress = begin(&mut plane, &pair(400), NEVER);
    assert_eq!(spis(&plane), [300, 301, 400, 401]);
    for now in 101..120 {
        assert_eq!(second(&mut plane, &mut progress, now), []);
    }
    assert_eq!(sends_by(&plane), 300);
    let messengers: Vec<_> = progress.messengers().collect();
    assert_eq!(messengers[0].id.spi.get(), 400);
    arrive(&plane, 401, 120);
    assert_eq!(second(&mut plane, &mut progress, 120), [Turn::Follow]);
    assert_eq!(sends_by(&plane), 400);
    arrive(&plane, 301, 125);
    for now in 121..135 {
        assert_eq!(second(&mut plane, &mut progress, now), [], "{now}");
    }
    assert_eq!(second(&mut plane, &mut progress, 135), [Turn::Finish]);
    assert!(progress.is_over());
    assert_eq!((spis(&plane), sends_by(&plane)), (vec![400, 401], 400));
}

#[test]
fn a_peer_that_never_sends_is_reported_once_and_the_old_keys_stay_in_use() {
    let mut plane = gateway(&pair(300));
    let mut progress = begin(&mut plane, &pair(400), NEVER);
    let turns: Vec<_> = (101..1000)
        .flat_map(|now| second(&mut plane, &mut progress, now))
        .collect();
    assert_eq!((turns, sends_by(&plane)), (vec![Turn::Unanswered], 300));
    let steps = progress.abort(&plane.snapshot(), 1000);
    assert_eq!(
        take(&mut plane, &mut progress, &steps, 1000),
        [Turn::TakeBack]
    );
    assert_eq!(progress.messengers().count(), 0);
    assert_eq!(second(&mut plane, &mut progress, 1009), []);
    assert_eq!(second(&mut plane, &mut progress, 1010), [Turn::Forget]);
    assert_eq!(spis(&plane), [300, 301]);
    assert!(progress.is_over());
}

#[test]
fn what_was_forced_keeps_the_old_keys_until_the_peer_sends_and_can_be_undone() {
    let mut plane = gateway(&pair(300));
    let pace = Pace {
        wait: Some(5),
        keep: 10,
    };
    let mut progress = begin(&mut plane, &pair(400), pace);
    assert_eq!(second(&mut plane, &mut progress, 104), []);
    assert_eq!(second(&mut plane, &mut progress, 105), [Turn::Force]);
    assert_eq!(sends_by(&plane), 400);
    assert_eq!(second(&mut plane, &mut progress, 900), []);
    let steps = progress.abort(&plane.snapshot(), 900);
    take(&mut plane, &mut progress, &steps, 900);
    assert_eq!((sends_by(&plane), spis(&plane).len()), (300, 4));
    // The peer had the new keys after all: nothing that it sends is refused, and a second command continues the rekey.
    arrive(&plane, 401, 905);
    assert_eq!(second(&mut plane, &mut progress, 910), []);
    progress.go_on(NEVER, 911);
    assert_eq!(second(&mut plane, &mut progress, 911), [Turn::Follow]);
    assert_eq!(progress.abort(&plane.snapshot(), 912), []);
    assert_eq!(second(&mut plane, &mut progress, 921), [Turn::Finish]);
}

#[test]
fn packets_of_an_earlier_life_of_the_keys_are_no_sign_of_the_peer() {
    let mut plane = gateway(&pair(300));
    let plan = RekeyPlan::of(&mut plane, &request(&pair(400)), &[OURS.parse().unwrap()]);
    let plan = plan.ok().unwrap();
    plane.apply(&plan.install).unwrap();
    arrive(&plane, 401, 90);
    let mut progress = RekeyProgress::new("new.conf", plan.peers, NEVER, &plane.snapshot(), 100);
    assert_eq!(second(&mut plane, &mut progress, 101), []);
    arrive(&plane, 401, 102);
    assert_eq!(second(&mut plane, &mut progress, 102), [Turn::Follow]);
}

#[test]
fn what_asks_for_more_than_new_keys_is_refused_at_its_place() {
    let mut plane = gateway(&pair(300));
    let more = "spdadd 10.8.0.0/24 10.9.0.0/24 any -P out discard;\n";
    let without = pair(400).replace("spdadd", "#");
    let one_way: String = pair(400)
        .lines()
        .skip(1)
        .map(|line| line.to_owned() + "\n")
        .collect();
    for (text, words) in [
        (pair(400) + more, "new.conf:4:1"),
        (without, "policy that is not in the file"),
        (pair(400).replace("esp 400", "esp 300"), "new.conf:1:1"),
        (one_way, "replaces"),
        (
            pair(400).replace("192.0.2.1", "192.0.2.9"),
            "this policy differs",
        ),
    ] {
        let why = refusal(&mut plane, &text);
        assert!(why.contains(words), "{why}");
    }
    assert_eq!(spis(&plane), [300, 301]);
}

#[test]
fn the_same_text_again_asks_for_nothing_new() {
    let mut plane = gateway(&pair(300));
    let progress = begin(&mut plane, &pair(400), NEVER);
    let ours = [OURS.parse().unwrap()];
    let again = RekeyPlan::of(&mut plane, &request(&pair(400)), &ours)
        .ok()
        .unwrap();
    assert!(again.install.is_empty() && progress.is_of(&again.known));
    let other = RekeyPlan::of(&mut plane, &request(&pair(500)), &ours)
        .ok()
        .unwrap();
    assert!(!progress.is_of(&other.known));
    assert!(matches!(&other.install[0], Command::AddSa(config) if config.is_standby));
    assert!(matches!(&other.install[1], Command::AddSa(config) if !config.is_standby));
}
