//! Kernels for many packets are slower for few packets: distinguishes the two cases without counting all jobs first.

use std::{
    array,
    iter::{Chain, Flatten},
};

/// The largest minimum that any kernel has.
const MAX_MINIMUM_JOBS: usize = 12;

type First<T> = Flatten<array::IntoIter<Option<T>, MAX_MINIMUM_JOBS>>;

/// All the jobs, or the few that there are.
pub(crate) type AtLeast<J, T> = Result<Chain<First<T>, J>, First<T>>;

/// All the jobs if there are at least `many`, else the few that there are.
///
/// Inlined, or the first jobs would be copied from place to place on their way out.
#[inline(always)]
pub(crate) fn at_least<J: Iterator>(many: usize, mut jobs: J) -> AtLeast<J, J::Item> {
    let mut first = [const { None }; MAX_MINIMUM_JOBS];
    let mut count = 0;
    for (place, job) in first[..many].iter_mut().zip(&mut jobs) {
        *place = Some(job);
        count += 1;
    }
    let first = first.into_iter().flatten();
    if count < many {
        Err(first)
    } else {
        Ok(first.chain(jobs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_is_lost_or_put_out_of_order_on_either_side_of_the_bound() {
        for many in 1..=MAX_MINIMUM_JOBS {
            for count in 0..2 * MAX_MINIMUM_JOBS {
                let (enough, jobs) = match at_least(many, 0..count) {
                    Ok(jobs) => (true, Vec::from_iter(jobs)),
                    Err(jobs) => (false, Vec::from_iter(jobs)),
                };
                assert_eq!(enough, count >= many);
                assert!(jobs.into_iter().eq(0..count));
            }
        }
    }
}
