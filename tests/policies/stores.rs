//! Stores whose URLs are in the file, against real servers.

use tower_throttle::policy::Reloaded;

use crate::support::{App, from, limit};

#[cfg(feature = "redis")]
#[tokio::test]
async fn another_password_keeps_the_usage_and_another_server_does_not() {
    let policy = |url: &str| {
        limit(
            "shared",
            "fixed_window 3/d",
            "\"client_ip\"",
            "store = \"shared\"",
        ) + &format!("[stores]\nshared = {{ redis = \"redis://{url}\" }}\n")
    };
    let (old, new) = ("user:old@127.0.0.1:1/2", "user:new@127.0.0.1:1/2");
    let app = App::new(&policy(old));
    assert_eq!(app.reload(&policy(old)), Reloaded::default());
    assert_eq!(app.reload(&policy(new)).changed, ["shared"]);
    assert_eq!(app.reload(&policy(new)), Reloaded::default());
    for other in [
        "other:new@127.0.0.1:1/2",
        "other:new@127.0.0.1:2/2",
        "other:new@127.0.0.1:2/3",
    ] {
        assert_eq!(app.reload(&policy(other)).added, ["shared"]);
    }
}

#[cfg(feature = "redis")]
#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_allows_or_denies_at_its_deadline() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    for (more, most, deadline, expected) in [
        ("", 100, "", 200),
        ("on_store_error = \"allow\"", 100, "", 200),
        ("on_store_error = \"deny\"", 700, ", deadline_ms = 700", 503),
    ] {
        let more = format!("store = \"s\"\n{more}");
        let policy = limit("a", "fixed_window 1/d", "\"client_ip\"", &more)
            + &format!("[stores]\ns = {{ redis = \"{url}\"{deadline} }}\n");
        let (app, start) = (App::new(&policy), tokio::time::Instant::now());
        assert_eq!(app.get().await, expected, "{more}");
        let took = start.elapsed().as_millis();
        assert!((most..most + 9).contains(&took), "{took}");
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_limit_in_redis_is_shared_and_outlives_a_reload() {
    let server = crate::redis_server::RedisServer::start();
    let connections = || -> u64 {
        let info = redis::cmd("INFO")
            .arg("stats")
            .query(&mut server.connection());
        let info: String = info.expect("statistics");
        let start = "total_connections_received:";
        let count = info.lines().find_map(|line| line.strip_prefix(start));
        count.expect("a count").parse().expect("a number")
    };
    let before = connections();
    // Two servers share a limit, and a reload keeps what both used.
    let url = server.url();
    let policy = |rate: &str| {
        let line = format!("fixed_window {rate}/d");
        let more = "store = \"shared\"\non_store_error = \"deny\"";
        // Also a busy machine answers within it.
        limit("shared", &line, "\"client_ip\"", more)
            + &format!("[stores]\nshared = {{ redis = \"{url}\", deadline_ms = 20_000 }}\n")
    };
    let (one, two) = (App::new(&policy("3")), App::new(&policy("3")));
    assert_eq!([one.get().await, two.get().await], [200, 200]);
    assert_eq!(one.reload(&policy("3")), Reloaded::default());
    assert_eq!(
        [one.get().await, one.get().await, two.get().await],
        [200, 429, 429]
    );
    assert_eq!(two.status(from("192.0.2.9")).await, 200, "another key");
    for app in [&one, &two] {
        assert_eq!(app.reload(&policy("5")).changed, ["shared"]);
    }
    assert_eq!([one.admitted(5).await, two.admitted(5).await], [2, 0]);
    // One of each, and the one that asks.
    assert_eq!(connections(), before + 3, "a reload connects anew");
}
