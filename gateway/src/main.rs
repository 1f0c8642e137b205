//! The program `esplanade`.

fn main() {}
