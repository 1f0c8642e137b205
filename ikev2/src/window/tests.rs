use super::*;
use proptest::prelude::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn message(text: &str) -> Datagrams {
    vec![text.as_bytes().to_vec()]
}

#[test]
fn a_request_is_repeated_at_growing_intervals_and_then_given_up() {
    let mut requests = Requests::new(Schedule::default());
    assert_eq!(requests.next_id(), Some(0));
    requests.sent(message("request"), SECOND);
    let mut pauses = Vec::new();
    let mut now = SECOND;
    let given_up = loop {
        let next = requests.next_at().unwrap();
        assert_eq!(requests.due(next - Duration::from_millis(1)), None);
        pauses.push((next - now).as_millis());
        now = next;
        match requests.due(now) {
            Some(Due::Repeat(datagrams)) => assert_eq!(datagrams, message("request")),
            Some(Due::GivenUp(id)) => break id,
            None => panic!("nothing is due at its time"),
        }
    };
    assert_eq!(given_up, 0);
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16000, 16000, 16000]);
    assert_eq!((requests.next_at(), requests.due(now * 2)), (None, None));
}

#[test]
fn one_request_at_a_time_unless_the_peer_allows_more() {
    let mut requests = Requests::new(Schedule::default());
    requests.sent(message("0"), SECOND);
    assert_eq!(requests.next_id(), None);
    requests.widen(3);
    requests.widen(2);
    for id in 1..3 {
        assert_eq!(requests.next_id(), Some(id));
        requests.sent(message("more"), SECOND);
    }
    // The oldest holds the window back, whatever was answered since.
    assert!(requests.answered(1));
    assert_eq!(requests.next_id(), None);
    assert!(requests.answered(0));
    assert_eq!(requests.next_id(), Some(3));
    requests.widen(u32::MAX);
    while requests.next_id().is_some() {
        requests.sent(message("many"), SECOND);
    }
    assert_eq!(requests.next_id, Some(2 + MAX_WINDOW));
}

#[test]
fn only_a_response_that_is_waited_for_counts_and_only_once() {
    let mut requests = Requests::new(Schedule::default());
    assert!(!requests.answered(0));
    requests.sent(message("0"), SECOND);
    assert!(!requests.answered(1) && requests.awaits(0));
    assert!(requests.answered(0));
    assert!(!requests.answered(0) && !requests.awaits(0));
}

#[test]
fn message_ids_end_and_do_not_begin_again() {
    let mut requests = Requests::new(Schedule::default());
    requests.next_id = Some(u32::MAX);
    requests.sent(message("last"), SECOND);
    assert!(requests.answered(u32::MAX));
    assert_eq!(requests.next_id(), None);

    let mut responses = Responses::new(1);
    responses.next_id = u64::from(u32::MAX);
    assert_eq!(responses.receive(u32::MAX), Received::New);
    responses.answer(u32::MAX, message("last"));
    assert_eq!(
        responses.receive(u32::MAX),
        Received::Again(&message("last"))
    );
    assert_eq!(responses.receive(0), Received::OutsideWindow);
}

#[test]
fn a_request_that_comes_again_gets_the_same_bytes() {
    let mut responses = Responses::new(1);
    assert_eq!(responses.receive(1), Received::OutsideWindow);
    assert_eq!(responses.receive(0), Received::New);
    assert_eq!(responses.receive(0), Received::InProgress);
    responses.answer(0, message("answer"));
    // What was answered is not answered in another way.
    responses.answer(0, message("other"));
    assert_eq!(responses.receive(0), Received::Again(&message("answer")));
    assert_eq!(responses.receive(1), Received::New);
    assert_eq!(responses.receive(0), Received::OutsideWindow);
}

#[test]
fn what_is_kept_is_one_window_of_answers() {
    for window in [1, 3, MAX_WINDOW] {
        let mut responses = Responses::new(window);
        for id in 0..100 {
            assert_eq!(responses.receive(id), Received::New);
            responses.answer(id, vec![vec![0; 1000]]);
            assert!(responses.kept_bytes() <= 1000 * window as usize);
        }
        let oldest = 100 - window;
        assert!(matches!(responses.receive(oldest), Received::Again(_)));
        assert_eq!(responses.receive(oldest - 1), Received::OutsideWindow);
    }
}

/// What a network does to one message.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    Delivered { after: u8 },
    Doubled { after: u8, again: u8 },
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Lost),
        any::<u8>().prop_map(|after| Fate::Delivered { after }),
        (any::<u8>(), any::<u8>()).prop_map(|(after, again)| Fate::Doubled { after, again }),
    ]
}

/// Datagrams on their way, with their time of arrival.
#[derive(Default)]
struct Network(Vec<(Duration, bool, u32, Vec<u8>)>);

impl Network {
    fn send(&mut self, now: Duration, is_response: bool, id: u32, datagram: &[u8], fate: Fate) {
        let mut put = |after: u8| {
            let at = now + Duration::from_millis(10 * u64::from(after));
            self.0.push((at, is_response, id, datagram.to_vec()));
        };
        match fate {
            Fate::Lost => {}
            Fate::Delivered { after } => put(after),
            Fate::Doubled { after, again } => {
                put(after);
                put(again);
            }
        }
    }

    fn next(&mut self) -> Option<(Duration, bool, u32, Vec<u8>)> {
        let first = (0..self.0.len()).min_by_key(|index| self.0[*index].0)?;
        Some(self.0.swap_remove(first))
    }
}

proptest! {
    #[test]
    fn under_loss_doubling_and_disorder_each_request_is_worked_on_once_and_answered(
        fates in prop::collection::vec(fate(), 1..200), window in 1u32..5,
    ) {
        // After seven messages so many in a row arrive that, behind a whole window of requests, an answer is among
        // them: none is given up.
        let arriving = 2 * window as usize;
        let schedule = Schedule { repetitions: 100, ..Schedule::default() };
        let mut fates = fates.into_iter().cycle().enumerate().map(|(index, fate)| {
            if index % (7 + arriving) >= 7 { Fate::Delivered { after: 1 } } else { fate }
        });
        let (mut requests, mut responses) = (Requests::new(schedule), Responses::new(window));
        requests.widen(window);
        let (mut network, mut now) = (Network::default(), Duration::ZERO);
        let mut worked_on = Vec::new();
        let mut answered = Vec::new();
        while answered.len() < 30 {
            while let Some(id) = requests.next_id().filter(|id| *id < 30) {
                requests.sent(message(&format!("request {id}")), now);
                network.send(now, false, id, format!("request {id}").as_bytes(), fates.next().unwrap());
            }
            let timer = requests.next_at();
            let arrival = network.0.iter().map(|arrival| arrival.0).min();
            if arrival.is_some_and(|arrival| timer.is_none_or(|timer| arrival <= timer)) {
                let (at, is_response, id, bytes) = network.next().unwrap();
                now = now.max(at);
                if is_response {
                    prop_assert_eq!(bytes, format!("answer {id}").into_bytes());
                    if requests.answered(id) {
                        answered.push(id);
                    }
                    continue;
                }
                if responses.receive(id) == Received::New {
                    worked_on.push(id);
                    responses.answer(id, message(&format!("answer {id}")));
                }
                if let Received::Again(datagrams) = responses.receive(id) {
                    let answer = datagrams[0].clone();
                    network.send(now, true, id, &answer, fates.next().unwrap());
                }
                continue;
            }
            now = now.max(timer.expect("something is under way"));
            while let Some(due) = requests.due(now) {
                let Due::Repeat(datagrams) = due else { panic!("given up") };
                let text = String::from_utf8(datagrams[0].clone()).unwrap();
                let id = text.strip_prefix("request ").unwrap().parse().unwrap();
                network.send(now, false, id, text.as_bytes(), fates.next().unwrap());
            }
        }
        worked_on.sort_unstable();
        answered.sort_unstable();
        prop_assert_eq!(&worked_on, &(0..30).collect::<Vec<_>>());
        prop_assert_eq!(answered, worked_on);
    }
}
