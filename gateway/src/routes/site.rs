//! Names and numbers that identify everything that one gateway installs in the kernel.

use std::fmt;

/// The TUN device's name unless one is given.
pub(crate) const DEFAULT_TUN: &str = "esp0";

/// The routing table's number for [`DEFAULT_TUN`].
pub(crate) const DEFAULT_TABLE: u32 = 4500;

/// The mark on packets that are not for the tunnel; the next higher bit marks packets for the tunnel.
pub(crate) const DEFAULT_MARK: u32 = 0x1000_0000;

/// Size of one gateway's block of routing rule preferences.
pub(crate) const PREFERENCES_PER_SITE: u32 = 1000;

/// Names and numbers that identify everything that one gateway installs in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    name: String,
    /// Whether the name is that of an Ethernet device, and there is no TUN device.
    forwards: bool,
    table: u32,
    mark: u32,
}

/// Why names or numbers cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BadSite(String);

impl Site {
    /// A gateway with a TUN device. Checks the user's values. Without `table` the default device has table 4500, others
    /// one of the following 19.
    pub(crate) fn new(tun: &str, table: Option<u32>, mark: u32) -> Result<Self, BadSite> {
        Self::check(tun, false, table, mark)
    }

    /// A gateway that forwards for the hosts behind this Ethernet device, without a TUN device.
    pub(crate) fn forwarding(device: &str, table: Option<u32>, mark: u32) -> Result<Self, BadSite> {
        Self::check(device, true, table, mark)
    }

    fn check(name: &str, forwards: bool, table: Option<u32>, mark: u32) -> Result<Self, BadSite> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty()
            || name.len() > 15
            || !name.chars().all(fits)
            || name.starts_with(['.', '-'])
        {
            return Err(BadSite(format!(
                "`{name}` is not a valid device name: use 1 to 15 letters, digits, `.`, `-` or `_`"
            )));
        }
        if !mark.is_power_of_two() || mark == 1 << 31 {
            return Err(BadSite(format!(
                "mark {mark:#x} is not valid: it must be a single bit below the highest, such as {DEFAULT_MARK:#x}"
            )));
        }
        let table = table.unwrap_or_else(|| default_table(name));
        if matches!(table, 0 | 252..=255) {
            return Err(BadSite(format!(
                "routing table {table} is reserved by the system; choose another number"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            forwards,
            table,
            mark,
        })
    }

    /// The device from which the other names of this gateway are derived.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The TUN device, if there is one.
    pub(crate) fn tun(&self) -> Option<&str> {
        (!self.forwards).then_some(&*self.name)
    }

    /// The Ethernet device for whose hosts this gateway forwards, if it has no TUN device.
    pub(crate) fn forward(&self) -> Option<&str> {
        self.forwards.then_some(&*self.name)
    }

    /// The devices for decrypted packets that only `in` policies let through, and for those that only `fwd` policies
    /// do. Their names are longer than the TUN device's; the kernel's limit is 15 characters.
    pub(crate) fn direction_devices(&self) -> [String; 2] {
        ["in", "fwd"].map(|way| format!("{}-{way}", self.name))
    }

    /// The routing table.
    pub(crate) fn table(&self) -> u32 {
        self.table
    }

    /// The bit on packets that must not enter the tunnel: the gateway's own outer packets, and bypassed ones.
    pub(crate) fn outside_mark(&self) -> u32 {
        self.mark
    }

    /// The bit on packets that must enter the tunnel but that routing rules cannot match.
    pub(crate) fn inside_mark(&self) -> u32 {
        self.mark << 1
    }

    /// The bit on decrypted IPv6 packets, while XFRM policies are in use: the bit above the other two, or the bit below
    /// them if there is none above.
    pub(crate) fn opened_mark(&self) -> u32 {
        match self.mark.leading_zeros() {
            0 | 1 => self.mark >> 1,
            _ => self.mark << 2,
        }
    }

    /// The nftables table, of family `inet`.
    pub(crate) fn firewall_table(&self) -> String {
        if self.name == DEFAULT_TUN {
            return "esplanade".to_owned();
        }
        let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!(
            "esplanade_{}",
            self.name.chars().map(safe).collect::<String>()
        )
    }

    /// The alias of this gateway's further devices, by which they are recognised.
    pub(crate) fn alias(&self) -> String {
        format!("esplanade {}", self.name)
    }

    /// Preference of the first routing rule; the last has [`PREFERENCES_PER_SITE`] − 1 more.
    pub(crate) fn first_preference(&self) -> u32 {
        10_000 + PREFERENCES_PER_SITE * (self.table % 20)
    }
}

/// 4501 to 4519, derived from the name, so that a restart has the same number.
fn default_table(tun: &str) -> u32 {
    if tun == DEFAULT_TUN {
        return DEFAULT_TABLE;
    }
    let sum = tun.bytes().fold(0u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    DEFAULT_TABLE + 1 + sum % 19
}

impl fmt::Display for BadSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSite {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_that_cannot_work_are_refused() {
        for tun in ["", "a-name-of-16-byte", "a b", "esp/0", "-x", ".", "ü"] {
            assert!(Site::new(tun, None, DEFAULT_MARK).is_err(), "{tun:?}");
        }
        for mark in [0, 3, 1 << 31] {
            assert!(Site::new("esp0", None, mark).is_err(), "{mark:#x}");
        }
        for (mark, opened) in [(1, 4), (1 << 29, 1 << 31), (1 << 30, 1 << 29)] {
            assert_eq!(Site::new("esp0", None, mark).unwrap().opened_mark(), opened);
        }
        for table in [0, 253, 254, 255] {
            assert!(Site::new("esp0", Some(table), DEFAULT_MARK).is_err());
        }
    }

    #[test]
    fn a_forwarding_gateway_bears_its_devices_name_and_has_no_tun_device() {
        let site = Site::forwarding("eth1", None, DEFAULT_MARK).unwrap();
        assert_eq!(
            (site.name(), site.tun(), site.forward()),
            ("eth1", None, Some("eth1"))
        );
        assert_eq!(site.firewall_table(), "esplanade_eth1");
        let found = crate::routes::record::Record::of(&site)
            .unwrap()
            .site()
            .unwrap();
        assert_eq!(found, site);
        let tun = Site::new("eth1", None, DEFAULT_MARK).unwrap();
        assert_ne!(
            tun, site,
            "what one left behind the other does not take over"
        );
    }

    #[test]
    fn two_devices_share_neither_tables_nor_preferences() {
        let one = Site::new("esp0", None, DEFAULT_MARK).unwrap();
        let two = Site::new("esp1", None, DEFAULT_MARK).unwrap();
        assert_ne!(one.table(), two.table());
        assert_ne!(one.first_preference(), two.first_preference());
        assert_ne!(one.firewall_table(), two.firewall_table());
        assert_eq!(one.firewall_table(), "esplanade");
    }
}
