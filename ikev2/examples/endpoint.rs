//! An endpoint without sockets, clock and data plane, for judges: an input per line and what comes of it, both in JSON.
//! tests/ikev2/charon/endpoint.py gives it all three.

use ikev2::{
    certificate::{Certificate, Trust},
    connection::{
        Child, ChildMode, Connection, Encapsulation, LocalProof, RemoteProof, Start, Traffic,
    },
    endpoint::{Action, ChildId, ChildSa, ChildUse, Endpoint, Input, Outbound, Settings, Use},
    identity::Pattern,
    message::payload::{AddressRange, Protocol},
    negotiation::Offer,
    signatures::{PrivateKey, choice::RsaPadding},
    work::{Done, Secrets, Verifier, Work},
};
use ipsec::suite::{Secret, Suite};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use std::{
    io::{BufRead, Write, stdin, stdout},
    sync::Arc,
    time::Duration,
};

fn main() {
    let settings = Settings {
        log_keys: true,
        ..Settings::default()
    };
    let mut driver = Driver {
        endpoint: Endpoint::new(settings),
        secrets: Secrets::new(),
        verifier: Verifier::new(),
        unix_time: 0,
        now: Duration::ZERO,
    };
    for line in stdin().lock().lines() {
        let input: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        println!("{}", driver.take(&input));
        stdout().flush().expect("an open standard output");
    }
}

struct Driver {
    endpoint: Endpoint,
    secrets: Secrets,
    verifier: Verifier,
    unix_time: u64,
    now: Duration,
}

impl Driver {
    fn take(&mut self, input: &Value) -> Value {
        self.now = Duration::from_millis(number(input, "now"));
        self.unix_time = number(input, "unix");
        let name = input["name"].as_str().unwrap_or_default();
        let actions = match text(input, "do") {
            "configure" => {
                let connection = self.connection(&input["connection"]);
                let connections = vec![Arc::new(connection)];
                self.endpoint.configure(connections, self.now, &mut random)
            }
            "datagram" => {
                let mut bytes = octets(text(input, "bytes"));
                let (from, to) = (text(input, "from"), text(input, "to"));
                self.handle(Input::Datagram {
                    from: from.parse().expect("an address and port"),
                    to: to.parse().expect("an address and port"),
                    bytes: &mut bytes,
                })
            }
            "timer" => self.handle(Input::Timer),
            "up" => self.handle(Input::Up { connection: name }),
            "down" => self.handle(Input::Down { connection: name }),
            "rekey" => {
                let ike = input["ike"].as_bool() == Some(true);
                self.handle(Input::Rekey {
                    connection: name,
                    ike,
                })
            }
            "received" => {
                let what = Use::FirstReceived;
                let child = ChildId(number(input, "child"));
                self.handle(Input::ChildUse(&[ChildUse { child, what }]))
            }
            "report" => {
                return json!({ "report": self.endpoint.report(self.now), "why": self.endpoint.why(name, self.now) });
            }
            other => panic!("no input: {other}"),
        };
        let actions: Vec<_> = self.perform(actions);
        let next = self.endpoint.next_at().map(|at| at.as_millis() as u64);
        json!({ "actions": actions, "next": next })
    }

    fn handle(&mut self, input: Input<'_>) -> Vec<Action> {
        self.endpoint.handle(input, self.now, &mut random)
    }

    /// Does the work, counts child SAs as installed, and gives everything else.
    fn perform(&mut self, actions: Vec<Action>) -> Vec<Value> {
        let mut shown = Vec::new();
        for action in actions {
            let more = match action {
                Action::Work(id, work) => {
                    let result = self.done(work);
                    self.handle(Input::Done(Done { id, result }))
                }
                Action::Install(child) => {
                    shown.push(of_child(&child));
                    let (child, outcome) = (child.id, Ok(()));
                    self.handle(Input::Installed { child, outcome })
                }
                Action::Send {
                    from,
                    to,
                    datagrams,
                } => {
                    let datagrams: Vec<_> = datagrams.iter().map(|bytes| hex(bytes)).collect();
                    shown.push(json!({ "send": datagrams, "from": from.to_string(), "to": to.to_string() }));
                    continue;
                }
                Action::UseOutbound(child) => {
                    shown.push(json!({ "use": child.0 }));
                    continue;
                }
                Action::Remove { child, .. } => {
                    shown.push(json!({ "remove": child.0 }));
                    continue;
                }
                Action::LogKeys(keys) => {
                    let (initiator, responder) =
                        (of_suite(&keys.initiator), of_suite(&keys.responder));
                    let spis = [hex(&keys.spis.initiator), hex(&keys.spis.responder)];
                    shown.push(json!({ "keys": [initiator, responder], "spis": spis }));
                    continue;
                }
                Action::Event(event) => {
                    shown.push(json!({ "event": event.to_string() }));
                    continue;
                }
            };
            shown.extend(self.perform(more));
        }
        shown
    }

    fn done(&self, work: Work) -> Result<ikev2::work::Output, ikev2::work::WorkError> {
        if work.needs_secrets() {
            self.secrets.perform(work, &mut random)
        } else {
            self.verifier.perform(work, self.unix_time)
        }
    }

    /// The connection of number 0, with its secrets.
    fn connection(&mut self, value: &Value) -> Connection {
        let (local_proof, remote_proof) = match value["psk"].as_str() {
            Some(secret) => {
                self.secrets
                    .add_shared_secret(0, Secret::new(secret.as_bytes().to_vec()));
                (LocalProof::SharedSecret(0), RemoteProof::SharedSecret(0))
            }
            None => self.certificates(value),
        };
        let Pattern::Exactly(local_id) = text(value, "local_id").parse().expect("an identity")
        else {
            panic!("an identity and no pattern");
        };
        let remote_id = text(value, "remote_id").parse().expect("an identity");
        let name = text(value, "name");
        let mut made = Connection::new(
            name,
            (local_id, local_proof),
            (remote_id, remote_proof),
            true,
        );
        let addresses = |name: &str| {
            strings(&value[name])
                .iter()
                .map(|text| text.parse().expect("an address"))
                .collect()
        };
        (made.local, made.remote) = (addresses("local"), addresses("remote"));
        made.ike = offers(value, "ike", Protocol::IKE);
        made.start = if value["start"] == true {
            Start::AtStart
        } else {
            Start::Wait
        };
        made.dpd = value["dpd_ms"].as_u64().map(Duration::from_millis);
        made.schedule.first = Duration::from_millis(500);
        made.schedule.longest = Duration::from_secs(1);
        made.schedule.repetitions = 4;
        made.encapsulation = Encapsulation::Forced;
        if let Some(bytes) = value["fragment_bytes"].as_u64() {
            made.fragment_bytes = bytes as usize;
        }
        made.childless = value["childless"] == true;
        let traffic = |name: &str| {
            let [first, last] = &strings(&value[name])[..] else {
                panic!("the first and the last address of a network");
            };
            let range = AddressRange::new(
                first.parse().expect("an address"),
                last.parse().expect("an address"),
            );
            vec![Traffic::of(range.expect("a range"))]
        };
        let mut child = Child::new(name, traffic("networks"), traffic("peer_networks"), true);
        child.mode = ChildMode::Tunnel;
        child.offers = offers(value, "esp", Protocol::ESP);
        made.children = vec![child];
        made
    }

    fn certificates(&mut self, value: &Value) -> (LocalProof, RemoteProof) {
        let key = PrivateKey::from_pem(text(value, "key").as_bytes()).expect("a private key");
        self.secrets.add_private_key(0, key);
        let mut trust = Trust::default();
        trust
            .add_roots(text(value, "ca").as_bytes())
            .expect("certificates");
        trust
            .add_revocation_lists(text(value, "crl").as_bytes())
            .expect("a revocation list");
        let authorities = trust.key_hashes();
        self.verifier.add_trust(0, trust);
        let chain = CertificateDer::pem_slice_iter(text(value, "certificate").as_bytes());
        let chain: Vec<_> = chain
            .map(|der| der.expect("a certificate").to_vec())
            .collect();
        Certificate::from_der(&chain[0]).expect("a certificate");
        let padding = match value["rsa_padding"].as_str() {
            Some("pkcs1") => RsaPadding::Pkcs1,
            _ => RsaPadding::Pss,
        };
        let local = LocalProof::Certificate {
            key: 0,
            chain,
            padding,
        };
        (
            local,
            RemoteProof::Certificate {
                trust: 0,
                authorities,
            },
        )
    }
}

fn of_child(child: &ChildSa) -> Value {
    json!({
        "install": child.id.0,
        "spis": [child.inbound_spi, child.outbound_spi],
        "inbound": of_suite(&child.inbound),
        "outbound": of_suite(&child.outbound),
        "active": child.outbound_state == Outbound::Active,
        "replaces": child.replaces.map(|old| old.0),
        "ports": child.encapsulation,
        "remote": child.remote.to_string(),
    })
}

fn of_suite(suite: &Suite) -> Value {
    let encryption = suite
        .encryption()
        .map(|(row, key)| json!([row.name, hex(key.expose())]));
    let integrity = suite
        .integrity()
        .map(|(row, key)| json!([row.name, hex(key.expose())]));
    json!([encryption, integrity])
}

fn offers(value: &Value, name: &str, protocol: Protocol) -> Vec<Offer> {
    let offer = |text: &String| Offer::parse(text, protocol).expect("a suite");
    strings(&value[name]).iter().map(offer).collect()
}

fn random(bytes: &mut [u8]) {
    aws_lc_rs::rand::fill(bytes).expect("random bytes of the system");
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("no text {name}"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {name}"))
}

fn strings(value: &Value) -> Vec<String> {
    let texts = value.as_array().expect("a list").iter();
    texts
        .map(|text| text.as_str().expect("a text").to_owned())
        .collect()
}

fn octets(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).expect("digits");
    hex.as_bytes().chunks(2).map(pair).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
