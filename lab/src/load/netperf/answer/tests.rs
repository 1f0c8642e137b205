//! Outputs of netperf 2.7.0, built from its public source with `--enable-demo` and run between two network namespaces.

use super::*;

const STREAM: &str = include_str!("../outputs/stream-2.7.0.txt");
const BACKWARDS: &str = include_str!("../outputs/stream-backwards-2.7.0.txt");
const DATAGRAMS: &str = include_str!("../outputs/datagrams-2.7.0.txt");
const QUESTIONS: &str = include_str!("../outputs/questions-2.7.0.txt");

#[test]
fn a_stream_is_what_the_far_end_received() {
    let carried = read(STREAM).unwrap().of_stream(false).unwrap();
    assert_eq!((carried.bytes, carried.seconds), (27_039_616, 2.0));
    assert_eq!(carried.goodput_bps, 108_146_020.0);
    assert_eq!(carried.retransmits, Some(11));
    assert_eq!(
        carried.intervals_bps,
        [93_477_890.0, 118_369_530.0, 118_281_040.0, 102_403_710.0]
    );
}

#[test]
fn backwards_the_near_end_receives_and_the_far_one_sends_again() {
    let carried = read(BACKWARDS).unwrap().of_stream(true).unwrap();
    assert_eq!((carried.bytes, carried.retransmits), (62_889_216, Some(6)));
    let ratio = carried.goodput_bps * carried.seconds / 8.0 / carried.bytes as f64;
    assert!((ratio - 1.0).abs() < 0.001, "{carried:?}");
    assert_eq!(read(STREAM).unwrap().of_stream(true).unwrap().bytes, 0);
}

#[test]
fn the_rest_of_an_interval_is_none() {
    let text = STREAM.replace("INTERVAL[3]=0.497", "INTERVAL[3]=0.012");
    let carried = read(&text).unwrap().of_stream(false).unwrap();
    assert_eq!(carried.intervals_bps.len(), 3);
}

#[test]
fn of_datagrams_those_count_that_arrived() {
    let carried = read(DATAGRAMS).unwrap().of_datagrams(1024).unwrap();
    assert_eq!(
        (carried.bytes, carried.goodput_bps),
        (130_383_872, 1_042_962_560.0)
    );
    assert_eq!(
        carried.retransmits, None,
        "-1 means that they are not counted: {carried:?}"
    );
    let figures = carried.figures;
    assert_eq!(figures["sent_bps"], 266_856_448.0 * 8.0);
    assert_eq!(figures["rate_pps"], 127_328.0);
    let lost = 1.0 - 130_383_872.0 / 266_856_448.0;
    assert!((figures["loss_ratio"] - lost).abs() < 1e-12, "{figures:?}");
}

#[test]
fn questions_have_a_rate_and_percentiles_in_microseconds() {
    let carried = read(QUESTIONS).unwrap().of_requests(64).unwrap();
    assert_eq!(carried.figures["transactions_per_s"], 113_296.534);
    assert_eq!(carried.figures["rtt.answers_count"], 113_309.0);
    let times = ["mean", "p50", "p90", "p99", "max"].map(|word| {
        let name = format!("rtt.{word}_us");
        carried.figures[&name]
    });
    assert_eq!(times, [8.78, 6.0, 6.0, 10.0, 5359.0]);
    assert_eq!(carried.goodput_bps, 113_296.534 * 512.0);
    assert_eq!((carried.bytes, carried.retransmits), (7_251_776, Some(0)));
}

#[test]
fn too_few_questions_have_no_percentile() {
    let text = QUESTIONS.replace("P99_LATENCY=10", "P99_LATENCY=0");
    let figures = read(&text).unwrap().of_requests(64).unwrap().figures;
    assert!(!figures.contains_key("rtt.p99_us"));
    assert!(figures.contains_key("rtt.p90_us"));
}

#[test]
fn a_failure_is_reported_in_netperfs_own_words() {
    let why = |told| read(told).unwrap_err();
    let no_server = why(include_str!("../outputs/no-netserver-2.7.0.txt"));
    assert!(
        no_server.starts_with(
            "establish control: are you sure there is a netserver listening on 10.77.0.2 at port 5304?; "
        ),
        "{no_server}"
    );
    let long = why(include_str!("../outputs/too-long-2.7.0.txt"));
    assert_eq!(
        long,
        "netperf: send_omni: send_data failed: Message too long; \
         send_data: data send error: Message too long (errno 90)"
    );
    assert_eq!(why(""), "it said nothing");
}

#[test]
fn an_answer_that_lacks_something_is_no_result() {
    let without = |text: &str, name: &str| -> String {
        let lines = text.lines().filter(|line| !line.starts_with(name));
        lines.collect::<Vec<_>>().join("\n")
    };
    let stream = without(STREAM, "REMOTE_BYTES_RECVD");
    assert_eq!(
        read(&stream).unwrap().of_stream(false).unwrap_err(),
        "its output has no REMOTE_BYTES_RECVD"
    );
    let unit = STREAM.replace("THROUGHPUT_UNITS=10^3bits/s", "THROUGHPUT_UNITS=MBytes/s");
    assert_eq!(
        read(&unit).unwrap().of_stream(false).unwrap_err(),
        "its unit is MBytes/s, not 10^3bits/s"
    );
    let text = STREAM.replace("=27039616", "=much");
    assert_eq!(
        read(&text).unwrap().of_stream(false).unwrap_err(),
        "its REMOTE_BYTES_RECVD is not a number: much"
    );
    let endless = QUESTIONS.replace("=113296.534", "=inf");
    assert!(read(&endless).unwrap().of_requests(64).is_err());
}

#[test]
fn no_output_makes_the_reader_panic() {
    for text in [STREAM, BACKWARDS, DATAGRAMS, QUESTIONS] {
        for end in 0..text.len() {
            if let Ok(answer) = read(&text[..end]) {
                let _ = (answer.of_stream(false), answer.of_stream(true));
                let _ = (answer.of_datagrams(1024), answer.of_requests(64));
            }
        }
    }
}
