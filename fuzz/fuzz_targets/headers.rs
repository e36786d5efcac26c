//! No header causes a panic, and a client behind trusted proxies cannot change its address with the
//! headers that it sends.
//!
//! Shows promises 75, 76, 79.
#![no_main]

use std::net::IpAddr;

use arbitrary::Arbitrary;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use tower_throttle::{
    ClientIp, Decision, HeaderKey, ProblemJson, RateLimited, Verdict,
    key::{KeyExtractor, Rejection},
    respond::Respond,
};

#[derive(Arbitrary, Debug)]
struct Input {
    peer: IpAddr,
    /// The header lines that the client sent.
    written: Vec<Vec<u8>>,
    /// What the proxies append to the last line, or in a line of their own if `own_line`.
    client: IpAddr,
    proxies: Vec<u8>,
    own_line: bool,
    kind: u8,
    content_type: Vec<u8>,
    message: String,
    retry_after: Option<u64>,
}

fuzz_target!(|input: Input| {
    nothing_panics(&input);
    elements_left_of_the_client_change_nothing(&input);
    responses_are_well_formed(&input);
});

fn settings() -> [(&'static str, ClientIp); 6] {
    let trusted = ["10.0.0.0/8", "fd00::/8"];
    [
        (
            "x-forwarded-for",
            ClientIp::x_forwarded_for().trusting(trusted),
        ),
        ("forwarded", ClientIp::forwarded().trusting(trusted)),
        ("x-real-ip", ClientIp::header("x-real-ip").trusting(trusted)),
        ("x-forwarded-for", ClientIp::x_forwarded_for().hops(2)),
        ("forwarded", ClientIp::forwarded().hops(1)),
        ("x-real-ip", ClientIp::header("x-real-ip").hops(1)),
    ]
}

fn nothing_panics(input: &Input) {
    for (name, clients) in settings() {
        let mut headers = HeaderMap::new();
        for line in &input.written {
            if let Ok(value) = HeaderValue::from_bytes(line) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        let found = clients.address(Some(input.peer), &headers);
        let found = found.expect("a peer");
        assert_eq!(found, found.to_canonical());
        let _ = clients.key(found).to_string();
        let mut request = Request::new(());
        *request.headers_mut() = headers;
        if let Some(line) = input.written.first() {
            if let Ok(value) = HeaderValue::from_bytes(line) {
                request.headers_mut().insert("authorization", value);
            }
        }
        let _ = clients.extract(&request);
        let _ = HeaderKey::bearer().extract(&request);
    }
}

fn elements_left_of_the_client_change_nothing(input: &Input) {
    let client = input.client.to_canonical();
    let trusted = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.octets()[0] == 0xfd,
    };
    if trusted(client) {
        return; // A trusted proxy: its elements count.
    }
    let (name, clients) = &settings()[usize::from(input.kind % 2)];
    let element = |address: IpAddr| match (*name, address) {
        ("forwarded", IpAddr::V6(v6)) => format!("for=\"[{v6}]:1\""),
        ("forwarded", v4) => format!("for={v4};proto=http"),
        (_, address) => address.to_string(),
    };
    let mut list = element(input.client);
    for last in input.proxies.iter().take(8) {
        list.push_str(", ");
        list.push_str(&element(IpAddr::from([10, 0, 0, *last])));
    }
    let mut lines = input.written.clone();
    match lines.last_mut() {
        Some(last) if !input.own_line => {
            last.extend_from_slice(b", ");
            last.extend_from_slice(list.as_bytes());
        }
        _ => lines.push(list.into_bytes()),
    }
    let mut headers = HeaderMap::new();
    for (at, line) in lines.iter().enumerate() {
        match HeaderValue::from_bytes(line) {
            Ok(value) => headers.append(HeaderName::from_static(name), value),
            Err(_) if at + 1 == lines.len() => return, // No server accepts such a line.
            Err(_) => continue,
        };
    }
    let proxy = Some(IpAddr::from([10, 0, 0, 1]));
    assert_eq!(
        clients.address(proxy, &headers),
        Some(client),
        "{headers:?}"
    );
}

fn responses_are_well_formed(input: &Input) {
    let denied = match input.retry_after {
        Some(ns) => RateLimited::new(Decision::new(Verdict::Deny, 1, 0, Some(ns), ns)),
        None => Rejection::new(http::StatusCode::BAD_REQUEST, input.message.clone()).into(),
    };
    let mut request = Request::new(());
    if let Ok(value) = HeaderValue::from_bytes(&input.content_type) {
        request.headers_mut().insert("content-type", value);
    }
    let response: Result<Response<String>, ()> = ProblemJson.deny(request, denied);
    let response = response.expect("an response");
    if response.status() == 200 {
        assert!(response.headers().contains_key("grpc-status"));
        assert!(response.body().is_empty());
        for value in response.headers().values() {
            assert!(
                value
                    .as_bytes()
                    .iter()
                    .all(|byte| matches!(byte, b' '..=b'~'))
            );
        }
    } else {
        serde_json::from_str::<serde_json::Value>(response.body()).expect("JSON");
    }
}
