//! Any bytes as an identity, on the wire and as text.

use ikev2::identity::{Identity, Pattern};

/// Reads `data` as an ID payload, its type first, and as text.
///
/// # Panics
///
/// If an identity that was read is not the same after it was written and read again, or does not match itself.
pub fn check(data: &[u8]) {
    if let Some((number, rest)) = data.split_first()
        && let Ok(identity) = Identity::from_payload(*number, rest)
    {
        let (kind, bytes) = identity.to_payload();
        assert_eq!((kind, bytes.as_slice()), (*number, rest));
        assert!(Pattern::Exactly(identity.clone()).matches(&identity));
        assert!(!identity.to_string().contains(char::is_control));
    }
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    if let Ok(identity) = text.parse::<Identity>() {
        let (number, bytes) = identity.to_payload();
        let read = Identity::from_payload(number, &bytes).expect("what was written is read");
        assert_eq!(read, identity);
    }
    if let Ok(pattern) = text.parse::<Pattern>() {
        assert_eq!(pattern.to_string().parse(), Ok(pattern));
    }
}
