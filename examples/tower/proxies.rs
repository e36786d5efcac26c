//! Which client address is used behind proxies and over IPv6: `cargo run --example proxies`
//!
//! Prints, for some requests, the client that each setting finds.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use tower_throttle::ClientIp;

fn main() {
    let settings = [
        ("no proxy", ClientIp::peer()),
        (
            "trusting 10.0.0.0/8",
            ClientIp::x_forwarded_for().trusting(["10.0.0.0/8"]),
        ),
        ("two hops", ClientIp::x_forwarded_for().hops(2)),
    ];
    // The peer address, and the value of `X-Forwarded-For`.
    let requests = [
        ("192.0.2.7", ""),
        ("192.0.2.7", "6.6.6.6"),
        ("10.0.0.1", "192.0.2.7"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.7"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.7, 10.0.0.2"),
        ("10.0.0.1", "2001:db8:1:2:3:4:5:6, 10.0.0.2"),
        ("::ffff:10.0.0.1", "::ffff:192.0.2.7, 10.0.0.2:443"),
    ];
    let mut found = Vec::new();
    for (peer, forwarded) in requests {
        println!("peer {peer}, x-forwarded-for: {forwarded}");
        let peer: IpAddr = peer.parse().expect("an IP address");
        let mut headers = HeaderMap::new();
        if !forwarded.is_empty() {
            headers.insert("x-forwarded-for", HeaderValue::from_static(forwarded));
        }
        for (name, extractor) in &settings {
            let address = extractor
                .address(Some(peer), &headers)
                .expect("the peer address is known");
            let client = extractor.key(address);
            println!("    {name:<22}{client}");
            found.push(client.to_string());
        }
    }
    // A forged header (6.6.6.6) has no effect if the proxies are named.
    assert_eq!(found[3..5], ["192.0.2.7", "192.0.2.7"]);
    assert_eq!(found[13], "192.0.2.7");
    // IPv6 clients are counted by their /64 network.
    assert_eq!(found[16], "2001:db8:1:2::/64");
    assert_eq!(found[19], "192.0.2.7");
}
