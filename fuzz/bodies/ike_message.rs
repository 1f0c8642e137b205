//! Any bytes as an IKE message, and as the content of an encrypted payload.

use ikev2::message::{Message, Payload, PayloadType, payload};

/// Reads `data` as a message, and behind its first byte as decrypted payloads; what was read is printed and read again.
///
/// # Panics
///
/// If printing does more than clear reserved bits, or what was printed is read as something else.
pub fn check(data: &[u8]) {
    if let Ok(message) = Message::parse(data) {
        let printed = message
            .print()
            .expect("a message that was read is not too long");
        assert_only_cleared(data, &printed);
        assert_eq!(Message::parse(&printed).as_ref(), Ok(&message));
    }
    let Some((&first, payloads)) = data.split_first() else {
        return;
    };
    let first = PayloadType(first);
    if let Ok(read) = payload::parse_decrypted(first, payloads) {
        let printed = print(&read);
        assert_only_cleared(payloads, &printed);
        assert_eq!(payload::first(&read), first);
        assert_eq!(
            payload::parse_decrypted(first, &printed).as_ref(),
            Ok(&read)
        );
    }
}

fn print(payloads: &[Payload<'_>]) -> Vec<u8> {
    let mut printed = Vec::new();
    payload::print(payloads, &mut printed).expect("payloads that were read are not too long");
    printed
}

/// Reserved bits are ignored when read and zero when printed: no bit is ever set, and no byte is more or less.
fn assert_only_cleared(read: &[u8], printed: &[u8]) {
    assert_eq!(read.len(), printed.len());
    for (at, (read, printed)) in read.iter().zip(printed).enumerate() {
        // The minor version is ours: 0.
        assert_eq!(read & printed, *printed, "byte {at}");
    }
}
