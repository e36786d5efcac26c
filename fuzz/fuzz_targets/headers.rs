//! Whatever stands in the headers, nothing panics, and a client that is behind trusted proxies
//! cannot move its address by anything that it writes itself.
#![no_main]

use std::net::IpAddr;

use arbitrary::Arbitrary;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use tower_throttle::{ClientIp, Decision, ProblemJson, RateLimited, Verdict, key::{BearerToken, KeyExtractor, Rejection}, respond::{Auto, Respond}};

#[derive(Arbitrary, Debug)]
struct Input {
    peer: IpAddr,
    /// What the client wrote, in lines.
    written: Vec<Vec<u8>>,
    /// What the proxies added to the last line, and whether in a line of their own.
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
    what_stands_left_of_the_client_changes_nothing(&input);
    answers_are_well_formed(&input);
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
        let found = found.expect("there is a peer");
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
        let _ = BearerToken::new().extract(&request);
    }
}

fn what_stands_left_of_the_client_changes_nothing(input: &Input) {
    let client = input.client.to_canonical();
    let trusted = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.octets()[0] == 0xfd,
    };
    if trusted(client) {
        return; // A proxy: what it tells is believed.
    }
    let (name, clients) = &settings()[usize::from(input.kind % 2)];
    let element = |address: IpAddr| match (*name, address) {
        ("forwarded", IpAddr::V6(v6)) => format!("for=\"[{v6}]:1\""),
        ("forwarded", v4) => format!("for={v4};proto=http"),
        (_, address) => address.to_string(),
    };
    let mut told = element(input.client);
    for last in input.proxies.iter().take(8) {
        told.push_str(", ");
        told.push_str(&element(IpAddr::from([10, 0, 0, *last])));
    }
    let mut lines = input.written.clone();
    match lines.last_mut() {
        Some(last) if !input.own_line => {
            last.extend_from_slice(b", ");
            last.extend_from_slice(told.as_bytes());
        }
        _ => lines.push(told.into_bytes()),
    }
    let mut headers = HeaderMap::new();
    for (at, line) in lines.iter().enumerate() {
        match HeaderValue::from_bytes(line) {
            Ok(value) => headers.append(HeaderName::from_static(name), value),
            Err(_) if at + 1 == lines.len() => return, // no server hands such a line on
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

fn answers_are_well_formed(input: &Input) {
    let denied = match input.retry_after {
        Some(ns) => RateLimited::new(Decision::new(Verdict::Deny, 1, 0, Some(ns), ns)),
        None => Rejection::new(http::StatusCode::BAD_REQUEST, input.message.clone()).into(),
    };
    let mut request = Request::new(());
    if let Ok(value) = HeaderValue::from_bytes(&input.content_type) {
        request.headers_mut().insert("content-type", value);
    }
    let answer: Result<Response<String>, ()> = Auto::with(ProblemJson).deny(&request, denied);
    let answer = answer.expect("an answer");
    if answer.status() == 200 {
        assert!(answer.headers().contains_key("grpc-status"));
        assert!(answer.body().is_empty());
        for value in answer.headers().values() {
            assert!(
                value
                    .as_bytes()
                    .iter()
                    .all(|byte| matches!(byte, b' '..=b'~'))
            );
        }
    } else {
        serde_json::from_str::<serde_json::Value>(answer.body()).expect("JSON");
    }
}
