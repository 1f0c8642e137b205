//! Kernel XFRM, keyed by hand through `ip xfrm`: serial, or with pcrypt, which distributes the packets of one
//! association over processors and keeps their order. pcrypt is global to the kernel (see `tool::pcrypt`), so it is
//! added for each trial and removed after it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::esplanade::Keys;
use super::{Combine, Contender, Encapsulation, IpsecConfig, Mode, Protection, Tunnel};
use crate::absence::Absence;
use crate::capture::EspKey;
use crate::contender::CapturePoint;
use crate::fault::Fault;
use crate::gateway::Side;
use crate::host::Command;
use crate::testbed::{Addresses, Topology};
use crate::tool::pcrypt::{PcryptAction, instance};

/// The kernel's XFRM with one suite.
pub struct KernelXfrm {
    ipsec: IpsecConfig,
    pcrypt: bool,
    lab: PathBuf,
    keys: Keys,
    id: String,
    label: String,
}

/// Long enough for a batch with tens of thousands of associations.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

impl KernelXfrm {
    /// `lab` is where the lab's own tools are. `order` keeps the SPIs of several apart.
    pub fn new(
        ipsec: IpsecConfig,
        pcrypt: bool,
        lab: &Path,
        order: usize,
    ) -> Result<KernelXfrm, Fault> {
        let note = if pcrypt { ", pcrypt" } else { "" };
        Ok(KernelXfrm {
            keys: Keys::fresh(&ipsec, 0x1000 + 0x100 * order as u32)?,
            id: KernelXfrm::name(&ipsec, pcrypt),
            label: format!(
                "Linux XFRM, {}{}{note}",
                ipsec.suite.label,
                ipsec.note(Encapsulation::Native)
            ),
            ipsec,
            pcrypt,
            lab: lab.to_owned(),
        })
    }

    /// The id of such a contender.
    pub fn name(ipsec: &IpsecConfig, pcrypt: bool) -> String {
        let note = if pcrypt { "-pcrypt" } else { "" };
        format!(
            "kernel-xfrm-{}{}{note}",
            ipsec.suite.name,
            ipsec.suffix(Encapsulation::Native)
        )
    }

    /// The input of `ip -batch` for one side.
    fn batch(&self, side: Side, map: &Addresses) -> String {
        let (mut batch, flags) = (String::new(), self.flags(map));
        for (from, to, direction) in self.keys.all(side, map) {
            for layer in direction.layers(&self.ipsec) {
                let algorithms = self.algorithms(&layer);
                let extra = match self.ipsec.encapsulation {
                    Encapsulation::Udp if from.is_ipv6() => " encap espinudp 4500 4500 ::",
                    Encapsulation::Udp => " encap espinudp 4500 4500 0.0.0.0",
                    Encapsulation::Native => "",
                };
                batch += &format!(
                    "xfrm state add src {from} dst {to} proto {} spi {:#x} reqid 1 mode {} replay-window {}{flags} {algorithms}{extra}\n",
                    layer.protocol, layer.spi, layer.mode, self.ipsec.window,
                );
            }
        }
        batch + &self.policies(side, map)
    }

    /// An association carries the address family of its own ends, unless the flag `af-unspec` allows any.
    fn flags(&self, map: &Addresses) -> String {
        let mixed = !map.families().are_one();
        let words = [(self.ipsec.esn, " esn"), (mixed, " af-unspec")];
        let words: String = words
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, word)| *word)
            .collect();
        if words.is_empty() {
            words
        } else {
            format!(" flag{words}")
        }
    }

    fn policies(&self, side: Side, map: &Addresses) -> String {
        let (near, far) = (&map.left_network, &map.right_network);
        let mut batch = String::new();
        for (sources, targets, from, to, outbound) in [
            (near, far, map.left, map.right, side == Side::Left),
            (far, near, map.right, map.left, side == Side::Right),
        ] {
            let templates = self.templates(&format!("{from}"), &format!("{to}"));
            let words: &[&str] = if outbound { &["out"] } else { &["in", "fwd"] };
            for word in words {
                batch +=
                    &format!("xfrm policy add src {sources} dst {targets} dir {word}{templates}\n");
            }
        }
        batch
    }

    /// Innermost first, as the kernel applies them.
    fn templates(&self, from: &str, to: &str) -> String {
        let own = |protocol| match self.ipsec.mode {
            Mode::Tunnel => {
                format!(" tmpl src {from} dst {to} proto {protocol} reqid 1 mode tunnel")
            }
            Mode::Transport => format!(" tmpl proto {protocol} reqid 1 mode transport"),
        };
        match (self.ipsec.suite.is_ah(), self.ipsec.is_bundle()) {
            (true, _) => own("ah"),
            (_, false) => own("esp"),
            (_, true) => own("esp") + " tmpl proto ah reqid 1 mode transport",
        }
    }

    fn algorithms(&self, layer: &super::esplanade::Layer<'_>) -> String {
        let suite = self.ipsec.suite;
        let cipher = match suite.cipher {
            _ if layer.cipher.is_none() => String::new(),
            "aes-gcm-16" => format!("aead rfc4106(gcm(aes)) 0x{} 128", layer.cipher_key),
            "chacha20-poly1305" => {
                let name = "rfc7539esp(chacha20,poly1305)";
                format!("aead {name} 0x{} 128", layer.cipher_key)
            }
            "null" => "enc ecb(cipher_null) \"\"".into(),
            "des-cbc" => format!("enc cbc(des) 0x{}", layer.cipher_key),
            "3des-cbc" => format!("enc cbc(des3_ede) 0x{}", layer.cipher_key),
            _ => format!("enc cbc(aes) 0x{}", layer.cipher_key),
        };
        let hash = match layer.hash.unwrap_or_default() {
            "" => String::new(),
            "hmac-md5" => format!(" auth-trunc hmac(md5) 0x{} 96", layer.hash_key),
            "hmac-sha1" => format!(" auth-trunc hmac(sha1) 0x{} 96", layer.hash_key),
            _ => format!(" auth-trunc hmac(sha256) 0x{} 128", layer.hash_key),
        };
        cipher + &hash
    }
}

impl Contender for KernelXfrm {
    fn id(&self) -> &str {
        &self.id
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn factors(&self) -> BTreeMap<String, String> {
        let mut factors = self.ipsec.factors();
        factors.insert("pcrypt".into(), self.pcrypt.to_string());
        factors
    }

    fn protection(&self) -> Protection {
        self.ipsec.protection()
    }

    fn capture_point(&self) -> CapturePoint {
        CapturePoint::Sender
    }

    /// Checked by a trial: the same associations are added on one side and flushed again.
    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        let parallel = self.parallel(PcryptAction::Add, topology);
        let added = parallel.and_then(|()| self.apply(Side::Left, topology));
        // Where nothing could be added there is nothing to flush.
        let flushed = flush(Side::Left, topology)
            .and_then(|()| self.parallel(PcryptAction::Delete, topology));
        added.and(flushed).map_err(|fault| {
            let modules = "esp4 ah4 xfrm_user xfrm_algo";
            Absence::new(
                format!("the kernel's IPsec does not support this ({fault})"),
                if self.pcrypt { format!("a kernel with CONFIG_INET_ESP, CONFIG_CRYPTO_PCRYPT and CONFIG_CRYPTO_USER: modprobe -a {modules} pcrypt crypto_user") } else { format!("a kernel with CONFIG_INET_ESP and CONFIG_XFRM_USER: modprobe -a {modules}") },
            )
        })
    }

    fn up(&self, topology: &Topology) -> Result<Box<dyn Tunnel>, Fault> {
        let table = topology.left.read("/proc/crypto".as_ref())?;
        if let (false, Some(driver)) = (self.pcrypt, instance(&table, &self.algorithm())) {
            return Err(Fault::failed(format!(
                "this kernel runs all IPsec of this suite in parallel ({driver}): esplanade-lab tool pcrypt delete '{}'",
                self.algorithm()
            )));
        }
        self.parallel(PcryptAction::Add, topology)?;
        let up = Side::BOTH.into_iter().try_for_each(|side| {
            let name = format!("config/{}/{}.xfrm", self.id, side.name());
            topology
                .gateway(side)
                .write_file(&name, &self.batch(side, &topology.addresses))?;
            self.apply(side, topology)
        });
        let tunnel = InKernel {
            keys: self.keys.wireshark_keys(&self.ipsec, &topology.addresses),
            parallel: self.pcrypt.then(|| self.pcrypt(PcryptAction::Delete)),
        };
        match up {
            Ok(()) => Ok(Box::new(tunnel)),
            Err(fault) => {
                // The first error is the relevant one.
                let _ = tunnel.remove(topology);
                Err(fault)
            }
        }
    }
}

impl KernelXfrm {
    /// The algorithm that XFRM requests from the crypto layer.
    fn algorithm(&self) -> String {
        let cipher = match self.ipsec.suite.cipher {
            "aes-gcm-16" => return "rfc4106(gcm(aes))".into(),
            "chacha20-poly1305" => return "rfc7539esp(chacha20,poly1305)".into(),
            "null" => "ecb(cipher_null)",
            "des-cbc" => "cbc(des)",
            "3des-cbc" => "cbc(des3_ede)",
            _ => "cbc(aes)",
        };
        let hash = match self.ipsec.suite.hash {
            _ if self.ipsec.combine == Combine::EspAndAh => "digest_null",
            "" => "digest_null",
            "hmac-md5" => "hmac(md5)",
            "hmac-sha1" => "hmac(sha1)",
            _ => "hmac(sha256)",
        };
        format!("authenc({hash},{cipher})")
    }

    fn pcrypt(&self, act: PcryptAction) -> Command {
        let word = match act {
            PcryptAction::Add => "add",
            PcryptAction::Delete => "delete",
        };
        let command = Command::tool(&self.lab, "pcrypt").arg(word);
        command.arg(self.algorithm())
    }

    /// Adds or removes the pcrypt instance, if this contender uses it. Both gateways share a kernel.
    fn parallel(&self, act: PcryptAction, topology: &Topology) -> Result<(), Fault> {
        if self.pcrypt {
            topology
                .left
                .must(&self.pcrypt(act), COMMAND_TIMEOUT)
                .map(drop)
        } else {
            Ok(())
        }
    }

    fn apply(&self, side: Side, topology: &Topology) -> Result<(), Fault> {
        let text = self.batch(side, &topology.addresses);
        let command = Command::line("ip -batch -").input(text);
        topology
            .gateway(side)
            .must(&command, COMMAND_TIMEOUT)
            .map(drop)
    }
}

fn flush(side: Side, topology: &Topology) -> Result<(), Fault> {
    let flush = Command::line("ip -batch -").input("xfrm state flush\nxfrm policy flush\n");
    topology
        .gateway(side)
        .must(&flush, COMMAND_TIMEOUT)
        .map(drop)
}

/// Associations and policies go with the topology; pcrypt does not.
struct InKernel {
    keys: Vec<EspKey>,
    parallel: Option<Command>,
}

impl InKernel {
    fn remove(&self, topology: &Topology) -> Result<(), Fault> {
        let Some(delete) = &self.parallel else {
            return Ok(());
        };
        // Associations hold on to it.
        Side::BOTH
            .into_iter()
            .try_for_each(|side| flush(side, topology))?;
        topology.left.must(delete, COMMAND_TIMEOUT).map(drop)
    }
}

impl Tunnel for InKernel {
    /// The kernel's own counters, by its own names.
    fn drops(&self, topology: &Topology) -> Result<Option<BTreeMap<String, u64>>, Fault> {
        let mut all = BTreeMap::new();
        for side in Side::BOTH {
            let table = topology
                .gateway(side)
                .read("/proc/net/xfrm_stat".as_ref())?;
            for (name, count) in table
                .lines()
                .filter_map(|line| line.split_once(char::is_whitespace))
            {
                *all.entry(name.to_owned()).or_default() +=
                    count.trim().parse::<u64>().unwrap_or(0);
            }
        }
        Ok(Some(all))
    }

    fn keys(&self) -> Vec<EspKey> {
        self.keys.clone()
    }

    fn down(&mut self, topology: &Topology) -> Result<(), Fault> {
        self.remove(topology)
    }
}

#[cfg(test)]
mod tests;
