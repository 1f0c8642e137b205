//! The setkey language against texts that others wrote, against itself, and against everything that can be wrong.

mod audit;
mod dump;
mod judged;
mod lowering;
mod manual;
mod problems;
mod round_trip;
mod samples;
#[path = "../../../fuzz/bodies/setkey_text.rs"]
mod setkey_text;
