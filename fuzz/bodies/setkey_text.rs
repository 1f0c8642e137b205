//! Any bytes as a setkey text: parsed, lowered, printed, parsed again.

use ipsec::setkey::{Forwarding, NoNames, Span, compile, parse, print};

/// Parses and lowers `text`, renders what is wrong with it, and checks that what was understood survives printing.
///
/// # Panics
/// If parsing its own print gives anything but the same tree, or a place lies outside the text.
pub fn check(text: &[u8]) {
    check_printing(text);
    let inside = |span: Span| assert!(span.start <= span.end && span.end <= text.len());
    match compile(text, Forwarding::WithIn, &mut NoNames) {
        Ok(lowered) => {
            assert_eq!(lowered.commands.len(), lowered.spans.len());
            lowered.spans.iter().copied().for_each(inside);
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
