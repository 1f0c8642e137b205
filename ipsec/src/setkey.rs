//! The setkey language: text to commands and back.
