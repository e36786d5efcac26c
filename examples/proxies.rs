//! Who the client is behind proxies, and over IPv6: `cargo run --example proxies`
//!
//! A table of requests, and the client that each setting finds in it.

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
    // The end of the connection, and X-Forwarded-For.
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
        println!("from {peer}, x-forwarded-for: {forwarded}");
        let peer: IpAddr = peer.parse().expect("an address");
        let mut headers = HeaderMap::new();
        if !forwarded.is_empty() {
            headers.insert("x-forwarded-for", HeaderValue::from_static(forwarded));
        }
        for (name, clients) in &settings {
            let address = clients
                .address(Some(peer), &headers)
                .expect("there is a peer");
            let client = clients.client(address);
            println!("    {name:<22}{client}");
            found.push(client.to_string());
        }
    }
    // What a stranger writes is believed by nobody who names the proxies.
    assert_eq!(found[3..5], ["192.0.2.7", "192.0.2.7"]);
    assert_eq!(found[13], "192.0.2.7");
    assert_eq!(found[16], "2001:db8:1:2::/64");
    assert_eq!(found[19], "192.0.2.7");
}
