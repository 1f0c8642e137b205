use super::*;
use etherparse::PacketBuilder;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness};
use proptest::prelude::*;
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(super) const KEYS: &str = "-E aes-cbc 0x000102030405060708090a0b0c0d0e0f -A hmac-sha1 0x000102030405060708090a0b0c0d0e0f10111213";

pub(super) fn tunnel() -> String {
    format!(
        "add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 64 {KEYS};
         spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;"
    )
}

/// The same seen from the other end.
fn inbound() -> String {
    tunnel().replace("-P out", "-P in")
}

pub(super) fn udp_packet(source: [u8; 4], destination: [u8; 4], len: usize) -> Vec<u8> {
    let builder = PacketBuilder::ipv4(source, destination, 64).udp(1000, 2000);
    let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let mut packet = Vec::new();
    builder.write(&mut packet, &payload).unwrap();
    packet
}

pub(super) fn inner(len: usize) -> Vec<u8> {
    udp_packet([10, 1, 0, 2], [10, 2, 0, 2], len)
}

/// A capture of raw IP packets, a second apart.
pub(super) fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let header = PcapHeader {
        datalink: DataLink::RAW,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (time, packet) in (1000..).zip(packets) {
        let packet = PcapPacket::new(Duration::from_secs(time), packet.len() as u32, packet);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("esplanade-capture-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Processes a whole capture file; returns the content of OUT and the report.
pub(super) fn go(
    file: &[u8],
    text: &str,
    operation: Operation,
) -> (Result<Report, Failure>, Vec<Vec<u8>>) {
    go_routed(file, text, operation, &Routed::default())
}

pub(super) fn go_routed(
    file: &[u8],
    text: &str,
    operation: Operation,
    routed: &Routed,
) -> (Result<Report, Failure>, Vec<Vec<u8>>) {
    let folder = Folder::new();
    let files = Files {
        sa: folder.0.join("sa.setkey"),
        seed: Some(7),
        force: false,
        input: folder.0.join("in.pcap"),
        output: folder.0.join("out.pcap"),
    };
    std::fs::write(&files.sa, text).unwrap();
    std::fs::write(&files.input, file).unwrap();
    let routed = Some(routed).filter(|_| operation == Operation::Seal);
    let outcome =
        engine(operation, &files, routed).and_then(|mut engine| process(&mut engine, &files));
    let mut out = Vec::new();
    if outcome.is_ok() {
        let mut reader = Reader::new(File::open(&files.output).unwrap()).unwrap();
        while let Some(frame) = reader.next_frame().unwrap() {
            out.push(frame.bytes);
        }
    } else {
        assert!(!files.output.exists());
    }
    (outcome, out)
}

fn round_trip(text: &str, packets: &[Vec<u8>]) {
    let (report, sealed) = go(&capture(packets), text, Operation::Seal);
    assert_eq!(report.unwrap().named(), packets.len() as u64);
    for (sealed, plain) in sealed.iter().zip(packets) {
        let secret = &plain[28..];
        assert!(!sealed.windows(secret.len()).any(|window| window == secret));
    }
    // From the other end.
    let text = text.replace("-P out", "-P in");
    let (report, opened) = go(&capture(&sealed), &text, Operation::Open);
    assert!(report.unwrap().is_complete());
    assert_eq!(opened, packets);
}

#[test]
fn what_was_sealed_opens_to_the_same_bytes() {
    let packets: Vec<_> = [20, 64, 333, 1400].into_iter().map(inner).collect();
    round_trip(&tunnel(), &packets);
}

const AH: &str =
    "-A hmac-sha2-256 0x000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f";

/// AH alone, which does not encrypt, in either mode; then nested SAs, of the first study and of the third.
fn layered() -> [String; 4] {
    let nets = "spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec";
    let hosts = "spdadd 10.1.0.2 10.2.0.2 any -P out ipsec";
    let tunnel = "tunnel/192.0.2.1-192.0.2.2/require";
    [
        format!("add 192.0.2.1 192.0.2.2 ah 0x1001 -m tunnel -r 64 {AH}; {nets} ah/{tunnel};"),
        format!(
            "add 10.1.0.2 10.2.0.2 ah 0x1001 -m transport -r 64 {AH}; {hosts} ah/transport//require;"
        ),
        format!(
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel -r 64 {KEYS};
             add 192.0.2.1 192.0.2.2 ah 0x1002 -m transport -r 64 {AH};
             {nets} esp/{tunnel} ah/transport//require;"
        ),
        format!(
            "add 10.1.0.2 10.2.0.2 esp 0x1001 -m transport -r 64 {KEYS};
             add 10.1.0.2 10.2.0.2 ah 0x1002 -m transport -r 64 {AH};
             {hosts} esp/transport//require ah/transport//require;"
        ),
    ]
}

/// A packet that AH can leave as it is: its identification is not 0.
fn numbered(len: usize) -> Vec<u8> {
    let mut packet = inner(len);
    packet[5] = 9;
    ipsec::wire::ip::v4::finish_checksum(&mut packet);
    packet
}

#[test]
fn ah_and_bundles_open_to_the_same_bytes_and_nothing_changed_does() {
    let packets: Vec<_> = [20, 64, 333, 1400].into_iter().map(numbered).collect();
    for text in layered() {
        let (report, sealed) = go(&capture(&packets), &text, Operation::Seal);
        assert_eq!(report.unwrap().named(), 4, "{text}");
        for (sealed, plain) in sealed.iter().zip(&packets) {
            // The outermost layer is AH, behind an IPv4 header without options.
            assert_eq!((sealed[0], sealed[9]), (0x45, 51), "{text}");
            let shown = sealed
                .windows(plain.len() - 28)
                .any(|part| part == &plain[28..]);
            assert_eq!(shown, !text.contains("esp"), "{text}");
        }
        let text = text.replace("-P out", "-P in");
        let (report, opened) = go(&capture(&sealed), &text, Operation::Open);
        assert!(report.unwrap().is_complete(), "{text}");
        assert_eq!(opened, packets, "{text}");
        let mut changed = sealed;
        changed.iter_mut().for_each(|packet| packet[15] ^= 1);
        let (report, opened) = go(&capture(&changed), &text, Operation::Open);
        assert!(!report.unwrap().is_complete(), "{text}");
        assert!(opened.is_empty(), "{text}");
    }
}

/// The associations of a file alone.
fn without_policies(text: &str) -> String {
    let statements = text.split_inclusive(';');
    let associations = statements.filter(|statement| !statement.contains("spdadd"));
    associations.collect()
}

#[test]
fn associations_without_policies_open_what_they_protect_in_every_layer() {
    for text in layered().into_iter().chain([tunnel()]) {
        let packets = [numbered(64), numbered(900)];
        let (_, sealed) = go(&capture(&packets), &text, Operation::Seal);
        let (report, opened) = go(&capture(&sealed), &without_policies(&text), Operation::Open);
        assert!(report.unwrap().is_complete(), "{text}");
        assert_eq!(opened, packets, "{text}");
    }
}

#[test]
fn with_one_policy_a_capture_is_judged_as_by_the_gateway() {
    let (_, sealed) = go(&capture(&[inner(64)]), &tunnel(), Operation::Seal);
    let associations = without_policies(&tunnel());
    for policy in [
        "spdadd 10.9.0.0/24 10.2.0.0/24 any -P in none;",
        "spdadd 10.1.0.0/24 10.2.0.0/24 any -P out none;",
    ] {
        let text = format!("{associations} {policy}");
        let (report, opened) = go(&capture(&sealed), &text, Operation::Open);
        assert!(!report.unwrap().is_complete(), "{policy}");
        assert_eq!(opened, Vec::<Vec<u8>>::new(), "{policy}");
    }
}

#[test]
fn transport_mode_behind_a_nat_opens_with_checksums_made_anew() {
    let text = format!(
        "add 10.1.0.2 10.2.0.2 esp-udp 0x1001 -m transport -r 64 {KEYS};
         spdadd 10.1.0.2 10.2.0.2 any -P out ipsec esp/transport//require;"
    );
    let (report, mut sealed) = go(&capture(&[inner(99)]), &text, Operation::Seal);
    assert!(report.unwrap().is_complete());
    // As after a NAT on the path: another source address and port.
    sealed[0][12..16].copy_from_slice(&[203, 0, 113, 7]);
    sealed[0][20..22].copy_from_slice(&61_000u16.to_be_bytes());
    ipsec::wire::ip::v4::finish_checksum(&mut sealed[0]);
    let original = go(
        &capture(&sealed),
        &text.replace("-P out", "-P in"),
        Operation::Open,
    );
    assert_eq!(
        original.1, [[0; 0]; 0],
        "the association is of another address"
    );
    let text = text.replace("10.1.0.2", "203.0.113.7");
    let (report, opened) = go(
        &capture(&sealed),
        &text.replace("-P out", "-P in"),
        Operation::Open,
    );
    assert!(report.unwrap().is_complete());
    let expected = udp_packet([203, 0, 113, 7], [10, 2, 0, 2], 99);
    assert_eq!(opened[0][12..], expected[12..]);
}

#[test]
fn a_datagram_to_another_programs_port_is_skipped() {
    let (_, sealed) = go(&capture(&[inner(99)]), &tunnel(), Operation::Seal);
    let to_port = |port: u16| {
        let mut packet = sealed[0].clone();
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        packet
    };
    let file = capture(&[to_port(53), to_port(4500)]);
    let (report, opened) = go(&file, &inbound(), Operation::Open);
    assert_eq!(
        report.unwrap().text(Operation::Open),
        "opened 1, dropped 0, ignored 1"
    );
    assert_eq!(opened, [inner(99)]);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let file = capture(&[inner(99)]);
    assert_eq!(
        go(&file, &tunnel(), Operation::Seal).1,
        go(&file, &tunnel(), Operation::Seal).1
    );
}

#[test]
fn a_changed_byte_is_dropped_by_name_and_a_repeated_packet_as_replayed() {
    let (_, sealed) = go(
        &capture(&[inner(99), inner(98)]),
        &tunnel(),
        Operation::Seal,
    );
    let mut changed = sealed[0].clone();
    changed[60] ^= 1;
    let file = capture(&[changed, sealed[1].clone(), sealed[1].clone()]);
    let (report, opened) = go(&file, &inbound(), Operation::Open);
    let report = report.unwrap();
    assert_eq!(opened, [inner(98)]);
    assert!(!report.is_complete());
    let text = report.text(Operation::Open);
    assert!(text.contains("opened 1, dropped 2, ignored 0"), "{text}");
    assert!(
        text.contains("bad-icv                   1  packet 1:"),
        "{text}"
    );
    assert!(
        text.contains("replayed                  1  packet 3:"),
        "{text}"
    );
}

#[test]
fn what_no_association_is_named_for_is_passed_over() {
    let stranger = udp_packet([172, 16, 0, 1], [172, 16, 0, 2], 30);
    let (summary, out) = go(&capture(&[stranger, inner(30)]), &tunnel(), Operation::Seal);
    let text = summary.unwrap().text(Operation::Seal);
    assert_eq!(out.len(), 1);
    assert_eq!(text, "sealed 1, dropped 0, ignored 1");
}

#[test]
fn outer_fragments_are_joined_before_they_are_opened() {
    let (_, sealed) = go(&capture(&[inner(1400)]), &tunnel(), Operation::Seal);
    let mut outer = sealed[0].clone();
    // DF off, so that a router may fragment.
    outer[6] &= !0x40;
    outer[10..12].fill(0);
    let sum = ipsec::wire::checksum::over(&[&outer[..20]]);
    outer[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut cutter = ipsec::fragment::Cutter::new(&outer, 600, 1).unwrap();
    let (mut bytes, mut pieces) = (Vec::new(), Vec::new());
    while let Some(len) = cutter.next_into(&mut bytes) {
        pieces.push(bytes[bytes.len() - len..].to_vec());
    }
    assert_eq!(pieces.len(), 3);
    let (_, opened) = go(&capture(&pieces), &inbound(), Operation::Open);
    assert_eq!(opened, [inner(1400)]);
}

#[test]
fn a_file_that_ends_inside_a_packet_names_the_packet() {
    let file = capture(&[inner(50), inner(60)]);
    let (outcome, _) = go(&file[..file.len() - 3], &tunnel(), Operation::Seal);
    let error = outcome.err().unwrap().to_string();
    assert!(error.contains("ends within packet 2"), "{error}");
    for bad in [&b""[..], b"not a capture at all", &file[..10]] {
        let (outcome, _) = go(bad, &tunnel(), Operation::Seal);
        assert!(
            outcome
                .err()
                .unwrap()
                .to_string()
                .contains("neither a pcap")
        );
    }
}

#[test]
fn a_packet_that_was_cut_when_captured_is_named_with_both_lengths() {
    let mut file = capture(&[inner(50)]);
    // The original length of the first packet, in the big-endian header that PcapHeader::default() makes.
    file[36..40].copy_from_slice(&9999u32.to_be_bytes());
    let error = go(&file, &tunnel(), Operation::Seal)
        .0
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("packet 1 was truncated to 78 of 9999 bytes"),
        "{error}"
    );
}

fn pcapng(endianness: Endianness, link: DataLink, resolution: u8, frame: &[u8]) -> Vec<u8> {
    let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).unwrap();
    let mut interface = InterfaceDescriptionBlock::new(link, 65_535);
    interface.options = vec![InterfaceDescriptionOption::IfTsResol(resolution)];
    writer.write_pcapng_block(interface).unwrap();
    let packet = EnhancedPacketBlock {
        interface_id: 0,
        timestamp: Duration::from_nanos(5_000_000_007),
        original_len: frame.len() as u32,
        data: Cow::Borrowed(frame),
        options: Vec::new(),
    };
    writer.write_pcapng_block(packet).unwrap();
    writer.into_inner()
}

#[test]
fn pcapng_of_either_byte_order_keeps_its_times_and_link_types() {
    let frame = [&[2; 12][..], &[0x81, 0, 0, 5, 0x08, 0x00], &inner(40)].concat();
    for endianness in [Endianness::Big, Endianness::Little] {
        let file = pcapng(endianness, DataLink::ETHERNET, 9, &frame);
        let mut reader = Reader::new(&file[..]).unwrap();
        let read = reader.next_frame().unwrap().unwrap();
        assert_eq!(read.time, Duration::from_nanos(5_000_000_007));
        assert_eq!((read.link, &read.bytes), (1, &frame));
        assert!(reader.next_frame().unwrap().is_none());
        assert_eq!(go(&file, &tunnel(), Operation::Seal).0.unwrap().named(), 1);
        let cut = &file[..file.len() - 5];
        let error = go(cut, &tunnel(), Operation::Seal)
            .0
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("packet 1"), "{error}");
    }
}

#[test]
fn an_unknown_link_type_is_an_error_with_its_number() {
    let file = pcapng(Endianness::Little, DataLink::IEEE802_11, 6, &inner(40));
    let error = go(&file, &tunnel(), Operation::Seal)
        .0
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("link type 105"), "{error}");
}

#[test]
fn an_output_that_is_not_finished_leaves_nothing_behind() {
    let folder = Folder::new();
    let path = folder.0.join("out.pcap");
    drop(Writer::create(&path, false).unwrap());
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    let mut writer = Writer::create(&path, false).unwrap();
    writer.add(Duration::from_secs(9), &inner(20)).unwrap();
    writer.finish().unwrap();
    assert!(Writer::create(&path, false).is_err());
    let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.next_frame().unwrap().unwrap().bytes, inner(20));
}

proptest! {
    #[test]
    fn damaged_captures_never_panic(
        little in any::<bool>(),
        ng in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        keep in any::<prop::sample::Index>(),
    ) {
        let (_, sealed) = go(&capture(&[inner(99), inner(5)]), &tunnel(), Operation::Seal);
        let endianness = if little { Endianness::Little } else { Endianness::Big };
        let mut file = if ng {
            pcapng(endianness, DataLink::RAW, 9, &sealed[0])
        } else {
            capture(&sealed)
        };
        for (place, byte) in damage {
            let place = place.index(file.len());
            file[place] = byte;
        }
        file.truncate(keep.index(file.len() + 1));
        fuzz_body::file(&file);
        let _ = go(&file, &inbound(), Operation::Open);
    }
}
