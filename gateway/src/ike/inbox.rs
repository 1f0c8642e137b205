//! Messages that have come and are not handled yet.
//!
//! ```text
//!   as they came   change, news, change, … change, question, change
//!   a turn         change, news, change, …  (bounded)  + question        what a person waits for overtakes the rest
//! ```
//!
//! Handling is done in turns of bounded work, and everything else is looked at between two of them. So an answer waits
//! for one turn, however many messages have come before it.

use super::message::{FromIke, ToIke};
use std::collections::VecDeque;

/// The work of a turn, in units of [`Message::work`].
pub(crate) const MAX_WORK_PER_TURN: usize = 512;

/// What a change of the databases, or a step of a negotiation, is counted as: 64 of them are a turn.
const WORK_OF_CHANGE: usize = 8;

/// What an inbox holds.
pub(crate) trait Message {
    /// Whether a person waits for it.
    fn is_urgent(&self) -> bool;
    /// How much work it makes, roughly.
    fn work(&self) -> usize;
}

impl Message for FromIke {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Report { .. } | Self::Why { .. })
    }

    fn work(&self) -> usize {
        match self {
            Self::Install(_) | Self::UseOutbound(_) | Self::Remove { .. } => WORK_OF_CHANGE,
            _ => 1,
        }
    }
}

impl Message for ToIke {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Report { .. } | Self::Why { .. })
    }

    fn work(&self) -> usize {
        WORK_OF_CHANGE
    }
}

/// Messages in the order in which they came.
pub(crate) struct Inbox<M> {
    waiting: VecDeque<M>,
    /// How many of them are urgent.
    urgent: usize,
}

impl<M> Default for Inbox<M> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            urgent: 0,
        }
    }
}

impl<M: Message> Inbox<M> {
    /// Adds one behind all others.
    pub(crate) fn add(&mut self, message: M) {
        self.urgent += usize::from(message.is_urgent());
        self.waiting.push_back(message);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The messages of a turn in their order, and behind them the urgent ones that would have had to wait.
    pub(crate) fn take_turn(&mut self) -> Vec<M> {
        let mut turn = Vec::new();
        let mut work = 0;
        while work < MAX_WORK_PER_TURN
            && let Some(message) = self.waiting.pop_front()
        {
            work += message.work();
            self.urgent -= usize::from(message.is_urgent());
            turn.push(message);
        }
        turn.append(&mut self.take_urgent());
        if self.waiting.is_empty() {
            // What a burst of them took is given back.
            self.waiting = VecDeque::new();
        }
        turn
    }

    /// While changes rest: the urgent ones, if more messages wait than a turn handles. Otherwise they keep their place,
    /// so that an answer agrees with the changes before it.
    pub(crate) fn take_overtaking(&mut self) -> Vec<M> {
        if self.waiting.len() > MAX_WORK_PER_TURN / WORK_OF_CHANGE {
            self.take_urgent()
        } else {
            Vec::new()
        }
    }

    /// The urgent ones alone.
    fn take_urgent(&mut self) -> Vec<M> {
        let mut found = Vec::new();
        if std::mem::take(&mut self.urgent) > 0 {
            let all = std::mem::take(&mut self.waiting);
            for message in all {
                if message.is_urgent() {
                    found.push(message)
                } else {
                    self.waiting.push_back(message)
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ike::message::Reported;
    use ikev2::endpoint::ChildId;

    const CHANGES_PER_TURN: usize = MAX_WORK_PER_TURN / WORK_OF_CHANGE;

    fn change(number: u64) -> FromIke {
        FromIke::UseOutbound(ChildId(number))
    }

    fn report(token: u64) -> FromIke {
        FromIke::Report {
            token,
            is_all: true,
            peers: Vec::new(),
            dropped: Default::default(),
        }
    }

    /// The numbers of changes, and the tokens of reports as negative ones.
    fn told(turn: &[FromIke]) -> Vec<i64> {
        let number = |message: &FromIke| match message {
            FromIke::UseOutbound(id) => id.0 as i64,
            FromIke::Report { token, .. } => -(*token as i64),
            _ => panic!("it was not sent"),
        };
        turn.iter().map(number).collect()
    }

    #[test]
    fn an_answer_waits_for_one_turn_however_many_changes_came_before_it() {
        let mut inbox = Inbox::default();
        (0..2000).for_each(|number| inbox.add(change(number)));
        inbox.add(report(7));
        inbox.add(change(2000));
        inbox.add(report(8));
        let mut first = told(&inbox.take_turn());
        assert_eq!(first.split_off(CHANGES_PER_TURN), [-7, -8]);
        let mut all = first;
        let mut turns = 1;
        while !inbox.is_empty() {
            let turn = told(&inbox.take_turn());
            assert!(turn.len() <= CHANGES_PER_TURN);
            all.extend(turn);
            turns += 1;
        }
        assert_eq!(all, (0..=2000).collect::<Vec<_>>());
        assert_eq!(turns, 2001usize.div_ceil(CHANGES_PER_TURN));
        assert_eq!(inbox.waiting.capacity(), 0);
    }

    #[test]
    fn what_fits_into_a_turn_keeps_its_order() {
        let mut inbox = Inbox::default();
        for message in [change(1), report(2), change(3)] {
            inbox.add(message);
        }
        assert_eq!(told(&inbox.take_turn()), [1, -2, 3]);
        assert!(inbox.take_turn().is_empty());
    }

    #[test]
    fn urgent_ones_overtake_changes_that_rest_only_where_many_wait() {
        let mut inbox = Inbox::default();
        for message in [report(1), change(2), report(3), change(4)] {
            inbox.add(message);
        }
        assert!(inbox.take_overtaking().is_empty());
        (0..CHANGES_PER_TURN as u64).for_each(|number| inbox.add(change(number)));
        assert_eq!(told(&inbox.take_overtaking()), [-1, -3]);
        assert!(inbox.take_overtaking().is_empty());
        assert_eq!(told(&inbox.take_turn())[..2], [2, 4]);
    }

    #[test]
    fn the_ike_process_answers_before_it_has_heard_of_all_that_was_installed() {
        let mut inbox = Inbox::default();
        for number in 0..2000 {
            inbox.add(ToIke::Installed {
                child: ChildId(number),
                outcome: Ok(()),
            });
        }
        let (token, which) = (1, Reported::Changed);
        inbox.add(ToIke::Report { token, which });
        let turn = inbox.take_turn();
        assert_eq!(turn.len(), CHANGES_PER_TURN + 1);
        assert!(turn.last().is_some_and(Message::is_urgent));
    }
}
