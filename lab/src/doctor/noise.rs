//! A short A/A run: the same transfer over the loopback, repeated. Smaller differences than this noise floor cannot be
//! measured on this machine.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::finding::{Finding, Weight, finding};
use crate::stats;

const TRANSFERS: usize = 12;
const TRANSFER_TIME: Duration = Duration::from_millis(100);
/// Above this, relevant differences are lost in noise.
const NOISY_RATIO: f64 = 0.05;

/// The finding. Starts a thread, so it must come after everything that must not.
pub(super) fn floor() -> Finding {
    match transfers().map(|rates| (stats::mean(&rates), stats::floor(&[rates], 0.95))) {
        Ok((Some(rate), Some(floor))) => {
            let weight = if floor < NOISY_RATIO {
                Weight::Good
            } else {
                Weight::Poor
            };
            let advice = if floor < NOISY_RATIO {
                ""
            } else {
                ": stop other programs, or measure more rounds"
            };
            let percent = 100.0 * floor;
            let text = format!(
                "noise floor {percent:.1} % ({TRANSFERS} equal transfers of {} ms over the loopback, {:.1} Gbit/s){advice}",
                TRANSFER_TIME.as_millis(),
                rate / 1e9
            );
            finding(weight, text)
        }
        Ok(_) => finding(Weight::Poor, "no noise floor: no data crossed the loopback"),
        Err(error) => finding(
            Weight::Poor,
            format!("no noise floor: the loopback cannot be used ({error})"),
        ),
    }
}

/// Bits per second of each round.
fn transfers() -> io::Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let sink = thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while receiver.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    let block = vec![0; 1 << 16];
    // The first round warms up.
    let rates = (0..=TRANSFERS)
        .map(|_| round(&mut sender, &block))
        .skip(1)
        .collect();
    drop(sender);
    let _ = sink.join();
    rates
}

fn round(sender: &mut TcpStream, block: &[u8]) -> io::Result<f64> {
    let (began, mut sent) = (Instant::now(), 0);
    while began.elapsed() < TRANSFER_TIME {
        sender.write_all(block)?;
        sent += block.len();
    }
    Ok(8.0 * sent as f64 / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_measured_the_stated_number_of_times() {
        let rates = transfers().unwrap();
        assert_eq!(rates.len(), TRANSFERS);
        assert!(rates.iter().all(|rate| *rate > 0.0));
        assert!(floor().text.starts_with("noise floor "));
    }
}
