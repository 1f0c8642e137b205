//! charon's recorded first requests, given to an endpoint: it chooses what charon's own responder chose.

use ikev2::{
    connection::{Child, Connection, LocalProof, RemoteProof, Traffic},
    endpoint::{Action, Endpoint, Input, Settings},
    message::{Body, Message, payload::AddressRange},
    negotiation::Offer,
    work::{Done, Secrets},
};
use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

const NOW: Duration = Duration::from_secs(1);

/// The first two messages of each file: charon's request and charon's answer.
fn exchanges() -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/charon");
    let mut exchanges = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let message = |index: usize| {
            bytes(
                json["messages"][index]["bytes"]
                    .as_str()
                    .expect("hexadecimal"),
            )
        };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        exchanges.push((name, message(0), message(1)));
    }
    exchanges
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// The one proposal of an answer, as the text of an offer.
fn chosen(answer: &[u8]) -> String {
    let message = Message::parse(answer).unwrap();
    let association = message
        .payloads
        .iter()
        .find_map(|payload| match &payload.body {
            Body::SecurityAssociation(association) => Some(association),
            _ => None,
        });
    let transforms = &association.expect("a proposal").proposals[0].transforms;
    let names = transforms.iter().map(|transform| {
        let algorithm = ikev2::negotiation::Algorithm::of(transform);
        algorithm.expect("an algorithm").to_string()
    });
    // The order of types is the sender's own.
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.join("-")
}

/// A responder that accepts this suite alone.
fn endpoint(suite: &str) -> Endpoint {
    let local = (
        "right.example.org".parse().unwrap(),
        LocalProof::SharedSecret(1),
    );
    let remote = ("any".parse().unwrap(), RemoteProof::SharedSecret(1));
    let mut connection = Connection::new("charon", local, remote, true);
    let protocol = ikev2::message::payload::Protocol::IKE;
    connection.ike = vec![Offer::parse(suite, protocol).unwrap()];
    let any = AddressRange::new(
        "0.0.0.0".parse().unwrap(),
        "255.255.255.255".parse().unwrap(),
    );
    let any = vec![Traffic::of(any.unwrap())];
    connection.children = vec![Child::new("net", any.clone(), any, true)];
    let mut endpoint = Endpoint::new(Settings::default());
    endpoint.configure(vec![Arc::new(connection)], NOW, &mut |bytes| bytes.fill(1));
    endpoint
}

fn answer(endpoint: &mut Endpoint, request: &[u8]) -> Option<Vec<u8>> {
    let (from, to): (SocketAddr, SocketAddr) = (
        "192.0.2.1:500".parse().unwrap(),
        "192.0.2.2:500".parse().unwrap(),
    );
    let mut bytes = request.to_vec();
    let datagram = Input::Datagram {
        from,
        to,
        bytes: &mut bytes,
    };
    let mut random = |bytes: &mut [u8]| bytes.fill(3);
    let mut actions = endpoint.handle(datagram, NOW, &mut random);
    let secrets = Secrets::new();
    while let Some(action) = actions.pop() {
        match action {
            Action::Send { datagrams, .. } => return datagrams.into_iter().next(),
            Action::Work(id, work) => {
                let result = secrets.perform(work, &mut random);
                actions = endpoint.handle(Input::Done(Done { id, result }), NOW, &mut random);
            }
            _ => {}
        }
    }
    None
}

#[test]
fn an_endpoint_chooses_what_charon_chose() {
    let exchanges = exchanges();
    assert!(exchanges.len() > 5);
    for (name, request, response) in exchanges {
        let suite = chosen(&response);
        let answer = answer(&mut endpoint(&suite), &request);
        let answer = answer.unwrap_or_else(|| panic!("{name}: no answer"));
        assert_eq!(chosen(&answer), suite, "{name}");
        let (ours, theirs) = (
            Message::parse(&answer).unwrap(),
            Message::parse(&response).unwrap(),
        );
        assert_eq!(
            ours.header.initiator_spi, theirs.header.initiator_spi,
            "{name}"
        );
        let kinds = |message: &Message<'_>| {
            let kinds = message.payloads.iter().map(|payload| payload.body.kind());
            kinds.take(3).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&ours), kinds(&theirs), "{name}");
    }
}

#[test]
fn a_first_request_cut_or_changed_anywhere_does_no_harm() {
    let (_, request, response) = exchanges().swap_remove(0);
    let mut endpoint = endpoint(&chosen(&response));
    for at in 0..request.len() {
        let mut changed = request.clone();
        changed[at] ^= 0x55;
        let _ = answer(&mut endpoint, &changed);
        assert_eq!(answer(&mut endpoint, &request[..at]), None);
    }
}
