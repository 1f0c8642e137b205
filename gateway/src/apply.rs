//! setkey text: parsed, checked and applied atomically; what its dumps print.

use crate::control::SetkeyText;
use crate::failure::Failure;
use crate::local_time::utc_offset;
use crate::plane::Plane;
use dataplane::clock;
use ipsec::command::{Answer, Refused, SaReport};
use ipsec::sa::Phase;
use ipsec::setkey::{
    DumpContext, Forwarding, Lowered, NoNames, Problem, compile, dump_policies, dump_sas,
    dump_short,
};
use zeroize::Zeroizing;

/// The result of a text that was applied.
pub(crate) struct Applied {
    /// The output of its dump statements, in setkey's layout.
    pub output: Zeroizing<String>,
    /// Warnings, one rendered message each.
    pub warnings: Vec<String>,
}

/// Applies a text. On any error nothing has changed and all errors are in the message.
pub(crate) fn apply(
    plane: &mut dyn Plane,
    request: &SetkeyText,
    now: u64,
) -> Result<Applied, Failure> {
    let lowered = parse(request)?;
    let answers = plane
        .apply(&lowered.commands)
        .map_err(|refused| Failure::new(blame(&refused, &lowered, request)))?;
    Ok(Applied {
        output: output(&answers, request, now),
        warnings: warnings(&lowered, request),
    })
}

/// Parses a text without applying it.
pub(crate) fn parse(request: &SetkeyText) -> Result<Lowered, Failure> {
    let forwarding = if request.kernel_semantics {
        Forwarding::AsWritten
    } else {
        Forwarding::WithIn
    };
    compile(&request.text, forwarding, &mut NoNames)
        .map_err(|problems| Failure::new(rendered(&problems, &request.name, &request.text)))
}

/// All problems of a text as one message.
pub(crate) fn rendered(problems: &[Problem], name: &str, text: &[u8]) -> String {
    let rendered: Vec<_> = problems
        .iter()
        .map(|problem| problem.render(name, text))
        .collect();
    rendered.join("\n")
}

/// The warnings of a text, one rendered message each.
pub(crate) fn warnings(lowered: &Lowered, request: &SetkeyText) -> Vec<String> {
    let render = |warning: &ipsec::setkey::Warning| warning.render(&request.name, &request.text);
    lowered.warnings.iter().map(render).collect()
}

/// A refusal by the plane, at the statement that it is about.
pub(crate) fn blame(refused: &Refused, lowered: &Lowered, request: &SetkeyText) -> String {
    match lowered.spans.get(refused.index) {
        Some(place) => {
            Problem::new(*place, refused.reason.clone()).render(&request.name, &request.text)
        }
        None => refused.reason.clone(),
    }
}

/// Dumps grow without leaving copies of keys behind: each piece is zeroed when it has been taken over.
fn output(answers: &[Answer], request: &SetkeyText, now: u64) -> Zeroizing<String> {
    // Times of associations are not wall-clock times: the offset between the two clocks is added for the reader.
    let set_by = clock::date_of(now).wrapping_sub(now) as i64;
    let offset = move |moment: u64| set_by + utc_offset(moment.saturating_add_signed(set_by));
    let context = DumpContext {
        now,
        utc_offset: &offset,
        pid: request.pid,
        ports: request.with_ports,
    };
    let mut pieces: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    for answer in answers {
        match answer {
            Answer::Done => {}
            Answer::Sas(sas) => pieces.push(sas_piece(sas, request, &context)),
            Answer::Policies(policies) => {
                pieces.push(Zeroizing::new(
                    dump_policies(policies, &context).into_bytes(),
                ));
            }
            Answer::Spi(spi) => {
                pieces.push(Zeroizing::new(
                    format!("{}({spi})\n", spi.get()).into_bytes(),
                ));
            }
        }
    }
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let mut whole = Zeroizing::new(String::with_capacity(len));
    for piece in &pieces {
        // Dumps are ASCII. A piece that is not valid UTF-8 would be a bug; it is left out.
        whole.push_str(std::str::from_utf8(piece).unwrap_or_default());
    }
    whole
}

fn sas_piece(
    sas: &[SaReport],
    request: &SetkeyText,
    context: &DumpContext<'_>,
) -> Zeroizing<Vec<u8>> {
    let shown: Vec<_> = sas
        .iter()
        .filter(|sa| request.with_dead || sa.phase != Phase::Dead)
        .cloned()
        .collect();
    if request.short {
        return Zeroizing::new(dump_short(&shown).into_bytes());
    }
    dump_sas(&shown, context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::Recorder;

    fn request(text: &str) -> SetkeyText {
        SetkeyText {
            name: "test.conf".to_owned(),
            text: Zeroizing::new(text.as_bytes().to_vec()),
            kernel_semantics: false,
            dry_run: false,
            with_dead: false,
            with_ports: false,
            short: false,
            pid: 4321,
        }
    }

    const ADD: &str = "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel -r 4 -E aes-cbc \
        0x000102030405060708090a0b0c0d0e0f -A hmac-sha1 0x000102030405060708090a0b0c0d0e0f10111213;";

    fn failure(plane: &mut Recorder, text: &str) -> String {
        let failure = apply(plane, &request(text), 0).err().unwrap();
        failure.to_string()
    }

    #[test]
    fn what_was_added_is_dumped_in_the_layout_that_scripts_expect() {
        let mut plane = Recorder::default();
        let applied = apply(&mut plane, &request(&format!("{ADD} dump;")), 0).unwrap();
        assert!(
            applied
                .output
                .starts_with("192.0.2.1 192.0.2.2 \n\tesp mode=tunnel spi=4097(0x00001001)")
        );
        assert_eq!(plane.applied().len(), 2);
    }

    #[test]
    fn with_an_error_in_the_last_line_the_first_is_not_applied() {
        let mut plane = Recorder::default();
        let error = failure(&mut plane, &format!("{ADD}\nspdflsh;"));
        assert!(error.contains("test.conf:2:1"), "{error}");
        assert!(plane.applied().is_empty());
    }

    #[test]
    fn a_refusal_points_at_its_statement_and_shows_no_key() {
        let mut plane = Recorder::default();
        let error = failure(&mut plane, &format!("{ADD}\n{ADD}"));
        assert!(error.contains("test.conf:2:1"), "{error}");
        assert!(!error.contains("00010203"), "{error}");
    }
}
