use super::*;
use crate::message::payload::Protocol;

fn carried(connection: &Connection) -> Connection {
    let text = serde_json::to_string(connection).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_connection_is_the_same_behind_the_border_of_a_process() {
    let local = (
        "CN=left,O=Example".parse().unwrap(),
        LocalProof::Certificate {
            key: 1,
            chain: vec![vec![1, 2, 3]],
            padding: RsaPadding::Pkcs1,
        },
    );
    for pattern in [
        "any",
        "*.example.org",
        "*@example.org",
        "keyid:0x00ff",
        "2001:db8::1",
    ] {
        let remote = RemoteProof::Certificate {
            trust: 2,
            authorities: vec![[7; 20]],
        };
        let remote = (pattern.parse().unwrap(), remote);
        let mut connection = Connection::new("peer", local.clone(), remote, true);
        let traffic = Traffic {
            protocol: 6,
            ports: Ports::Opaque,
            addresses: AddressRange::new("::1".parse().unwrap(), "::2".parse().unwrap()).unwrap(),
        };
        connection.children = vec![Child::new("net", vec![traffic], vec![traffic], false)];
        assert_eq!(carried(&connection), connection);
    }
}

#[test]
fn offers_and_ranges_keep_their_invariants_when_they_are_read() {
    let backwards = serde_json::from_str::<AddressRange>(r#"["10.0.0.2", "10.0.0.1"]"#);
    assert!(backwards.is_err());
    assert!(serde_json::from_str::<Ports>("[2, 1]").is_err());
    assert_eq!(
        serde_json::from_str::<Ports>("[65535, 0]").unwrap(),
        Ports::Opaque
    );
    let offer = Offer::parse("aes128-sha256", Protocol::ESP).unwrap();
    let text = serde_json::to_string(&offer).unwrap();
    assert_eq!(serde_json::from_str::<Offer>(&text).unwrap(), offer);
    assert!(serde_json::from_str::<Offer>("[3, []]").is_err());
}
