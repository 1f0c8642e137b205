//! Handshakes of peers in progress: how many there may be, in all and of one address.

use super::Settings;
use crate::message::IkeSpi;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

/// Part of the limit that is kept for addresses of configured peers.
const SHARE_OF_CONFIGURED_PEERS: usize = 2;
/// Where cookies are asked for, one address gets this part of its limit.
const SHARE_UNDER_LOAD: usize = 8;

/// The handshakes in progress, by the own SPI.
#[derive(Default)]
pub(crate) struct HalfOpen {
    all: HashMap<IkeSpi, Entry>,
    by_address: HashMap<IpAddr, usize>,
    /// By where the first request came from and by its SPI: one that comes again finds its IKE SA so.
    by_request: HashMap<FirstRequest, IkeSpi>,
    strangers: usize,
}

/// Address and initiator's SPI of a peer's first request.
pub(crate) type FirstRequest = (SocketAddr, IkeSpi);

struct Entry {
    request: FirstRequest,
    is_stranger: bool,
}

impl HalfOpen {
    /// Whether cookies are asked for.
    pub fn is_under_load(&self, settings: &Settings) -> bool {
        self.all.len() >= settings.cookie_threshold
    }

    /// Whether there is room for another one of this address. Strangers leave half of the room to configured peers.
    pub fn has_room(&self, settings: &Settings, address: IpAddr, is_stranger: bool) -> bool {
        let of_address = self.by_address.get(&address).copied().unwrap_or(0);
        if !is_stranger {
            return self.all.len() < settings.max_half_open;
        }
        let of_one = if self.is_under_load(settings) {
            (settings.max_half_open_per_address / SHARE_UNDER_LOAD).max(1)
        } else {
            settings.max_half_open_per_address
        };
        let of_strangers = settings.max_half_open / SHARE_OF_CONFIGURED_PEERS;
        of_address < of_one && self.strangers < of_strangers.max(1)
    }

    pub fn add(&mut self, own: IkeSpi, request: FirstRequest, is_stranger: bool) {
        *self.by_address.entry(request.0.ip()).or_default() += 1;
        self.by_request.insert(request, own);
        self.strangers += usize::from(is_stranger);
        let entry = Entry {
            request,
            is_stranger,
        };
        self.all.insert(own, entry);
    }

    /// The handshake is over, either way.
    pub fn remove(&mut self, own: IkeSpi) {
        let Some(entry) = self.all.remove(&own) else {
            return;
        };
        self.strangers -= usize::from(entry.is_stranger);
        self.by_request.remove(&entry.request);
        let address = entry.request.0.ip();
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    /// The IKE SA that a first request has begun.
    pub fn find(&self, request: FirstRequest) -> Option<IkeSpi> {
        self.by_request.get(&request).copied()
    }

    /// Those in progress.
    pub fn all(&self) -> impl Iterator<Item = IkeSpi> {
        self.all.keys().copied()
    }

    /// Whether nothing is counted.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.by_address.is_empty() && self.by_request.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn spi(number: u64) -> IkeSpi {
        IkeSpi(number.to_be_bytes())
    }

    fn request(last: u8, number: impl Into<u64>) -> FirstRequest {
        (SocketAddr::new(address(last), 500), spi(number.into()))
    }

    fn settings() -> Settings {
        Settings {
            max_half_open: 20,
            max_half_open_per_address: 8,
            cookie_threshold: 6,
            ..Settings::default()
        }
    }

    #[test]
    fn an_address_has_a_limit_of_its_own_which_shrinks_under_load() {
        let (settings, mut half_open) = (settings(), HalfOpen::default());
        let mut added = 0;
        while half_open.has_room(&settings, address(1), true) {
            half_open.add(spi(added), request(1, added), true);
            added += 1;
        }
        assert_eq!(added, settings.cookie_threshold as u64);
        assert!(half_open.is_under_load(&settings));
        assert!(half_open.has_room(&settings, address(2), true));
        half_open.add(spi(100), request(2, 100u64), true);
        assert!(!half_open.has_room(&settings, address(2), true));
        half_open.remove(spi(100));
        assert!(half_open.has_room(&settings, address(2), true));
    }

    #[test]
    fn strangers_leave_room_to_configured_peers() {
        let (settings, mut half_open) = (settings(), HalfOpen::default());
        for number in 0..100u8 {
            if half_open.has_room(&settings, address(number), true) {
                half_open.add(spi(number.into()), request(number, number), true);
            }
        }
        assert_eq!(half_open.all.len(), 10);
        for number in 100..200 {
            if half_open.has_room(&settings, address(200), false) {
                half_open.add(spi(number), request(200, number), false);
            }
        }
        assert_eq!(half_open.all.len(), 20);
        for number in 0..200 {
            half_open.remove(spi(number));
            half_open.remove(spi(number));
        }
        assert!(half_open.is_empty() && half_open.strangers == 0);
    }
}
