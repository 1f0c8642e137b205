//! The setkey language against texts that others wrote, against itself, and against everything that can be wrong.

mod problems;
mod round_trip;
mod samples;
