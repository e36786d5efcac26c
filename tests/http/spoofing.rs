//! Forged addresses: headers set by the client.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use tower_throttle::{ClientIp, key::Networks};

const XFF: &str = "x-forwarded-for";

/// Cases: what is shown, the peer address, the header lines, and the expected client address.
///
/// With trusted proxies in `10.0.0.0/8` and `fd00::/8`.
const TRUSTING: &str = r"
no proxy | 203.0.113.9 |  | 203.0.113.9
a proxy | 10.0.0.1 | x-forwarded-for: 192.0.2.1 | 192.0.2.1
two proxies | 10.0.0.1 | x-forwarded-for: 192.0.2.1, 10.0.0.2 | 192.0.2.1
CVE-2025-59152 (litestar): the header of an untrusted peer is ignored | 203.0.113.9 | x-forwarded-for: 192.0.2.1 | 203.0.113.9
CVE-2026-27700 (hono), CVE-2020-28483 (gin): not the leftmost | 10.0.0.1 | x-forwarded-for: 6.6.6.6, 192.0.2.1 | 192.0.2.1
cpp-httplib 2503: a trusted address on the left has no effect | 10.0.0.1 | x-forwarded-for: 6.6.6.6, 10.0.0.9, 192.0.2.1, 10.0.0.2 | 192.0.2.1
axum-client-ip 32: all lines are one list | 10.0.0.1 | x-forwarded-for: 6.6.6.6 && x-forwarded-for: 192.0.2.1 && x-forwarded-for: 10.0.0.2 | 192.0.2.1
CVE-2020-35590, CVE-2020-13485: other headers are not read | 10.0.0.1 | x-real-ip: 6.6.6.6 && client-ip: 6.6.6.6 && forwarded: for=6.6.6.6 && x-forwarded-for: 192.0.2.1 | 192.0.2.1
an invalid element on the left is not read | 10.0.0.1 | x-forwarded-for: %$, unknown, 192.0.2.1 | 192.0.2.1
an invalid element ends the list at the proxy that forwarded it | 10.0.0.1 | x-forwarded-for: 6.6.6.6, unknown, 10.0.0.2 | 10.0.0.2
a single invalid element counts against the proxy | 10.0.0.1 | x-forwarded-for: unknown | 10.0.0.1
an empty element is invalid | 10.0.0.1 | x-forwarded-for: 6.6.6.6,  | 10.0.0.1
a list of only proxies is the furthest proxy | 10.0.0.1 | x-forwarded-for: 10.0.0.3, 10.0.0.2 | 10.0.0.3
without the header, the proxy is the client | 10.0.0.1 |  | 10.0.0.1
with ports | 10.0.0.1 | x-forwarded-for: 192.0.2.1:4711, 10.0.0.2:80 | 192.0.2.1
IPv6 with and without brackets | fd00::1 | x-forwarded-for: 2001:db8::1, [fd00::2]:80, fd00::3 | 2001:db8::1
mapped peers and elements are IPv4 | ::ffff:10.0.0.1 | x-forwarded-for: ::ffff:192.0.2.1, ::ffff:10.0.0.2 | 192.0.2.1
translated peers and elements are IPv4 | 64:ff9b::10.0.0.1 | x-forwarded-for: 64:ff9b::192.0.2.1, 64:ff9b::10.0.0.2 | 192.0.2.1
the loopback address of IPv6 is not an IPv4 address | ::1 | x-forwarded-for: 192.0.2.1 | ::1
without a peer address the header is ignored | - | x-forwarded-for: 192.0.2.1 | -
";

const FORWARDED: &str = r#"
a proxy | 10.0.0.1 | forwarded: for=192.0.2.1;proto=https | 192.0.2.1
IPv6 | 10.0.0.1 | forwarded: for="[2001:db8::1]:4711", for=10.0.0.2 | 2001:db8::1
a quote that the client did not close | 10.0.0.1 | forwarded: for="6.6.6.6, for=192.0.2.1 | 192.0.2.1
an unclosed quote in a line of its own | 10.0.0.1 | forwarded: for="\ && forwarded: for=192.0.2.1, for=10.0.0.2 | 192.0.2.1
a comma in a quoted host | 10.0.0.1 | forwarded: for=192.0.2.1;host="a,for=6.6.6.6" | 192.0.2.1
a comma before an escaped quote | 10.0.0.1 | forwarded: for=192.0.2.1;host="a,b\"" | 192.0.2.1
a quote after an escaped backslash | 10.0.0.1 | forwarded: for=192.0.2.1;host="a,b\\" | 192.0.2.1
a `for` in a quoted host | 10.0.0.1 | forwarded: host="a;for=6.6.6.6";for=192.0.2.1 | 192.0.2.1
a `for` after an escaped quote | 10.0.0.1 | forwarded: host="a\";for=6.6.6.6";for=192.0.2.1 | 192.0.2.1
a backslash outside of quotes | 10.0.0.1 | forwarded: host=\";for=6.6.6.6 | 10.0.0.1
another case, after other pairs | 10.0.0.1 | forwarded: proto=http; For=192.0.2.1 | 192.0.2.1
an element with two `for` is invalid | 10.0.0.1 | forwarded: for=6.6.6.6;for=192.0.2.1 | 10.0.0.1
an obfuscated client counts against the proxy | 10.0.0.1 | forwarded: for=6.6.6.6, for=_hidden, for=10.0.0.2 | 10.0.0.2
another header | 10.0.0.1 | x-forwarded-for: 6.6.6.6 | 10.0.0.1
"#;

const SINGLE: &str = r"
a proxy | 10.0.0.1 | x-real-ip: 192.0.2.1 | 192.0.2.1
an untrusted peer | 203.0.113.9 | x-real-ip: 6.6.6.6 | 203.0.113.9
twice | 10.0.0.1 | x-real-ip: 6.6.6.6 && x-real-ip: 192.0.2.1 | 10.0.0.1
a list | 10.0.0.1 | x-real-ip: 6.6.6.6, 192.0.2.1 | 10.0.0.1
not an address | 10.0.0.1 | x-real-ip: localhost | 10.0.0.1
missing | 10.0.0.1 |  | 10.0.0.1
";

/// With two hops, the client is the peer of the second proxy from the right.
const TWO_HOPS: &str = r"
two proxies | 10.0.0.1 | x-forwarded-for: 192.0.2.1, 10.0.0.2 | 192.0.2.1
forged elements on the left | 10.0.0.1 | x-forwarded-for: 6.6.6.6, 7.7.7.7 && x-forwarded-for: 192.0.2.1, 10.0.0.2 | 192.0.2.1
fewer elements than hops | 10.0.0.1 | x-forwarded-for: 192.0.2.1 | 10.0.0.1
an invalid element in the position of the client | 10.0.0.1 | x-forwarded-for: 6.6.6.6, x, 10.0.0.2 | 10.0.0.1
over a Unix socket | - | x-forwarded-for: 192.0.2.1, 10.0.0.2 | 192.0.2.1
";

/// The peer address, the headers and the client address of each case.
fn cases(
    table: &'static str,
) -> impl Iterator<Item = (&'static str, Option<IpAddr>, HeaderMap, Option<IpAddr>)> {
    table.lines().skip(1).map(|row| {
        let cells: Vec<_> = row.split(" | ").collect();
        let address = |cell: &str| (cell != "-").then(|| cell.parse().unwrap());
        let mut headers = HeaderMap::new();
        for line in cells[2].split(" && ").filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap();
            let value = HeaderValue::from_static(value);
            headers.append(HeaderName::from_static(name), value);
        }
        (cells[0], address(cells[1]), headers, address(cells[3]))
    })
}

const TRUSTED: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];

/// Shows promise 79.
#[test]
fn clients_cannot_choose_their_address() {
    let behind = ClientIp::x_forwarded_for();
    for (clients, table) in [
        (behind.clone().trusting(TRUSTED), TRUSTING),
        (ClientIp::forwarded().trusting(TRUSTED), FORWARDED),
        (ClientIp::header("x-real-ip").trusting(TRUSTED), SINGLE),
        (behind.hops(2), TWO_HOPS),
    ] {
        for (what, peer, headers, client) in cases(table) {
            assert_eq!(clients.address(peer, &headers), client, "{what}");
        }
    }
}

/// Shows promise 79.
#[test]
fn the_peer_address_ignores_all_headers() {
    let clients = ClientIp::peer();
    let find = |peer, headers: &_| clients.address(peer, headers);
    for (what, peer, headers, _) in [TRUSTING, FORWARDED, SINGLE].into_iter().flat_map(cases) {
        assert_eq!(
            find(peer, &headers),
            find(peer, &HeaderMap::new()),
            "{what}"
        );
    }
}

/// Shows promise 79.
#[test]
fn cve_2026_90711_and_92395_a_mapped_network_does_not_contain_all_of_ipv4() {
    let network = "::ffff:10.0.0.0/8";
    let error = network.parse::<Networks>().unwrap_err();
    assert!(error.to_string().contains("97 or more"));
    let trusting = || ClientIp::x_forwarded_for().trusting([network]);
    assert!(std::panic::catch_unwind(trusting).is_err());

    let clients = ClientIp::x_forwarded_for().trusting(["::ffff:10.0.0.0/104"]);
    let mut headers = HeaderMap::new();
    headers.insert(XFF, HeaderValue::from_static("6.6.6.6"));
    let untrusted = "203.0.113.9".parse().ok();
    assert_eq!(clients.address(untrusted, &headers), untrusted);
}

/// Shows promise 79.
#[test]
fn a_network_of_translated_addresses_trusts_the_proxy_that_it_names() {
    let clients = ClientIp::x_forwarded_for().trusting(["64:ff9b::10.0.0.0/104"]);
    let mut headers = HeaderMap::new();
    headers.insert(XFF, HeaderValue::from_static("192.0.2.1"));
    let address = |peer: &str| clients.address(peer.parse().ok(), &headers);
    for trusted in ["64:ff9b::10.0.0.1", "10.0.0.1", "::ffff:10.0.0.1"] {
        assert_eq!(address(trusted), "192.0.2.1".parse().ok(), "{trusted}");
    }
    assert_eq!(address("64:ff9b::11.0.0.1"), "11.0.0.1".parse().ok());
}

/// Shows promise 79.
#[test]
fn cve_2026_30827_mapped_clients_are_distinct() {
    let clients = ClientIp::peer();
    let client = |text: &str| clients.key(text.parse().unwrap()).to_string();
    assert_eq!(client("::ffff:192.0.2.1"), "192.0.2.1");
    assert_ne!(client("::ffff:192.0.2.1"), client("::ffff:192.0.2.2"));
    assert_eq!(client("64:ff9b::192.0.2.1"), "192.0.2.1");
    assert_eq!(client("2001:db8::192.0.2.1"), "2001:db8::/64");
    assert_eq!(client("::1"), "::/64");
}

/// Shows promise 79.
#[test]
fn actix_governor_47_the_ipv6_network_of_a_customer_is_one_client() {
    let clients = ClientIp::peer();
    let client = |clients: &ClientIp, text: &str| clients.key(text.parse().unwrap());
    let found = client(&clients, "2001:db8:0:1::1");
    assert_eq!(found, client(&clients, "2001:db8:0:1:ffff::9"));
    assert_ne!(
        client(&clients, "2001:db8:0:1::1"),
        client(&clients, "2001:db8:0:2::1")
    );
    let wider = ClientIp::peer().v6_prefix(56);
    let found = client(&wider, "2001:db8:0:1::1");
    assert_eq!(found, client(&wider, "2001:db8:0:2::1"));
    assert_ne!(
        client(&wider, "2001:db8:0:100::1"),
        client(&wider, "2001:db8:0:2::1")
    );
    let exact = ClientIp::peer().v6_prefix(128);
    assert_ne!(client(&exact, "2001:db8::1"), client(&exact, "2001:db8::2"));
}
