//! Response headers that state the limit.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime},
};

use http::{HeaderValue, Request, Response, StatusCode};
use sfv::{BareItem, ListEntry, Parser};
use tower_throttle::{
    Decision, Global, Headers, ProblemJson, Quota, RateLimitLayer, RateLimited, Verdict,
    key::{Extracted, Rejection},
    respond::{Grpc, Http, Respond, Standard},
};

use crate::support::{Says, ask, lines};

fn admitted() -> Decision {
    Decision::new(Verdict::Admit, 100, 42, None, 29_000_000_001)
}

fn quotas() -> Vec<Quota> {
    vec![Quota::per_minute(100), Quota::per_day(1000)]
}

/// The header lines of a response to a request with this decision.
async fn header_lines(form: Headers, decision: Decision, quotas: Vec<Quota>) -> Vec<String> {
    let layer = RateLimitLayer::new(Global, Says(decision, quotas))
        .name("api")
        .headers(form);
    let response = ask(&layer, Request::new(())).await;
    let mut stated = Vec::new();
    for (name, value) in response.headers() {
        stated.push(format!("{name}: {}", value.to_str().unwrap()));
    }
    stated.sort();
    stated
}

/// Shows promise 75.
#[tokio::test]
async fn every_form_follows_its_draft() {
    for (form, expected) in [
        (
            Headers::Draft11,
            &[
                r#"ratelimit-policy: "api-1";q=100;w=60, "api-2";q=1000;w=86400"#,
                r#"ratelimit: "api-1";r=42;t=30"#,
            ][..],
        ),
        (
            Headers::Draft6,
            &[
                "ratelimit-limit: 100",
                "ratelimit-remaining: 42",
                "ratelimit-reset: 30",
            ],
        ),
        (
            Headers::XRateLimitDelta,
            &[
                "x-ratelimit-limit: 100",
                "x-ratelimit-remaining: 42",
                "x-ratelimit-reset: 30",
            ],
        ),
    ] {
        let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        expected.sort();
        assert_eq!(
            header_lines(form, admitted(), quotas()).await,
            expected,
            "{form:?}"
        );
    }
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the header contains a wall-clock time"
)]
async fn the_epoch_form_states_a_unix_time() {
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let before = now();
    let stated = header_lines(Headers::XRateLimitEpoch, admitted(), quotas()).await;
    let reset: u64 = stated[2]
        .strip_prefix("x-ratelimit-reset: ")
        .unwrap()
        .parse()
        .unwrap();
    assert!((before + 30..=now() + 30).contains(&reset));
}

/// Shows promise 75.
#[tokio::test]
async fn large_values_are_clamped_to_the_largest_field_integer() {
    let mut huge = Decision::new(Verdict::Admit, u64::MAX >> 1, u64::MAX, None, u64::MAX);
    huge.reset_after = Duration::MAX;
    let quota = Quota::per((1 << 53) - 1, Duration::from_secs(1 << 28));
    let stated = header_lines(Headers::Draft11, huge, vec![quota]).await;
    let found = &stated[0];
    assert_eq!(
        found,
        r#"ratelimit-policy: "api";q=999999999999999;w=268435456"#
    );
    let found = &stated[1];
    assert_eq!(
        found,
        r#"ratelimit: "api";r=999999999999999;t=999999999999999"#
    );
}

#[tokio::test]
async fn periods_below_a_second_are_omitted_and_others_rounded_up() {
    let policy = async |quota| {
        let stated = header_lines(Headers::Draft11, admitted(), vec![quota]).await;
        stated[0].split_once("q=").unwrap().1.to_owned()
    };
    assert_eq!(policy(Quota::per(5, Duration::from_millis(100))).await, "5");
    let longer = Quota::per(5, Duration::from_millis(1_001));
    assert_eq!(policy(longer).await, "5;w=2");
    assert_eq!(policy(Quota::per_second(10).burst(50)).await, "50;w=5");
    assert_eq!(policy(Quota::per_second(10).burst(5)).await, "5");
    // A client never hears of no time.
    let stated = header_lines(Headers::Draft11, remains(5, 5, 0), vec![Quota::per_day(5)]).await;
    assert_eq!(stated[1], "ratelimit: \"api\";r=5;t=1");
}

/// Parses a line by RFC 9651. Returns the names and their integer parameters.
fn parsed(line: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: sfv::List = Parser::new(line).parse().unwrap();
    let items = list.into_iter().map(|entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(_) => panic!("unexpected inner list"),
    });
    items
        .map(|item| {
            let BareItem::String(name) = item.bare_item else {
                panic!("not a string")
            };
            let parameters = item.params.into_iter().map(|(key, value)| {
                let BareItem::Integer(number) = value else {
                    panic!("not an integer")
                };
                (key.to_string(), i64::from(number))
            });
            (name.as_str().to_owned(), parameters.collect())
        })
        .collect()
}

/// Shows promise 75.
#[tokio::test]
async fn an_independent_parser_reads_the_same_values() {
    for name in [
        "api",
        r#"say "hi""#,
        r"back\slash",
        "a, b;c=d",
        " ~ ",
        "x=1",
    ] {
        let layer = RateLimitLayer::new(Global, Says(admitted(), vec![Quota::per_minute(100)]))
            .name(name)
            .headers(Headers::Draft11);
        let response = ask(&layer, Request::new(())).await;
        let parameters = |figures: [(&str, i64); 2]| {
            figures
                .map(|(key, figure)| (key.to_owned(), figure))
                .to_vec()
        };
        let found = parsed(lines(&response, "ratelimit")[0]);
        assert_eq!(
            found,
            [(name.to_owned(), parameters([("r", 42), ("t", 30)]))]
        );
        let found = parsed(lines(&response, "ratelimit-policy")[0]);
        assert_eq!(
            found,
            [(name.to_owned(), parameters([("q", 100), ("w", 60)]))]
        );
    }
}

/// Shows promise 75.
#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn a_response_after_a_wait_has_the_figures_at_its_end() {
    let bucket = tower_throttle::LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(Global, bucket)
        .queue(20)
        .headers(Headers::Draft11);
    let state_header = async || {
        let response = ask(&layer, Request::new(())).await;
        lines(&response, "ratelimit")[0].to_owned()
    };
    let headers: [_; 3] = tokio::join!(state_header(), state_header(), state_header()).into();
    // When the last request arrives, two are ahead of it. Those that wait hold nothing.
    assert!(headers[2].ends_with(";t=1"), "{headers:?}");
    assert!(headers[1].ends_with(";t=1"), "{headers:?}");
}

/// Shows promise 75.
#[tokio::test]
async fn an_admitted_response_has_no_headers_by_default() {
    let layer = RateLimitLayer::new(Global, Says(admitted(), quotas()));
    assert!(ask(&layer, Request::new(())).await.headers().is_empty());
}

/// What a response states that passes two layers, with the figures of the inner and of the outer one.
async fn stated(inner: Decision, outer: Decision, tell: Headers) -> Vec<String> {
    let quota = |limit| vec![Quota::per_minute(limit)];
    let layer = |decision: Decision| {
        RateLimitLayer::new(Global, Says(decision, quota(decision.limit))).headers(tell)
    };
    let stack = tower::ServiceBuilder::new()
        .layer(layer(outer))
        .layer(layer(inner));
    let response = ask(&stack, Request::new(())).await;
    let lines = response.headers().iter();
    let mut stated: Vec<_> = lines
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .filter(|line| line.contains("ratelimit"))
        .collect();
    stated.sort();
    stated
}

/// A limit of `limit` of which this much remains, all of it again in so many seconds.
fn remains(limit: u64, remaining: u64, seconds: u64) -> Decision {
    Decision::new(
        Verdict::Admit,
        limit,
        remaining,
        None,
        seconds * 1_000_000_000,
    )
}

/// Shows promise 75.
#[tokio::test]
async fn of_two_limits_the_stricter_one_is_stated_where_there_is_room_for_one() {
    let (few, many) = (remains(5, 2, 7), remains(100, 42, 30));
    let later = remains(50, 2, 60);
    let mut denied = Decision::new(Verdict::Deny, 100, 42, Some(3_000_000_000), 0);
    denied.reset_after = Duration::from_secs(9);
    for (inner, outer, [limit, remaining, reset]) in [
        (few, many, [5, 2, 7]),
        (many, few, [5, 2, 7]),
        (few, later, [50, 2, 60]),
        (later, few, [50, 2, 60]),
        // The other one is not what the request has to wait for.
        (denied, few, [100, 42, 3]),
    ] {
        let prefixed = |prefix: &str| {
            vec![
                format!("{prefix}ratelimit-limit: {limit}"),
                format!("{prefix}ratelimit-remaining: {remaining}"),
                format!("{prefix}ratelimit-reset: {reset}"),
            ]
        };
        let found = stated(inner, outer, Headers::XRateLimitDelta).await;
        assert_eq!(found, prefixed("x-"));
        let draft6 = stated(inner, outer, Headers::Draft6).await;
        assert_eq!(draft6, prefixed(""));
        assert_eq!(stated(inner, outer, Headers::Draft11).await.len(), 4);
    }
}

/// A responder with the text of a rejection as the program, or a client of it, wrote it.
#[derive(Clone)]
struct Verbatim;

impl Respond<Request<()>, Response<String>, Infallible> for Verbatim {
    type Protocol = Http;

    fn deny(&self, _: Request<()>, denied: RateLimited) -> Result<Response<String>, Infallible> {
        let text = denied.rejection().map(ToString::to_string);
        let value = HeaderValue::from_bytes(text.unwrap_or_default().as_bytes());
        let mut response = Response::new(String::new());
        if let Ok(value) = value {
            response.headers_mut().insert("x-ratelimit-error", value);
        }
        Ok(response)
    }
}

/// What of `text`, which a program took from a request into its rejection, is wrong in a response.
async fn fault_of<R>(text: &str, responder: R) -> Option<String>
where
    R: Respond<Request<()>, Response<String>, Infallible, Protocol = Http> + Clone,
{
    let told = text.to_owned();
    let key = move |_: &Request<()>| -> Extracted<u64> {
        Extracted::Reject(Rejection::new(StatusCode::BAD_REQUEST, told.clone()))
    };
    let layer = RateLimitLayer::new(key, Says(admitted(), quotas())).respond(responder);
    let response = ask(&layer, Request::new(())).await;
    for (name, value) in response.headers() {
        let mut bytes = value.as_bytes().iter();
        let is_visible = bytes.all(|byte| (b' '..=b'~').contains(byte));
        let known = [
            "cache-control",
            "content-type",
            "grpc-message",
            "grpc-status",
            "x-ratelimit-error",
        ];
        if !known.contains(&name.as_str()) || !is_visible || value.len() > 3 * 1_024 {
            return Some(format!("{name}: {value:?}"));
        }
    }
    (response.headers().is_empty()).then(|| "nothing is said".to_owned())
}

/// Shows promise 76.
#[tokio::test]
async fn no_text_of_a_client_reaches_a_header_as_it_is() {
    let mut texts: Vec<String> = (0..=255_u8)
        .map(|byte| format!("a{}b", byte as char))
        .collect();
    texts.push("x\r\nset-cookie: evil=1\r\n\r\n<html>".to_owned());
    texts.push("\u{202e}\u{feff}\u{1f600}".repeat(500));
    texts.push("x".repeat(100_000));
    for text in &texts {
        let start: String = text.chars().take(20).collect();
        assert_eq!(fault_of(text, Standard).await, None, "{start:?}");
        assert_eq!(fault_of(text, ProblemJson).await, None, "{start:?}");
        assert_eq!(fault_of(text, Grpc).await, None, "{start:?}");
    }
    // Planted bug: the text as it is.
    let mut seen = 0;
    for text in &texts {
        seen += u32::from(fault_of(text, Verbatim).await.is_some());
    }
    assert!(seen > 100, "{seen} of {}", texts.len());
}
