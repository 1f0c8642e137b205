//! The recommended value of a setting, and what to write if it has another one.

/// The recommended value of a target.
#[derive(Clone, Copy)]
pub(super) enum Recommendation {
    AtLeast(u64),
    /// The last of several numbers; the others stay.
    LastAtLeast(u64),
    Exactly(&'static str),
    /// A mask with every processor in it.
    EveryProcessor,
    /// A mask with this queue's share of the processors.
    ItsShare,
    /// No recommendation.
    Nothing,
}

/// The position of a target among those of the same setting.
#[derive(Clone, Copy)]
pub(super) struct Among {
    pub processors: usize,
    /// Number of the queue, and how many there are.
    pub queue: (usize, usize),
}

impl Recommendation {
    /// The value to write instead of `current`; `None` if that is good.
    pub(super) fn proposal(self, current: &str, among: Among) -> Option<String> {
        let Among {
            processors,
            queue: (number, queues),
        } = among;
        let wanted = match self {
            Self::AtLeast(least) => {
                let held: u64 = current.parse().ok()?;
                (held < least).then(|| least.to_string())?
            }
            Self::LastAtLeast(least) => raised_last(current, least)?,
            Self::Exactly(word) => word.to_owned(),
            Self::EveryProcessor => mask((0..processors).collect()),
            // A single queue serves all processors anyway.
            Self::ItsShare if queues < 2 => return None,
            Self::ItsShare => mask((number..processors).step_by(queues).collect()),
            Self::Nothing => return None,
        };
        (wanted != current).then_some(wanted)
    }
}

fn raised_last(current: &str, least: u64) -> Option<String> {
    let (rest, last) = current.rsplit_once(' ')?;
    let held: u64 = last.parse().ok()?;
    (held < least).then(|| format!("{rest} {least}"))
}

/// As the kernel prints sets of processors: words of 32 bits, the highest first, without leading zeros.
fn mask(processors: Vec<usize>) -> String {
    let words = processors.iter().max().map_or(0, |most| most / 32) + 1;
    let word = |number: usize| {
        let inside = processors.iter().filter(|cpu| *cpu / 32 == number);
        inside.fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32))
    };
    let mut text = format!("{:x}", word(words - 1));
    for number in (0..words - 1).rev() {
        text += &format!(",{:08x}", word(number));
    }
    text
}
