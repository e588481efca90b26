//! The addresses that sources may reach: the decision as data, and its enforcement by the dialer.

use std::net::IpAddr;

use serde_json::json;
use tenure_remote_requests::address::Address;
use tenure_remote_requests::notification::ReceiverConnection;
use tenure_sources::{Cidr, Connector, Endpoint, FetchError, Limits, Policy, fetch, find_denial};

use crate::bed::{Bed, endpoint, read_spec};

fn find_class(policy: &Policy, address: &str) -> Option<&'static str> {
    let endpoint: Endpoint = "https://git.example.com".parse().unwrap();
    policy
        .check(&endpoint, address.parse::<IpAddr>().unwrap())
        .err()
        .map(|denied| denied.class)
}

#[test]
fn the_default_allows_public_addresses_only() {
    let policy = Policy::default();
    for address in [
        "140.82.121.4",
        "1.1.1.1",
        "8.8.8.8",
        "172.15.255.255",
        "172.32.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "11.0.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "223.255.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "2606:50c0:8000::153",
        "2a00:1450:4001:82b::200e",
        "::ffff:140.82.121.4",
        "64:ff9b::140.82.121.4",
        "2002:8c52:7904::1",
    ] {
        assert_eq!(find_class(&policy, address), None, "{address}");
    }
    for (address, expected) in [
        ("127.0.0.1", "a loopback address"),
        ("127.255.255.254", "a loopback address"),
        ("::1", "a loopback address"),
        ("0.0.0.0", "the unspecified address"),
        ("0.1.2.3", "an address of this network (0.0.0.0/8)"),
        ("::", "the unspecified address"),
        ("10.0.0.1", "a private address"),
        ("10.255.255.255", "a private address"),
        ("172.16.0.0", "a private address"),
        ("172.31.255.255", "a private address"),
        ("192.168.0.1", "a private address"),
        ("fc00::1", "a private address"),
        ("fd12:3456::1", "a private address"),
        ("169.254.169.254", "a cloud metadata address"),
        ("169.254.1.1", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("febf::1", "a link-local address"),
        ("fec0::1", "a site-local address"),
        ("fd00:ec2::254", "a cloud metadata address"),
        ("168.63.129.16", "a cloud metadata address"),
        ("100.100.100.200", "a cloud metadata address"),
        ("192.0.0.192", "a cloud metadata address"),
        ("100.64.0.1", "a carrier-grade NAT address"),
        ("100.127.255.255", "a carrier-grade NAT address"),
        ("224.0.0.1", "a multicast address"),
        ("239.255.255.255", "a multicast address"),
        ("ff02::1", "a multicast address"),
        ("255.255.255.255", "the broadcast address"),
        ("240.0.0.1", "a reserved address"),
        ("192.0.2.1", "a reserved address"),
        ("198.18.0.1", "a reserved address"),
        ("198.51.100.1", "a reserved address"),
        ("203.0.113.1", "a reserved address"),
        ("2001:db8::1", "a reserved address"),
        ("2001::1", "a reserved address"),
        ("100::1", "a reserved address"),
        ("4000::1", "a reserved address"),
        // An address that carries an IPv4 address is checked as that.
        ("::ffff:127.0.0.1", "a loopback address"),
        ("::ffff:169.254.169.254", "a cloud metadata address"),
        ("::127.0.0.1", "a loopback address"),
        ("::ffff:0:10.0.0.1", "a private address"),
        ("64:ff9b::a9fe:a9fe", "a cloud metadata address"),
        ("64:ff9b:1::a9fe:a9fe", "a local NAT64 address"),
        ("2002:7f00:1::1", "a loopback address"),
        ("2002:a9fe:a9fe::", "a cloud metadata address"),
        ("2606:4700::5efe:10.0.0.1", "a private address"),
        ("fe80::5efe:127.0.0.1", "a loopback address"),
        // A carried IPv4 address can only add a refusal, and never allows an address.
        ("::140.82.121.4", "a reserved address"),
        ("::ffff:0:140.82.121.4", "a reserved address"),
        ("64:ff9b:1::5efe:140.82.121.4", "a local NAT64 address"),
    ] {
        assert_eq!(find_class(&policy, address), Some(expected), "{address}");
    }
}

#[test]
fn cluster_ranges_are_refused_in_every_form() {
    let cluster: Vec<Cidr> = ["20.1.0.0/16", "2a00:1234::/32", "9.9.9.9/32"]
        .map(|c| c.parse().unwrap())
        .to_vec();
    let policy = Policy {
        allow: Vec::new(),
        cluster,
    };
    for address in [
        "20.1.2.3",
        "::ffff:20.1.2.3",
        "64:ff9b::20.1.2.3",
        "2a00:1234:5::1",
        "9.9.9.9",
    ] {
        assert_eq!(
            find_class(&policy, address),
            Some("an address of the cluster"),
            "{address}"
        );
    }
    for address in ["20.2.0.0", "20.0.255.255", "2a00:1235::1", "9.9.9.8"] {
        assert_eq!(find_class(&policy, address), None, "{address}");
    }
    for bad in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/-1", ""] {
        assert!(bad.parse::<Cidr>().is_err(), "{bad}");
    }
    assert!(
        "0.0.0.0/0"
            .parse::<Cidr>()
            .unwrap()
            .contains("1.2.3.4".parse().unwrap())
    );
    assert!("::/0".parse::<Cidr>().unwrap().contains("1::".parse().unwrap()));
    assert!(!"::/0".parse::<Cidr>().unwrap().contains("1.2.3.4".parse().unwrap()));
}

#[test]
fn an_exception_is_one_scheme_host_and_port() {
    let allowed: Endpoint = "http://127.0.0.1:8080".parse().unwrap();
    let policy = Policy {
        allow: vec![allowed.clone()],
        cluster: Vec::new(),
    };
    let loopback = IpAddr::from([127, 0, 0, 1]);
    assert_eq!(policy.check(&allowed, loopback), Ok(()));
    for other in [
        "https://127.0.0.1:8080",
        "http://127.0.0.1:8081",
        "http://localhost:8080",
        "ssh://127.0.0.1:8080",
    ] {
        let denied = policy.check(&other.parse().unwrap(), loopback).unwrap_err().to_string();
        assert_eq!(
            denied,
            format!(
                "connection to {other} denied: 127.0.0.1 is a loopback address, which sources may not reach; an administrator allows it by starting the controllers with --allow-source {other}"
            )
        );
    }
    for (text, shown) in [
        ("https://GIT.example.com", "https://git.example.com:443"),
        ("ssh://git.example.com", "ssh://git.example.com:22"),
        ("http://[::1]:80", "http://[::1]:80"),
    ] {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
    }
    for bad in [
        "git.example.com",
        "ftp://a",
        "http://",
        "http://a:b",
        "http://a/b",
        "http://u@a",
        "http://a:0",
        "http://-a",
    ] {
        assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn nothing_is_connected_to_that_is_denied() {
    let bed = Bed::new().await;
    bed.repository.commit([("a", "b")], "first").await.unwrap();
    let port = bed.server.http_address().port();
    // The server listens there and counts every connection.
    for (host, class) in [
        ("127.0.0.1", "a loopback address"),
        ("localhost", "a loopback address"),
        ("127.1", "a loopback address"),
        ("0x7f000001", "a loopback address"),
        ("2130706433", "a loopback address"),
        ("0.0.0.0", "the unspecified address"),
        ("[::ffff:127.0.0.1]", "a loopback address"),
        ("[::1]", "a loopback address"),
        ("169.254.169.254", "a cloud metadata address"),
        ("10.96.0.1", "a private address"),
    ] {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{port}/app.git");
            let request = read_spec(json!({"url": url}), None).unwrap();
            let error = fetch(
                &request,
                &Policy::default(),
                &Limits::default(),
                &bed.store,
                &bed.account,
            )
            .await
            .unwrap_err();
            assert!(
                matches!(&error, FetchError::AddressDenied(denied) if denied.class == class),
                "{url}: {error}"
            );
            assert_eq!(
                (error.reason().as_str(), error.is_transient()),
                ("GitOperationFailed", false)
            );
        }
    }
    // An exception for an address does not allow a name of this address.
    let url = format!("http://localhost:{port}/app.git");
    let request = bed.request_spec(json!({"url": url, "ref": {"branch": "main"}}));
    let (error, message) = bed.refuse_request(&request).await;
    assert!(matches!(error, FetchError::AddressDenied(_)), "{message}");
    assert!(
        message.contains(&format!(
            "an administrator allows it by starting the controllers with --allow-source http://localhost:{port}"
        )),
        "{message}"
    );
    assert_eq!(bed.server.requests(), 0);

    let mut bed = bed;
    bed.policy.allow = vec![endpoint(&url)];
    bed.get_request(&request).await;
}

/// The blocks of the IANA special-purpose registry that are not globally reachable, each with its class. A carried public address changes nothing.
#[test]
fn special_blocks_are_refused_whatever_they_carry() {
    let blocks = [
        ("64:ff9b:1:0", "a local NAT64 address"),
        ("100:0:0:0", "a reserved address"),
        ("100:0:0:1", "a reserved address"),
        ("2001:0:1:2", "a reserved address"),
        ("2001:2:0:1", "a reserved address"),
        ("2001:10:0:1", "a reserved address"),
        ("2001:db8:1:2", "a reserved address"),
        ("3fff:fff:1:2", "a reserved address"),
        ("5f00:1:2:3", "a reserved address"),
        ("fc00:1:2:3", "a private address"),
        ("fdff:1:2:3", "a private address"),
        ("fe80:0:0:0", "a link-local address"),
        ("febf:1:2:3", "a link-local address"),
        ("fec0:1:2:3", "a site-local address"),
        ("ff02:1:2:3", "a multicast address"),
        ("4000:1:2:3", "a reserved address"),
    ];
    let policy = Policy::default();
    for (block, class_of) in blocks {
        for rest in ["0:0:0:1", "0:5efe:140.82.121.4", "200:5efe:140.82.121.4"] {
            assert_eq!(
                find_class(&policy, &format!("{block}:{rest}")),
                Some(class_of),
                "{block}:{rest}"
            );
        }
        assert!(
            find_class(&policy, &format!("{block}:0:5efe:10.0.0.1")).is_some(),
            "{block}"
        );
    }
    // Within a public address, the carried public address is allowed.
    assert_eq!(find_class(&policy, "2606:4700::5efe:140.82.121.4"), None);
}

#[tokio::test]
async fn denial_of_a_receiver_is_known_without_a_connection() {
    let denial = async |address: &str, proxy: Option<&str>, allow: &[&str]| {
        let policy = Policy {
            allow: allow.iter().map(|allowed| allowed.parse().unwrap()).collect(),
            cluster: Vec::new(),
        };
        let proxy = proxy.map(|address| [("address".to_owned(), address.as_bytes().to_vec())].into());
        let connection = ReceiverConnection { proxy, tls: None };
        find_denial(&connection, &Address::read(address).unwrap(), &Connector::Here(policy)).await
    };
    // No server listens at port 9 of this machine. A connection would fail in another way.
    let denied = denial("http://127.0.0.1:9/secret", None, &[]).await.unwrap();
    assert!(
        denied.message.ends_with("--allow-source http://127.0.0.1:9"),
        "{denied:?}"
    );
    assert!(
        denied.discreet.contains("a loopback address") && !denied.discreet.contains("127"),
        "{denied:?}"
    );
    assert_eq!(
        denial("http://127.0.0.1:9/secret", None, &["http://127.0.0.1:9"]).await,
        None
    );
    assert_eq!(denial("https://140.82.121.4/", None, &[]).await, None);
    // A name without an address may get one.
    assert_eq!(denial("https://nobody.invalid/", None, &[]).await, None);
    // The proxy has to be allowed, and the server behind it as far as its address is known here.
    let proxied = denial("https://nobody.invalid/", Some("http://127.0.0.1:9"), &[])
        .await
        .unwrap();
    assert!(proxied.message.contains("http://127.0.0.1:9 denied"), "{proxied:?}");
    let behind = denial(
        "http://169.254.169.254/",
        Some("http://127.0.0.1:9"),
        &["http://127.0.0.1:9"],
    )
    .await;
    assert!(behind.unwrap().message.contains("a cloud metadata address"));
}
