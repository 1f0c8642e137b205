//! Reads what `perf script -F comm,pid,tid,cpu,ip,sym,dso` prints: a line on who was running, then its frames, the
//! innermost first, then an empty line.

/// One sample of one processor.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sample<'t> {
    /// The thread's name.
    pub comm: &'t str,
    /// The process as the lab's namespace knows it; 0 for idle, for kernel threads and for processes outside.
    pub pid: i64,
    /// The processor.
    pub cpu: usize,
    /// Functions of the kernel, the innermost first.
    pub kernel: Vec<&'t str>,
    /// Functions of the program, the innermost first, each with the file it is in.
    pub user: Vec<(&'t str, &'t str)>,
}

/// Functions that everything in a softirq is called by.
const SOFTIRQ: [&str; 4] = [
    "handle_softirqs",
    "__do_softirq",
    "do_softirq",
    "run_ksoftirqd",
];

impl<'t> Sample<'t> {
    /// The frames of a softirq alone, if it was in one.
    pub(super) fn in_softirq(&self) -> Option<&[&'t str]> {
        let end = self.kernel.iter().position(|name| SOFTIRQ.contains(name))?;
        Some(&self.kernel[..end])
    }
}

/// From here on addresses are the kernel's, on every 64-bit machine.
const KERNEL: u64 = 0xffff_0000_0000_0000;
/// A function without a name.
pub(super) const UNNAMED: &str = "[unknown]";

/// Every sample of the text. What is not understood is left out.
pub(super) fn read(text: &str) -> Vec<Sample<'_>> {
    let mut samples: Vec<Sample> = Vec::new();
    for line in text.lines() {
        if let Some(sample) = head(line) {
            samples.push(sample);
        } else if let (Some(sample), Some((address, symbol, file))) =
            (samples.last_mut(), frame(line))
        {
            if address >= KERNEL {
                sample.kernel.push(symbol)
            } else {
                sample.user.push((symbol, file))
            }
        }
    }
    samples
}

/// `name with blanks  77/78 [003]`
fn head(line: &str) -> Option<Sample<'_>> {
    let (rest, cpu) = line.trim_end().rsplit_once(' ')?;
    let cpu = cpu.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let (comm, ids) = rest.trim_end().rsplit_once(' ')?;
    let (pid, tid) = ids.split_once('/')?;
    tid.parse::<i64>().ok()?;
    Some(Sample {
        comm: comm.trim(),
        pid: pid.parse().ok()?,
        cpu,
        ..Sample::default()
    })
}

/// `   ffffffff81234567 function with (blanks) (file)`
fn frame(line: &str) -> Option<(u64, &str, &str)> {
    let line = line.strip_prefix(char::is_whitespace)?.trim();
    let (address, rest) = line.split_once(' ')?;
    let (symbol, file) = rest.rsplit_once(" (")?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some((address, symbol, file.trim_end_matches(')')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_whatever_their_names_hold() {
        let text = "lto cgu.2 [x]  9094/10587 [001] \n\
                    \tffffffff81630273 _copy_to_iter ([kernel.kallsyms])\n\
                    \t         880b003 <a::B as c::D (e)>::f (/usr/lib/with blank.so)\n\n\
                    swapper     0/0     [000] \n\tffffffff821d1b0f pv_native_safe_halt ([kernel.kallsyms])\n";
        let samples = read(text);
        assert_eq!(samples.len(), 2);
        assert_eq!(
            (samples[0].comm, samples[0].pid, samples[0].cpu),
            ("lto cgu.2 [x]", 9094, 1)
        );
        assert_eq!(samples[0].kernel, ["_copy_to_iter"]);
        assert_eq!(
            samples[0].user,
            [("<a::B as c::D (e)>::f", "/usr/lib/with blank.so")]
        );
        assert_eq!(samples[1].kernel, ["pv_native_safe_halt"]);
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        assert!(read("# warnings\n\tnonsense\n\n").is_empty());
    }
}
