//! Cookies (RFC 7296 2.6): a stranger shows that it receives at its address before anything is kept for it.
//!
//! A cookie is the number of a secret and a code over the request, the address and that secret: checking one needs
//! nothing but the secret. The secret changes regularly; one old secret is still accepted.

use multibuffer::{Prf, PrfKey};
use std::{net::SocketAddr, time::Duration};

/// Bytes of a cookie: at most 64 (RFC 7296 2.6).
pub(crate) const COOKIE_BYTES: usize = 33;

type Cookie = [u8; COOKIE_BYTES];

/// The secrets that cookies are made with.
pub(crate) struct Cookies {
    lifetime: Duration,
    current: Option<CookieSecret>,
    old: Option<CookieSecret>,
}

struct CookieSecret {
    number: u8,
    since: Duration,
    key: PrfKey,
}

impl Cookies {
    pub fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            current: None,
            old: None,
        }
    }

    /// The cookie for a request of this address, with this initiator's SPI and nonce.
    pub fn make(
        &mut self,
        from: SocketAddr,
        (spi, nonce): (&[u8; 8], &[u8]),
        now: Duration,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Option<Cookie> {
        self.rotate(now, random);
        let secret = self.current.as_ref()?;
        Some(secret.cookie(from, spi, nonce))
    }

    /// Whether `cookie` was made for this request. The time it takes does not depend on where it differs.
    pub fn check(
        &mut self,
        cookie: &[u8],
        from: SocketAddr,
        (spi, nonce): (&[u8; 8], &[u8]),
        now: Duration,
    ) -> bool {
        let is_valid =
            |secret: &&CookieSecret| now.saturating_sub(secret.since) < 2 * self.lifetime;
        let secrets = self.current.iter().chain(self.old.iter());
        let mut secrets = secrets.filter(is_valid);
        let secret = secrets.find(|secret| cookie.first() == Some(&secret.number));
        secret.is_some_and(|secret| {
            multibuffer::constant_time_eq(&secret.cookie(from, spi, nonce), cookie)
        })
    }

    /// RFC 7296 2.6: the responder SHOULD change the secret frequently.
    fn rotate(&mut self, now: Duration, random: &mut dyn FnMut(&mut [u8])) {
        let current = self.current.as_ref();
        if current.is_some_and(|secret| now.saturating_sub(secret.since) < self.lifetime) {
            return;
        }
        let number = current.map_or(0, |secret| secret.number.wrapping_add(1));
        let mut bytes = zeroize::Zeroizing::new([0; 32]);
        random(&mut bytes[..]);
        let key = PrfKey::new(Prf::HmacSha256, &bytes[..]);
        let secret = CookieSecret {
            number,
            since: now,
            key,
        };
        self.old = self.current.replace(secret);
    }
}

impl CookieSecret {
    /// The number of the secret | prf(secret, Ni | IPi | port | SPIi), as RFC 7296 2.6 proposes.
    fn cookie(&self, from: SocketAddr, spi: &[u8; 8], nonce: &[u8]) -> Cookie {
        let ip = match from.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            std::net::IpAddr::V6(ip) => ip,
        };
        let code = self
            .key
            .compute(&[nonce, &ip.octets(), &from.port().to_be_bytes(), spi]);
        let mut cookie = [self.number; COOKIE_BYTES];
        let (_, rest) = cookie.split_at_mut(1);
        rest.copy_from_slice(&code);
        cookie
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPI: [u8; 8] = [7; 8];
    const NONCE: [u8; 32] = [9; 32];

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn from() -> SocketAddr {
        "192.0.2.1:500".parse().unwrap()
    }

    /// Cookies whose secrets are 1, 2, 3 …
    fn made(cookies: &mut Cookies, now: u64) -> Cookie {
        let mut fill = |bytes: &mut [u8]| bytes.fill(now as u8 + 1);
        let cookie = cookies.make(from(), (&SPI, &NONCE), seconds(now), &mut fill);
        cookie.expect("a cookie")
    }

    #[test]
    fn a_cookie_is_good_for_the_request_it_was_made_for_alone() {
        let mut cookies = Cookies::new(seconds(30));
        let cookie = made(&mut cookies, 0);
        let now = seconds(1);
        assert!(cookies.check(&cookie, from(), (&SPI, &NONCE), now));
        assert!(!cookies.check(&cookie, from(), (&[8; 8], &NONCE), now));
        assert!(!cookies.check(&cookie, from(), (&SPI, &[0; 32]), now));
        let elsewhere = "192.0.2.2:500".parse().unwrap();
        assert!(!cookies.check(&cookie, elsewhere, (&SPI, &NONCE), now));
        for at in 0..COOKIE_BYTES {
            let mut changed = cookie;
            changed[at] ^= 1;
            assert!(!cookies.check(&changed, from(), (&SPI, &NONCE), now));
        }
        assert!(!cookies.check(&[], from(), (&SPI, &NONCE), now));
    }

    #[test]
    fn one_old_secret_is_accepted_and_no_older_one() {
        let mut cookies = Cookies::new(seconds(30));
        let first = made(&mut cookies, 0);
        let second = made(&mut cookies, 30);
        assert_ne!(first, second);
        assert!(cookies.check(&first, from(), (&SPI, &NONCE), seconds(31)));
        made(&mut cookies, 60);
        assert!(!cookies.check(&first, from(), (&SPI, &NONCE), seconds(61)));
        assert!(cookies.check(&second, from(), (&SPI, &NONCE), seconds(61)));
    }

    #[test]
    fn a_cookie_ends_even_if_nothing_makes_another() {
        let mut cookies = Cookies::new(seconds(30));
        let cookie = made(&mut cookies, 0);
        assert!(cookies.check(&cookie, from(), (&SPI, &NONCE), seconds(59)));
        assert!(!cookies.check(&cookie, from(), (&SPI, &NONCE), seconds(60)));
    }
}
