//! The headers, bytes and meaning: a checked view (`new_checked`) to read, `emit` to write, one vocabulary for each.
