//! Other numbers for some keys, and for requests with some headers.

use axum::extract::Request;

use tower_throttle::policy::Reloaded;

use crate::support::{Account, App, from, limit, with};

const TEN: &str = "fixed_window 10/d";

fn with_override(more: &str) -> String {
    limit("api", TEN, "\"header:x-api-key\"", more)
}

fn one(name: &str, requests: &str, number: u32) -> String {
    format!(
        "[[limit.override]]\nname = \"{name}\"\n{requests}\nlimit = \"fixed_window {number}/d\"\n"
    )
}

fn of(key: &str) -> Request {
    with(from("192.0.2.1"), "x-api-key", key)
}

/// How many requests are admitted.
async fn admitted(app: &App, request: impl Fn() -> Request) -> u32 {
    let mut admitted = 0;
    while app.status(request()).await == 200 {
        admitted += 1;
        assert!(admitted < 100);
    }
    admitted
}

/// The key of a request, its headers, and how many of it are admitted.
type Case = (&'static str, &'static [(&'static str, &'static str)], u32);

const CASES: [Case; 16] = [
    ("team-acme", &[], 5),
    ("team-acm", &[], 4),
    ("team-b", &[], 3),
    ("team", &[], 10),
    ("Team-acme", &[], 10),
    ("other", &[], 10),
    // Each key has the number of its own.
    ("team-c", &[], 3),
    ("x", &[("x-plan", "pro")], 6),
    ("y", &[("x-plan", "trial")], 6),
    ("z", &[("x-plan", "Pro")], 10),
    ("w", &[("x-plan", "max")], 10),
    ("v", &[("x-plan", "max"), ("x-region", "eu")], 7),
    ("team-d", &[("x-plan", "pro")], 3),
    // A repeated header does not get past the limit of either value.
    ("u", &[("x-plan", "free"), ("x-plan", "pro")], 6),
    // Of two overrides for its headers, the first one of the file.
    (
        "t",
        &[("x-plan", "pro"), ("x-plan", "max"), ("x-region", "eu")],
        6,
    ),
    ("", &[], 10),
];

/// The whole key decides, then its longest prefix, then the headers.
///
/// Shows promise 393.
#[tokio::test(start_paused = true)]
async fn an_override_is_that_of_the_key_else_of_the_longest_prefix_else_of_a_header() {
    let overrides = [
        one("short", "prefix = \"team-\"", 3),
        one("pro", "headers = { x-plan = [\"pro\", \"trial\"] }", 6),
        one("long", "prefix = \"team-a\"", 4),
        one("acme", "key = \"team-acme\"", 5),
        one(
            "both",
            "headers = { x-plan = \"max\", x-region = \"eu\" }",
            7,
        ),
    ];
    let text = with_override("") + &overrides.concat();
    let app = App::new(&text);
    for (key, headers, number) in CASES {
        let request = || {
            let mut request = if key.is_empty() {
                from("192.0.2.1")
            } else {
                of(key)
            };
            for (name, value) in headers {
                request.headers_mut().append(*name, value.parse().unwrap());
            }
            request
        };
        assert_eq!(admitted(&app, request).await, number, "{key} {headers:?}");
    }
    let counts = app.handle.counts_of("acme").unwrap();
    assert_eq!((counts.admitted, counts.denied), (5, 1));
}

/// Shows promise 393.
#[tokio::test(start_paused = true)]
async fn tokens_routes_and_extensions_have_overrides() {
    let of_bearer = |token: &str| {
        let value = format!("Bearer {token}");
        with(from("192.0.2.1"), "authorization", &value)
    };
    let text = limit("a", TEN, "\"bearer\"", "") + &one("b", "key = \"s3cret\"", 2);
    let app = App::new(&text);
    assert_eq!(admitted(&app, || of_bearer("s3cret")).await, 2);
    assert_eq!(admitted(&app, || of_bearer("other")).await, 10);

    let text = limit("a", TEN, "\"extension:account\"", "missing = \"shared\"")
        + &one("b", "prefix = \"al\"", 2);
    let app = App::new(&text);
    let account = |name: &'static str| {
        move || {
            let mut request = from("192.0.2.1");
            request.extensions_mut().insert(Account(name));
            request
        }
    };
    assert_eq!(admitted(&app, account("alice")).await, 2);
    assert_eq!(admitted(&app, account("bob")).await, 10);
    assert_eq!(admitted(&app, || from("192.0.2.1")).await, 10);

    let text = limit("a", "concurrency 1", "\"bearer\"", "")
        + "[[limit.override]]\nname = \"b\"\nkey = \"two\"\nlimit = \"concurrency 2\"\n";
    let app = App::new(&text);
    for (token, number) in [("one", 1), ("two", 2)] {
        let mut held = Vec::new();
        for _ in 0..number {
            held.push(app.send(of_bearer(token)).await);
        }
        assert_eq!(app.status(of_bearer(token)).await, 429, "{token}");
        assert!(held.iter().all(|response| response.status() == 200));
    }
}

/// An override for a key with its own name.
fn override_with(name: &str, plan: &str) -> String {
    format!("[[limit.override]]\nname = \"{name}\"\nkey = \"{name}\"\n{plan}\n")
}

/// How many of 99 requests are admitted.
async fn of_99(app: &App, request: impl Fn() -> Request) -> u32 {
    let mut admitted = 0;
    for _ in 0..99 {
        admitted += u32::from(app.status(request()).await == 200);
    }
    admitted
}

/// Shows promise 601.
#[tokio::test(start_paused = true)]
async fn an_override_and_a_limit_may_block_or_have_no_limit() {
    let with = |more: &str, mallory: &str, acme: &str| {
        with_override(&format!("headers = \"draft-11\"\n{more}"))
            + &override_with("mallory", mallory)
            + &override_with("acme", acme)
            + &override_with("ann", "limit = \"fixed_window 4/d\"")
    };
    let (blocks, frees) = ("blocked = true", "unlimited = true");
    let app = App::new(&with("", blocks, frees));
    for (key, number) in [("mallory", 0), ("acme", 99), ("ann", 4), ("other", 10)] {
        assert_eq!(of_99(&app, || of(key)).await, number, "{key}");
        if ["ann", "other"].contains(&key) {
            continue;
        }
        let counts = app.handle.counts_of(key).unwrap();
        assert_eq!(
            (counts.admitted, counts.denied),
            (number.into(), (99 - number).into())
        );
        let response = app.send(of(key)).await;
        let stated = ["ratelimit-policy", "ratelimit", "retry-after"];
        let stated = stated.map(|name| Some(response.headers().get(name)?.to_str().unwrap()));
        let expected = match key {
            "mallory" => [Some("\"mallory\";q=0"), Some("\"mallory\";r=0"), None],
            _ => [None; 3],
        };
        assert_eq!(stated, expected, "{key}");
    }
    // The whole limit: all others but those with numbers of their own.
    let blocked = App::new(&with(blocks, frees, "limit = \"fixed_window 10/d\""));
    for (key, number) in [("mallory", 99), ("acme", 10), ("ann", 4), ("other", 0)] {
        assert_eq!(of_99(&blocked, || of(key)).await, number, "{key}");
    }
    // To block a key and to let it go on begins anew; what others have used stays.
    let report = app.reload(&with("", blocks, blocks));
    assert_eq!(
        (report.added, report.removed),
        (vec!["acme".to_owned()], vec!["acme".to_owned()])
    );
    for key in ["mallory", "acme", "ann", "other"] {
        assert_eq!(of_99(&app, || of(key)).await, 0, "{key}");
    }
    assert_eq!(app.reload(&with("", blocks, blocks)), Reloaded::default());
}

/// Shows promise 601.
#[tokio::test(start_paused = true)]
async fn what_is_in_flight_may_be_blocked_or_have_no_limit() {
    let text = limit("a", "concurrency 1", "\"header:x-api-key\"", "")
        + &override_with("mallory", "blocked = true")
        + &override_with("acme", "unlimited = true");
    let app = App::new(&text);
    for (key, passes) in [("mallory", 0), ("acme", 9), ("other", 1)] {
        let mut held = Vec::new();
        for _ in 0..9 {
            held.push(app.send(of(key)).await);
        }
        let passed = held.iter().filter(|held| held.status() == 200).count();
        assert_eq!(passed, passes, "{key}");
    }
    // In shadow mode nothing is denied.
    let shadow = App::new(
        &(limit(
            "a",
            "concurrency 1",
            "\"header:x-api-key\"",
            "shadow = true",
        ) + &override_with("mallory", "blocked = true")),
    );
    assert_eq!(of_99(&shadow, || of("mallory")).await, 99);
    assert_eq!(
        shadow.handle.counts_of("mallory").unwrap().shadow_denied,
        99
    );
}

/// Shows promises 223, 393.
#[tokio::test(start_paused = true)]
async fn a_changed_override_keeps_what_was_used_and_a_new_one_begins_anew() {
    let text = |number| with_override("") + &one("acme", "key = \"acme\"", number);
    let app = App::new(&text(5));
    for _ in 0..4 {
        assert_eq!(app.status(of("acme")).await, 200);
    }
    assert_eq!(app.reload(&text(6)).changed, ["api", "acme"]);
    assert_eq!(admitted(&app, || of("acme")).await, 2);
    assert_eq!(app.reload(&text(6)), Reloaded::default());

    let report = app.reload(&with_override(""));
    assert_eq!(
        (report.removed, report.changed),
        (vec!["acme".to_owned()], vec!["api".to_owned()])
    );
    assert_eq!(admitted(&app, || of("acme")).await, 10);
    let report = app.reload(&text(3));
    assert_eq!(
        (report.added, report.changed),
        (vec!["acme".to_owned()], vec!["api".to_owned()])
    );
    assert_eq!(admitted(&app, || of("acme")).await, 3);
}

/// Shows promise 393.
#[tokio::test(start_paused = true)]
async fn a_limit_applies_to_requests_with_its_headers() {
    let matched = "match = { headers = { x-plan = [\"free\", \"trial\"] } }";
    let text = limit("free", "fixed_window 2/d", "\"header:x-api-key\"", matched);
    let app = App::new(&text);
    let plan = |key: &'static str, plan: &'static str| move || with(of(key), "x-plan", plan);
    assert_eq!(admitted(&app, plan("a", "free")).await, 2);
    assert_eq!(admitted(&app, plan("b", "trial")).await, 2);
    for _ in 0..20 {
        assert_eq!(app.status(plan("a", "pro")()).await, 200);
        assert_eq!(app.status(of("a")).await, 200);
    }
    let hidden = || {
        let mut request = plan("c", "pro")();
        request
            .headers_mut()
            .append("x-plan", "free".parse().unwrap());
        request
    };
    assert_eq!(admitted(&app, hidden).await, 2);
    // Another plan is limited as soon as the file says so.
    let _ = app.reload(&text.replace("trial", "pro"));
    assert_eq!(admitted(&app, plan("d", "pro")).await, 2);
    assert_eq!(app.status(plan("b", "trial")()).await, 200);
}
