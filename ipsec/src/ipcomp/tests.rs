use super::*;
use proptest::prelude::*;

/// Bytes that no compressor makes shorter.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(step).collect()
}

fn compressed(payload: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let is_shorter = Compressor::default().compress(6, 2, payload, &mut out);
    is_shorter.then_some(out)
}

#[test]
fn a_payload_comes_back_behind_next_header_zero_flags_and_cpi() {
    let payload = b"GET / HTTP/1.1\r\nHost: example.org\r\n".repeat(20);
    let packet = compressed(&payload).unwrap();
    assert_eq!(packet[..HEADER_LEN], [6, 0, 0, 2]);
    assert!(packet.len() < payload.len());
    let header = InboundIpComp::parse(&packet).unwrap();
    assert_eq!((header.next_header(), header.header_len()), (6, HEADER_LEN));
    assert_eq!(cpi(&packet), Some(2));
    let mut decompressor = Decompressor::default();
    let text = decompressor.decompress(&packet[HEADER_LEN..], 20);
    assert_eq!(text, Ok(&payload[..]));
}

#[test]
fn what_another_implementation_compressed_is_read() {
    // zlib 1.3 by Python: compressobj(wbits=-15) of "esplanade " twelve times.
    let data = [
        0x4b, 0x2d, 0x2e, 0xc8, 0x49, 0xcc, 0x4b, 0x4c, 0x49, 0x55, 0x48, 0xa5, 0x2b, 0x0b, 0x00,
    ];
    let mut decompressor = Decompressor::default();
    let text = decompressor.decompress(&data, 20);
    assert_eq!(text, Ok(&b"esplanade ".repeat(12)[..]));
}

#[test]
fn what_does_not_become_shorter_leaves_no_trace() {
    let mut out = b"before".to_vec();
    assert!(!Compressor::default().compress(6, 2, &noise(1400), &mut out));
    assert_eq!(out, b"before");
}

#[test]
fn payloads_below_the_threshold_are_not_tried() {
    assert_eq!(compressed(&[b'a'; MIN_PAYLOAD_LEN - 1]), None);
    assert!(compressed(&[b'a'; MIN_PAYLOAD_LEN]).is_some());
}

#[test]
fn header_and_data_together_must_be_shorter_and_equal_is_no_gain() {
    let mut differences = Vec::new();
    for run in 0..200 {
        let mut payload = noise(400);
        payload.extend(std::iter::repeat_n(b'a', run));
        let data = miniz_oxide::deflate::compress_to_vec(&payload, LEVEL);
        let with_header = HEADER_LEN + data.len();
        let found = compressed(&payload).map(|packet| packet.len());
        let is_shorter = with_header < payload.len();
        assert_eq!(found, is_shorter.then_some(with_header), "{run}");
        differences.push(with_header.abs_diff(payload.len()));
    }
    assert!(*differences.iter().min().unwrap() <= 1, "{differences:?}");
}

#[test]
fn a_bomb_is_not_decompressed_beyond_the_largest_packet() {
    let zeros = vec![0; 1 << 20];
    let bomb = miniz_oxide::deflate::compress_to_vec(&zeros, 9);
    assert!(bomb.len() < 1400);
    let mut decompressor = Decompressor::default();
    let refused = decompressor.decompress(&bomb, 20);
    assert_eq!(refused, Err(Dropped::ExpandsTooFar));
}

#[test]
fn the_largest_packet_is_decompressed_and_one_byte_more_is_not() {
    let mut decompressor = Decompressor::default();
    for (len, fits) in [(MAX_PACKET_LEN - 20, true), (MAX_PACKET_LEN - 19, false)] {
        let data = miniz_oxide::deflate::compress_to_vec(&vec![7; len], 6);
        assert_eq!(decompressor.decompress(&data, 20).is_ok(), fits, "{len}");
    }
}

#[test]
fn what_is_cut_short_or_no_deflate_is_refused() {
    let payload = b"a payload with some words, some words again ".repeat(10);
    let packet = compressed(&payload).unwrap();
    let data = &packet[HEADER_LEN..];
    let mut decompressor = Decompressor::default();
    for cut in [&data[..0], &data[..data.len() - 1], &[0xff; 30]] {
        let refused = decompressor.decompress(cut, 20);
        assert_eq!(refused, Err(Dropped::BadCompression));
    }
    assert_eq!(InboundIpComp::parse(&[6, 0, 0]), Err(Dropped::Malformed));
}

proptest! {
    #[test]
    fn whatever_became_shorter_comes_back(
        piece in proptest::collection::vec(any::<u8>(), 1..60),
        times in 1_usize..40,
    ) {
        let payload = piece.repeat(times);
        if let Some(packet) = compressed(&payload) {
            prop_assert!(packet.len() < payload.len());
            let mut decompressor = Decompressor::default();
            let text = decompressor.decompress(&packet[HEADER_LEN..], 40);
            prop_assert_eq!(text, Ok(&payload[..]));
        }
    }

    #[test]
    fn no_data_makes_it_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut decompressor = Decompressor::default();
        if let Ok(text) = decompressor.decompress(&data, 20) {
            prop_assert!(text.len() <= MAX_PACKET_LEN - 20);
        }
    }
}
