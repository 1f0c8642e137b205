"""What `tests/run` is made of: suites, how they are counted, and what a machine may leave out."""
