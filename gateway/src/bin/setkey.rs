//! The program `setkey`.

fn main() {}
