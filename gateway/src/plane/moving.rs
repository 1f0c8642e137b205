//! Moving a running gateway from one plane to the other: the steps as a list, each undone if it or a later one fails,
//! and what is refused before the first.

mod nonces;
mod refusal;

pub(crate) use nonces::{KernelIvs, UsedIvs};
pub(crate) use refusal::{MoveWish, association_name, refusal};

use crate::failure::Failure;
use std::fmt::Display;

/// What carries out the steps of a move.
pub(crate) trait Mover {
    /// A step.
    type Step: Copy + Display;

    /// Takes a step.
    fn take(&mut self, step: Self::Step) -> Result<(), Failure>;

    /// Makes as if a step had not been taken, which may have been taken half-way.
    fn undo(&mut self, step: Self::Step) -> Result<(), Failure>;
}

/// Takes the steps in their order. If one fails, it and those before it are undone, the last one first, and the answer
/// says which one failed and what could not be undone.
pub(crate) fn carry_out<M: Mover>(mover: &mut M, steps: &[M::Step]) -> Result<(), Failure> {
    for (place, step) in steps.iter().enumerate() {
        let Err(why) = mover.take(*step) else {
            continue;
        };
        let mut told = format!("{step}: {why}");
        for done in steps[..=place].iter().rev() {
            if let Err(why) = mover.undo(*done) {
                told += &format!("; and this could not be undone: {done}: {why}");
            }
        }
        return Err(Failure::new(told));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Recorder {
        fails_at: Option<u8>,
        undo_fails_at: Option<u8>,
        taken: Vec<u8>,
        undone: Vec<u8>,
    }

    impl Mover for Recorder {
        type Step = u8;

        fn take(&mut self, step: u8) -> Result<(), Failure> {
            self.taken.push(step);
            if self.fails_at == Some(step) {
                Err(Failure::new("refused"))
            } else {
                Ok(())
            }
        }

        fn undo(&mut self, step: u8) -> Result<(), Failure> {
            self.undone.push(step);
            if self.undo_fails_at == Some(step) {
                Err(Failure::new("stays"))
            } else {
                Ok(())
            }
        }
    }

    const STEPS: [u8; 4] = [10, 11, 12, 13];

    #[test]
    fn a_failure_at_any_step_undoes_it_and_all_before_it_last_first() {
        for (place, step) in STEPS.into_iter().enumerate() {
            let mut recorder = Recorder {
                fails_at: Some(step),
                ..Recorder::default()
            };
            let told = carry_out(&mut recorder, &STEPS).unwrap_err();
            assert_eq!(told, Failure::new(format!("{step}: refused")));
            assert_eq!(recorder.taken, STEPS[..=place]);
            recorder.undone.reverse();
            assert_eq!(recorder.undone, STEPS[..=place]);
        }
    }

    #[test]
    fn without_a_failure_nothing_is_undone() {
        let mut recorder = Recorder::default();
        assert_eq!(carry_out(&mut recorder, &STEPS), Ok(()));
        assert_eq!((recorder.taken, recorder.undone), (STEPS.to_vec(), vec![]));
    }

    #[test]
    fn what_cannot_be_undone_is_told_and_the_rest_is_undone() {
        let mut recorder = Recorder {
            fails_at: Some(13),
            undo_fails_at: Some(12),
            ..Recorder::default()
        };
        let told = carry_out(&mut recorder, &STEPS).unwrap_err();
        let expected = "13: refused; and this could not be undone: 12: stays";
        assert_eq!(told, Failure::new(expected));
        assert_eq!(recorder.undone, [13, 12, 11, 10]);
    }
}
