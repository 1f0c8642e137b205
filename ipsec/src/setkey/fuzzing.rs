//! What must hold for any bytes whatever, as one function for the fuzzer and for ordinary tests.

use super::{Forwarding, NoNames, Span, compile, parse, print};

/// Parses and lowers `text`, renders what is wrong with it, and checks that what was understood survives printing.
///
/// # Panics
/// If parsing its own print gives anything but the same tree, or a place lies outside the text: a mistake of this
/// module.
pub fn check_any_text(text: &[u8]) {
    check_printing(text);
    let inside = |span: Span| assert!(span.start <= span.end && span.end <= text.len());
    match compile(text, Forwarding::WithIn, &mut NoNames) {
        Ok(lowered) => {
            assert_eq!(lowered.commands.len(), lowered.places.len());
            lowered.places.iter().copied().for_each(inside);
            for warning in &lowered.warnings {
                inside(warning.span);
                assert!(!warning.render("text", text).is_empty());
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in &problems {
                inside(problem.span);
                assert!(!problem.render("text", text).is_empty());
            }
        }
    }
}

fn check_printing(text: &[u8]) {
    let parsed = parse(text);
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
