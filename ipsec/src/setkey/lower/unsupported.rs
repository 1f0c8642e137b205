//! What is refused by name, and why. A user who meets one of these has an old file, not a typing mistake.

use crate::sa::Protocol as SaProtocol;
use crate::setkey::Problem;
use crate::setkey::ast::{At, ProtocolWord};

/// Algorithms that files of old name and nothing here computes, why, and what to use.
const ALGORITHMS: [(&str, &str, &str); 13] = [
    (
        "keyed-md5",
        "the keyed hash of RFC 1828 was replaced by HMAC in 1998",
        "use `hmac-md5` or better on both sides",
    ),
    (
        "keyed-sha1",
        "the keyed hash of RFC 1852 was replaced by HMAC in 1998",
        "use `hmac-sha1` or better on both sides",
    ),
    (
        "tcp-md5",
        "TCP-MD5 signatures belong to TCP, not to IPsec",
        "the kernel makes them for sockets that set TCP_MD5SIG",
    ),
    (
        "des-deriv",
        "a draft that derived its IV and never became an RFC",
        "use `aes-cbc` or `aes-gcm-16` on both sides",
    ),
    (
        "3des-deriv",
        "a draft that derived its IV and never became an RFC",
        "use `aes-cbc` or `aes-gcm-16` on both sides",
    ),
    (
        "des-32iv",
        "DES with an IV of 32 bits belongs to the ESP of RFC 1827",
        "use `aes-cbc` or `aes-gcm-16` on both sides",
    ),
    (
        "rc5-cbc",
        "no implementation of RC5 in IPsec is left, the kernel's included",
        "use `aes-cbc` or `aes-gcm-16` on both sides",
    ),
    (
        "idea-cbc",
        "no implementation of IDEA in IPsec is left, the kernel's included",
        "use `aes-cbc` or `aes-gcm-16` on both sides",
    ),
    (
        "twofish-cbc",
        "Twofish for ESP was a draft and never became an RFC",
        "use `aes-cbc` or `aes-gcm-16` on both sides",
    ),
    (
        "skipjack",
        "Skipjack for ESP was a draft and never became an RFC",
        "use `aes-cbc` or `aes-gcm-16` on both sides",
    ),
    (
        "simple",
        "an old name of the cipher that does not encrypt",
        "write `null` if that is what you want",
    ),
    (
        "md5",
        "a bare hash authenticates nothing",
        "use `hmac-md5` or better",
    ),
    (
        "sha1",
        "a bare hash authenticates nothing",
        "use `hmac-sha1` or better",
    ),
];

/// The problem with an algorithm of old, if `name` is one.
pub(super) fn algorithm(name: &At<String>) -> Option<Problem> {
    let known = ALGORITHMS.iter().find(|(known, _, _)| *known == name.node);
    known.map(|(known, why, instead)| {
        Problem::unsupported(name.span, format!("`{known}`: {why}")).advise(*instead)
    })
}

/// Compression algorithms that setkey names and nothing here computes, and why.
const COMPRESSION: [(&str, &str); 3] = [
    ("oui", "a vendor's own algorithm has no specification"),
    (
        "lzs",
        "LZS (RFC 2395) has no free implementation, the kernel's included",
    ),
    (
        "lzjh",
        "LZJH (RFC 3051) has no free implementation, the kernel's included",
    ),
];

/// The problem with a compression algorithm that is not done here.
pub(super) fn compression(name: &At<String>) -> Problem {
    let known = COMPRESSION.iter().find(|(known, _)| *known == name.node);
    let problem = match known {
        Some((known, why)) => Problem::unsupported(name.span, format!("`{known}`: {why}")),
        None => {
            let shown = crate::setkey::shown(&name.node);
            Problem::new(name.span, format!("`{shown}` is no compression algorithm"))
        }
    };
    problem.advise("use `deflate` on both sides")
}

/// The protocol of an association, unless it is one that is not done here.
pub(super) fn sa_protocol(protocol: &At<ProtocolWord>) -> Result<SaProtocol, Problem> {
    let (message, advice) = match &protocol.node {
        ProtocolWord::Esp | ProtocolWord::EspUdp(_) => return Ok(SaProtocol::Esp),
        ProtocolWord::Ah => return Ok(SaProtocol::Ah),
        ProtocolWord::IpComp => return Ok(SaProtocol::IpComp),
        ProtocolWord::EspOld => (
            "`esp-old`: the ESP of RFC 1827 has no sequence numbers and was replaced in 1998",
            "use `esp` on both sides",
        ),
        ProtocolWord::AhOld => (
            "`ah-old`: the AH of RFC 1826 has no sequence numbers and was replaced in 1998",
            "use `ah` on both sides",
        ),
        ProtocolWord::Tcp => (
            "`tcp`: TCP-MD5 signatures belong to TCP, not to IPsec",
            "the kernel makes them for sockets that set TCP_MD5SIG",
        ),
    };
    Err(Problem::unsupported(protocol.span, message).advise(advice))
}
