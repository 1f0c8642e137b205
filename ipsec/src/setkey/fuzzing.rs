//! What must hold for any bytes whatever, as one function for the fuzzer and for ordinary tests.

use super::{parse, print};

/// Parses `text`, renders what is wrong with it, and checks that what was understood survives printing.
///
/// # Panics
/// If parsing its own print gives anything but the same tree: a mistake of this module.
pub fn check_any_text(text: &[u8]) {
    let parsed = parse(text);
    for problem in &parsed.problems {
        assert!(problem.span.start <= problem.span.end && problem.span.end <= text.len());
        assert!(!problem.render("text", text).is_empty());
    }
    let printed = print(&parsed.file);
    let again = parse(&printed);
    assert!(
        again.problems.is_empty(),
        "a print does not parse: {:?}",
        again.problems
    );
    assert!(again.file == parsed.file, "a print means something else");
    assert!(*print(&again.file) == *printed, "a second print differs");
}
