//! The kernel's own IPsec, keyed by hand through `ip xfrm`: serial as it comes, or with pcrypt, which spreads the packets of
//! one association over processors and keeps their order.

use std::collections::BTreeMap;
use std::time::Duration;

use super::esplanade::Keys;
use super::{Absence, Contender, Encapsulation, Mode, Protection, Side, Tunnel, Wrapping};
use crate::capture::EspKey;
use crate::fault::Fault;
use crate::host::Command;
use crate::testbed::{Addresses, Bed};

/// The kernel's XFRM with one suite.
pub struct KernelXfrm {
    wrapping: Wrapping,
    pcrypt: bool,
    keys: Keys,
    id: String,
    label: String,
}

/// One command is done in no time; one with tens of thousands of associations is not.
const PATIENCE: Duration = Duration::from_secs(30);

impl KernelXfrm {
    /// `order` keeps the SPIs of several apart.
    pub fn new(wrapping: Wrapping, pcrypt: bool, order: usize) -> Result<KernelXfrm, Fault> {
        let note = if pcrypt { ", pcrypt" } else { "" };
        Ok(KernelXfrm {
            keys: Keys::fresh(&wrapping, 0x1000 + 0x100 * order as u32)?,
            id: KernelXfrm::name(&wrapping, pcrypt),
            label: format!(
                "Linux XFRM, {}{}{note}",
                wrapping.suite.label,
                wrapping.note(Encapsulation::Native)
            ),
            wrapping,
            pcrypt,
        })
    }

    /// The id of such a contender.
    pub fn name(wrapping: &Wrapping, pcrypt: bool) -> String {
        let note = if pcrypt { "-pcrypt" } else { "" };
        format!(
            "kernel-xfrm-{}{}{note}",
            wrapping.suite.name,
            wrapping.suffix(Encapsulation::Native)
        )
    }

    /// What `ip xfrm` is told on one side.
    fn batch(&self, side: Side, map: &Addresses) -> String {
        let mut batch = String::new();
        for (from, to, direction) in self.keys.all(side, map) {
            for layer in direction.layers(&self.wrapping) {
                let algorithms = self.algorithms(&layer);
                let extra = match self.wrapping.encapsulation {
                    Encapsulation::Udp if from.is_ipv6() => " encap espinudp 4500 4500 ::",
                    Encapsulation::Udp => " encap espinudp 4500 4500 0.0.0.0",
                    Encapsulation::Native => "",
                };
                let esn = if self.wrapping.esn { " flag esn" } else { "" };
                batch += &format!(
                    "xfrm state add src {from} dst {to} proto {} spi {:#x} reqid 1 mode {} replay-window {}{esn} {algorithms}{extra}\n",
                    layer.protocol, layer.spi, layer.mode, self.wrapping.window,
                );
            }
        }
        batch + &self.policies(side, map)
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
        let own = |protocol| match self.wrapping.mode {
            Mode::Tunnel => {
                format!(" tmpl src {from} dst {to} proto {protocol} reqid 1 mode tunnel")
            }
            Mode::Transport => format!(" tmpl proto {protocol} reqid 1 mode transport"),
        };
        match (self.wrapping.suite.is_ah(), self.wrapping.bundle) {
            (true, _) => own("ah"),
            (_, false) => own("esp"),
            (_, true) => own("esp") + " tmpl proto ah reqid 1 mode transport",
        }
    }

    fn algorithms(&self, layer: &super::esplanade::Layer<'_>) -> String {
        let suite = self.wrapping.suite;
        let parallel = |name: &str| match self.pcrypt {
            true => format!("pcrypt({name})"),
            false => name.to_owned(),
        };
        let cipher = match suite.cipher {
            _ if layer.cipher.is_none() => String::new(),
            "aes-gcm-16" => format!(
                "aead {} 0x{} 128",
                parallel("rfc4106(gcm(aes))"),
                layer.cipher_key
            ),
            "chacha20-poly1305" => {
                format!(
                    "aead {} 0x{} 128",
                    parallel("rfc7539esp(chacha20,poly1305)"),
                    layer.cipher_key
                )
            }
            "null" => "enc ecb(cipher_null) \"\"".into(),
            "des-cbc" => format!("enc cbc(des) 0x{}", layer.cipher_key),
            "3des-cbc" => format!("enc cbc(des3_ede) 0x{}", layer.cipher_key),
            _ => format!("enc cbc(aes) 0x{}", layer.cipher_key),
        };
        let hash = match suite.hash {
            _ if layer.hash.is_none() => String::new(),
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
        let mut factors = self.wrapping.factors();
        factors.insert("pcrypt".into(), self.pcrypt.to_string());
        factors
    }

    fn protection(&self) -> Protection {
        self.wrapping.protection()
    }

    /// Tried, not guessed: the very associations are added on one side and flushed again.
    fn presence(&self, bed: &Bed) -> Result<(), Absence> {
        let added = self.apply(Side::Left, bed);
        let flushed = Command::line("ip xfrm state flush");
        // Where nothing could be added there is nothing to flush.
        let _ = bed.left.run(&flushed, PATIENCE);
        let policies = Command::line("ip xfrm policy flush");
        let _ = bed.left.run(&policies, PATIENCE);
        added.map_err(|fault| {
            let modules = "esp4 ah4 xfrm_user xfrm_algo";
            Absence::new(
                format!("this kernel's own IPsec cannot do it ({fault})"),
                match self.pcrypt {
                    true => format!("a kernel with CONFIG_INET_ESP and CONFIG_CRYPTO_PCRYPT: modprobe -a {modules} pcrypt (AEAD suites only)"),
                    false => format!("a kernel with CONFIG_INET_ESP and CONFIG_XFRM_USER: modprobe -a {modules}"),
                },
            )
        })
    }

    fn up(&self, bed: &Bed) -> Result<Box<dyn Tunnel>, Fault> {
        for side in Side::BOTH {
            let name = format!("config/{}/{}.xfrm", self.id, side.name());
            let host = bed.gateway(side);
            host.place(&name, &self.batch(side, &bed.addresses))?;
            self.apply(side, bed)?;
        }
        Ok(Box::new(InKernel {
            keys: self.keys.for_analysers(&self.wrapping, &bed.addresses),
        }))
    }
}

impl KernelXfrm {
    fn apply(&self, side: Side, bed: &Bed) -> Result<(), Fault> {
        let text = self.batch(side, &bed.addresses);
        let command = Command::line("ip -batch -").input(text);
        bed.gateway(side).must(&command, PATIENCE).map(drop)
    }
}

/// Associations and policies go with the bed.
struct InKernel {
    keys: Vec<EspKey>,
}

impl Tunnel for InKernel {
    /// The kernel's own counters, by its own names.
    fn drops(&self, bed: &Bed) -> Result<Option<BTreeMap<String, u64>>, Fault> {
        let mut all = BTreeMap::new();
        for side in Side::BOTH {
            let table = bed.gateway(side).read("/proc/net/xfrm_stat".as_ref())?;
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
}
