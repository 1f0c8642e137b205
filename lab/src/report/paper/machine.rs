//! Which machines can answer a claim.

use serde::Deserialize;

/// A class of machines, by what they have that others lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineClass {
    /// Any Linux machine that runs the lab.
    #[default]
    Any,
    /// At least eight processors.
    ManyProcessors,
    /// A kernel with IPsec of its own, and pcrypt.
    KernelIpsec,
    /// Two machines with network cards of their own (`[testbed.hosts]`), whose interrupts can be coalesced.
    TwoHosts,
}

impl MachineClass {
    /// All but `Any`, as they are typed.
    pub const NAMES: [(&'static str, MachineClass); 3] = [
        ("many-processors", MachineClass::ManyProcessors),
        ("kernel-ipsec", MachineClass::KernelIpsec),
        ("two-hosts", MachineClass::TwoHosts),
    ];

    /// The class of this name.
    pub fn named(name: &str) -> Option<MachineClass> {
        let mut all = Self::NAMES.iter();
        all.find(|(known, _)| *known == name)
            .map(|(_, class)| *class)
    }

    /// As it is typed; empty for any machine.
    pub fn name(self) -> &'static str {
        let mut all = Self::NAMES.iter();
        all.find(|(_, class)| *class == self)
            .map_or("", |(name, _)| name)
    }

    /// What such a machine has, for a sentence that begins with `it takes`.
    pub fn has(self) -> &'static str {
        match self {
            MachineClass::Any => "any machine",
            MachineClass::ManyProcessors => "a machine with at least eight processors",
            MachineClass::KernelIpsec => {
                "a machine whose kernel has IPsec (CONFIG_INET_ESP, CONFIG_CRYPTO_PCRYPT)"
            }
            MachineClass::TwoHosts => "two machines with network cards of their own",
        }
    }
}
