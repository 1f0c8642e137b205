//! Reads a request per line and prints its result, both in JSON, for comparison with an independent implementation,
//! tests/ikev2/judge.py.

use ikev2::{
    authentication::{SharedSecret, Signed, check_signature, sign},
    certificate::{Certificate, Revocation, Trust, UnixTime},
    groups::{Group, KeyPair},
    keys::{IkeKeys, IkeSpis, Nonces, Protection},
    prf,
    signatures::{
        PrivateKey, PublicKey,
        choice::{RsaPadding, choose},
    },
};
use ipsec::{
    algorithm::{Encryption, Integrity},
    suite::{Secret, Suite},
};
use multibuffer::Prf;
use serde_json::{Value, json};
use std::{
    io::{BufRead, Write, stdin, stdout},
    time::Duration,
};

fn main() {
    for line in stdin().lock().lines() {
        let question: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let answer = match question["ask"].as_str() {
            Some("keys") => keys(&question),
            Some("secret") => secret(&question),
            Some("exchange") => exchange(&question),
            Some("sign") => signature(&question),
            Some("check") => check(&question),
            Some("chain") => chain(&question),
            other => panic!("no question: {other:?}"),
        };
        println!("{answer}");
        stdout().flush().expect("an open standard output");
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    let hex = value.as_str().expect("bytes in hexadecimal");
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).expect("digits");
    hex.as_bytes().chunks(2).map(pair).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn function(question: &Value) -> Prf {
    let id = question["prf"].as_u64().expect("a number") as u16;
    prf::from_transform(id).expect("a known transform")
}

fn protection(value: &Value) -> Protection {
    let encryption = value["encryption"].as_str();
    let encryption = encryption.map(|name| Encryption::named(name).expect("a cipher"));
    let len = value["key_len"].as_u64().unwrap_or(0) as usize;
    let integrity = value["integrity"].as_str();
    Protection {
        encryption: encryption.map(|row| (row, len)),
        integrity: integrity.map(|name| Integrity::named(name).expect("an algorithm")),
    }
}

fn of_suite(suite: &Suite) -> Value {
    let encryption = suite.encryption().map(|(_, key)| hex(key.expose()));
    let integrity = suite.integrity().map(|(_, key)| hex(key.expose()));
    json!([encryption, integrity])
}

fn of_ike(keys: &IkeKeys) -> Value {
    let (initiator, responder) = (of_suite(&keys.initiator), of_suite(&keys.responder));
    let (pi, pr) = (hex(keys.pi.expose()), hex(keys.pr.expose()));
    json!({"initiator": initiator, "responder": responder, "pi": pi, "pr": pr})
}

/// The keys of an IKE SA, of a child without and with an exchange of its own, and of the IKE SA that replaces it.
fn keys(question: &Value) -> Value {
    let (initiator, responder) = (bytes(&question["ni"]), bytes(&question["nr"]));
    let nonces = Nonces {
        initiator: &initiator,
        responder: &responder,
    };
    let spi = |name: &str| bytes(&question[name]).try_into().expect("8 bytes");
    let spis = IkeSpis {
        initiator: spi("spi_i"),
        responder: spi("spi_r"),
    };
    let (shared, newer) = (bytes(&question["shared"]), bytes(&question["shared_new"]));
    let (ike, child) = (protection(&question["ike"]), protection(&question["child"]));
    let prf = function(question);
    let first = IkeKeys::initial(prf, ike, &shared, nonces, spis).expect("a suite");
    let second = first
        .d
        .rekeyed(prf, ike, &newer, nonces, spis)
        .expect("a suite");
    let children = [None, Some(newer.as_slice())].map(|shared| {
        let keys = first.d.child(child, shared, nonces).expect("a suite");
        json!([of_suite(&keys.initiator), of_suite(&keys.responder)])
    });
    json!({"ike": of_ike(&first), "rekeyed": of_ike(&second), "children": children})
}

fn octets(question: &Value) -> Vec<u8> {
    let (message, nonce, identity) = (
        bytes(&question["message"]),
        bytes(&question["nonce"]),
        bytes(&question["identity"]),
    );
    let signed = Signed {
        message: &message,
        nonce: &nonce,
        identity: &identity,
    };
    signed.octets(function(question), &Secret::new(bytes(&question["sk_p"])))
}

fn secret(question: &Value) -> Value {
    let secret = SharedSecret::new(function(question), &bytes(&question["secret"]));
    let octets = octets(question);
    let taken = secret
        .check(2, &bytes(&question["theirs"]), &octets)
        .is_ok();
    json!({"auth": hex(&secret.prove(&octets)), "taken": taken})
}

fn exchange(question: &Value) -> Value {
    let id = question["group"].as_u64().expect("a number") as u16;
    let group = Group::from_transform(id).expect("a known group");
    let random = bytes(&question["random"]);
    let mut fill = |wanted: &mut [u8]| wanted.copy_from_slice(&random[..wanted.len()]);
    let pair = KeyPair::generate(group, &mut fill).expect("a key pair");
    let public = hex(pair.public());
    let shared = pair.agree(&bytes(&question["peer"]));
    json!({"public": public, "shared": shared.ok().map(|shared| hex(&shared))})
}

fn signature(question: &Value) -> Value {
    let key =
        PrivateKey::from_pem(question["key"].as_str().expect("PEM").as_bytes()).expect("a key");
    let hashes: Option<Vec<u16>> =
        serde_json::from_value(question["hashes"].clone()).expect("numbers");
    let padding = match question["pkcs1"].as_bool() {
        Some(true) => RsaPadding::Pkcs1,
        _ => RsaPadding::Pss,
    };
    let (method, scheme) = choose(&key, hashes.as_deref(), padding).expect("a method");
    let data = sign(&key, method, scheme, &octets(question)).expect("a signature");
    json!({"method": method.number(), "data": hex(&data)})
}

fn check(question: &Value) -> Value {
    let key = PublicKey::from_spki(&bytes(&question["key"])).expect("a key");
    let method = question["method"].as_u64().expect("a number") as u8;
    let checked = check_signature(&key, method, &bytes(&question["data"]), &octets(question));
    json!({"taken": checked.is_ok()})
}

/// Whether a chain leads to the root; lists that cannot be read are left out. Lists are required unless the question
/// says `"lists_required": false`.
fn chain(question: &Value) -> Value {
    let all = |name: &str| {
        let values = question[name].as_array().expect("a list");
        values.iter().map(bytes).collect::<Vec<_>>()
    };
    let chain: Result<Vec<_>, _> = all("chain")
        .iter()
        .map(|der| Certificate::from_der(der))
        .collect();
    let chain = match chain {
        Ok(chain) => chain,
        Err(error) => return json!({"taken": false, "why": error.to_string()}),
    };
    let mut trust = Trust::default();
    if question["lists_required"] != false {
        trust.revocation = Revocation::Required;
    }
    trust.add_roots(&bytes(&question["root"])).expect("a root");
    for list in all("lists") {
        let _ = trust.add_revocation_lists(&list);
    }
    let now = question["now"].as_u64().expect("seconds");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    match trust.validate(&chain, now) {
        Ok(_) => json!({"taken": true, "why": ""}),
        Err(failure) => json!({"taken": false, "why": failure.to_string()}),
    }
}
