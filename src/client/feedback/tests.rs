use http::{HeaderName, HeaderValue};

use super::*;

/// A `Date` of 1,000,000,000 seconds plus 7 after 1970.
const DATE: &str = "date: Sun, 09 Sep 2001 01:46:47 GMT";

/// What a response with these header lines says, which are separated by ` && `.
fn read(status: u16, lines: &str) -> Feedback {
    let mut headers = HeaderMap::new();
    for line in lines
        .split(" && ")
        .filter(|line| !line.is_empty())
        .chain([DATE])
    {
        let (name, value) = line.split_once(": ").unwrap();
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    Feedback::read(StatusCode::from_u16(status).unwrap(), &headers)
}

/// Header lines, and what is read: the windows, each as what remains, the seconds until its reset, and its limit.
/// `X(..)` stands for the headers of the form `x-ratelimit` with this reset.
const FORMS: &str = r#"
ratelimit-policy: "search";q=10;w=10 && ratelimit: "search";r=9;t=1 => 9 1 10
ratelimit-policy: "a, b;q=3\"";q=10;w=10, "daily"; q=1000; w=86400; pk=:aGE=: && ratelimit: "a, b;q=3\"";r=9;t=1 && ratelimit: "daily"; r=0; t=86400 => 9 1 10, 0 86400 1000
ratelimit: default;r=9;t=1 => 9 1 -
ratelimit-policy: "c";q=10;qu="concurrent-requests", "a";q=5;w=1 && ratelimit: "c";r=0, "a";r=4;t=1 => 4 1 5
ratelimit-policy: 10;w=10 && ratelimit: limit=10, remaining=9, reset=1 => 9 1 10
ratelimit-policy: 10;w=10 && ratelimit-limit: 10 && ratelimit-remaining: 9 && ratelimit-reset: 1 => 9 1 10
ratelimit-limit: 10, 10;w=10, 100;w=60 && ratelimit-remaining: 9 && ratelimit-reset: 1 => 9 1 10
X(30) => 9 30 10
X(0.2) => 9 1 10
X(1000000037) => 9 30 10
X(1000000036500) => 9 30 10
X(1000000007) =>
X(1000000001) =>
X(0) =>
X(soon) =>
X(-5) =>
X(18446744073709551615) => 9 18446743073709545 10
X(18446744073709551616) => 9 18446743073709545 10
ratelimit: "a";r=-1;t=1, "b";r=;t=1, "c";r=1;t=, ;;; =>
ratelimit: "unterminated;r=1;t=1 && retry-after: 5 =>
"#;

/// Shows promise 310.
#[test]
fn every_form_of_the_headers_is_read() {
    for row in FORMS.lines().skip(1) {
        let (lines, expected) = row.split_once(" =>").unwrap();
        let x = "x-ratelimit-limit: 10 && x-ratelimit-remaining: 9 && x-ratelimit-reset: ";
        let lines = lines.replace("X(", x).replace(')', "");
        let read = read(200, &lines);
        let windows = read.windows.iter().map(|window| {
            let limit = window
                .limit
                .map_or_else(|| "-".to_owned(), |limit| limit.to_string());
            format!(" {} {} {limit}", window.remaining, window.reset.as_secs())
        });
        assert_eq!(windows.collect::<Vec<_>>().join(","), expected, "{row}");
        assert!(!read.is_denied);
    }
}

/// What express-rate-limit 8 sends with `limit: 3, windowMs: 60_000`: the first response and a denial.
///
/// Shows promise 310.
#[test]
fn the_headers_of_express_rate_limit_are_read() {
    let recorded = include_str!("express_rate_limit.txt");
    let mut count = 0;
    for response in recorded
        .split("\n\n")
        .filter(|text| text.starts_with("HTTP"))
    {
        let mut lines = response.lines();
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let feedback = Feedback::read(StatusCode::from_u16(status).unwrap(), &headers);
        assert_eq!(feedback.is_denied, status == 429, "{response}");
        let remaining = if status == 429 { 0 } else { 2 };
        for window in &feedback.windows {
            assert_eq!((window.remaining, window.limit), (remaining, Some(3)));
            assert!((1..=61).contains(&window.reset.as_secs()), "{response}");
        }
        assert_eq!(feedback.windows.len(), 1, "{response}");
        assert_eq!(feedback.wait.is_some(), status == 429, "{response}");
        count += 1;
    }
    assert_eq!(count, 8, "four forms, each admitted and denied");
}

/// Shows promise 310.
#[test]
fn both_forms_of_retry_after_are_read() {
    for (text, expected) in [
        ("120", Some(120)),
        (" 7 ", Some(7)),
        ("0", Some(0)),
        ("1.5", Some(2)),
        ("Sun, 09 Sep 2001 01:46:57 GMT", Some(10)),
        ("Sunday, 09-Sep-01 01:46:57 GMT", Some(10)),
        ("Sun Sep  9 01:46:57 2001", Some(10)),
        // In the past.
        ("Sun, 09 Sep 2001 01:46:40 GMT", Some(0)),
        ("31536000", Some(31_536_000)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", Some(u64::MAX)),
        ("-1", None),
        ("1e3", None),
        ("soon", None),
        ("", None),
        ("\u{a0}", None),
    ] {
        let expected = expected.map(Duration::from_secs);
        let denied = read(429, &format!("retry-after: {text}"));
        assert_eq!(
            (denied.is_denied, denied.wait),
            (true, expected),
            "{text:?}"
        );
        let unavailable = read(503, &format!("retry-after: {text}"));
        assert_eq!(unavailable.is_denied, expected.is_some(), "{text:?}");
        assert!(!read(202, &format!("retry-after: {text}")).is_denied);
    }
    assert!(!read(503, "").is_denied);
    let silent = read(429, "x-ratelimit-remaining: 0 && x-ratelimit-reset: 9");
    // From what remains.
    assert_eq!(silent.wait, Some(Duration::from_secs(9)));
}

/// Shows promise 310.
#[test]
fn a_grpc_status_is_a_denial_if_it_says_when_to_retry() {
    let millis = |ms| Some(Duration::from_millis(ms));
    for (lines, expected) in [
        ("grpc-status: 8", (false, false, None)),
        (
            "grpc-status: 0 && grpc-retry-pushback-ms: 5",
            (false, false, None),
        ),
        (
            "grpc-status: 8 && grpc-retry-pushback-ms: 250",
            (true, false, millis(250)),
        ),
        (
            "grpc-status: 14 && grpc-retry-pushback-ms: -1",
            (false, true, None),
        ),
        (
            "grpc-status: 8 && grpc-retry-pushback-ms: soon",
            (false, true, None),
        ),
        (
            "grpc-status: 8 && retry-after: 2",
            (true, false, millis(2_000)),
        ),
        // The longest wait of several.
        (
            "grpc-status: 8 && retry-after: 2 && grpc-retry-pushback-ms: 250",
            (true, false, millis(2_000)),
        ),
        (
            "grpc-status: 8 && retry-after: 2 && grpc-retry-pushback-ms: 2500",
            (true, false, millis(2_500)),
        ),
    ] {
        let read = read(200, lines);
        assert_eq!(
            (read.is_denied, read.is_final, read.wait),
            expected,
            "{lines:?}"
        );
    }
}

/// Random bytes in the places of numbers, names and separators.
///
/// What a server says that makes no sense loses nothing.
#[test]
fn no_header_panics() {
    let mut seed = 7_u64;
    let mut next = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let alphabet = b"\"\\;,=rtq 0129.:-GMTSunNov\xff";
    let names = [
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-remaining",
        "ratelimit-reset",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "retry-after",
        "date",
        "grpc-status",
        "grpc-status-details-bin",
        "grpc-retry-pushback-ms",
    ];
    let mut understood = 0;
    for _ in 0..20_000 {
        let mut headers = HeaderMap::new();
        for _ in 0..4 {
            let bytes: Vec<_> = (0..next() % 12)
                .map(|_| alphabet[next() % alphabet.len()])
                .collect();
            let name = names[next() % names.len()];
            headers.append(name, HeaderValue::from_bytes(&bytes).unwrap());
        }
        let feedback = Feedback::read(StatusCode::TOO_MANY_REQUESTS, &headers);
        understood += usize::from(feedback.wait.is_some());
    }
    assert!(understood > 100, "{understood}");
}
