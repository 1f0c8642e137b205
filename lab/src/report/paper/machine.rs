//! Which machines can answer a claim.

use serde::Deserialize;

use crate::record::Provenance;
use crate::testbed::REAL_MACHINES;

/// From so many on; each gateway of the study of 2010 had sixteen.
const MANY_PROCESSORS: usize = 8;

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

    /// Whether the machine of a record is of this class. What its kernel has shows in what it measured.
    pub fn includes(self, machine: &Provenance) -> bool {
        match self {
            MachineClass::Any | MachineClass::KernelIpsec => true,
            MachineClass::ManyProcessors => machine.cpus >= MANY_PROCESSORS,
            MachineClass::TwoHosts => machine.testbed.starts_with(REAL_MACHINES),
        }
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
