//! A limit in a cluster of three masters.

use std::{cell::Cell, time::Duration};

use redis::cluster::ClusterClientBuilder;
use tower_throttle::store::{fleet::Leased, redis::Redis};
use tower_throttle::{FixedWindow, Quota, SlidingLog, TokenBucket, store::Backend};

use crate::redis::check::RIGHTS;
use crate::redis::faults::command;
use crate::redis_cluster::{ask, cluster, cluster_of_one};
use crate::redis_server::RedisServer;
use crate::wait::until;

fn of_cluster(nodes: &[RedisServer]) -> Redis {
    let builder = ClusterClientBuilder::new(nodes.iter().map(RedisServer::url));
    Redis::with_cluster(builder).expect("urls")
}

/// Shows promises 83, 123.
#[tokio::test]
async fn two_machines_share_each_limit_on_every_master() {
    let nodes = cluster(0);
    let machine = || of_cluster(&nodes).deadline(Duration::from_secs(10));
    let machines = [machine(), machine()];
    let quota = Quota::per_hour(3);
    let logs = machines
        .each_ref()
        .map(|redis| redis.limiter("log", SlidingLog::new(quota)));
    let pairs = machines.each_ref().map(|redis| {
        let window = FixedWindow::new(quota).anchored();
        redis.limiter("pair", (TokenBucket::new(Quota::per_hour(10)), window))
    });
    for key in 0..40_u64 {
        let mut admitted = [0, 0];
        for turn in 0..6 {
            let by_log = logs[turn % 2].decide(&key, 1).await.expect("a decision");
            let by_pair = pairs[turn % 2].decide(&key, 1).await.expect("a decision");
            admitted[0] += u32::from(by_log.is_admitted());
            admitted[1] += u32::from(by_pair.is_admitted());
        }
        assert_eq!(admitted, [3, 3], "key {key}");
    }
    for node in &nodes {
        let keys: u64 = redis::cmd("DBSIZE")
            .query(&mut node.connection())
            .expect("a count");
        assert!(keys > 0, "every master holds some keys");
    }
}

/// Shows promise 94.
#[tokio::test]
async fn a_stopped_master_opens_only_its_own_breaker() {
    let nodes = cluster(0);
    let redis = of_cluster(&nodes);
    let redis = redis.deadline(Duration::from_millis(200));
    let window = FixedWindow::new(Quota::per_day(1_000_000));
    let limiter = redis.limiter("breaker", window);
    // A key on each master.
    let mut keys = [None; 3];
    for key in 0..1_000_u64 {
        let slot = ask(
            &nodes[0],
            &["KEYSLOT", &format!("{{throttle:breaker:{key}}}")],
        );
        let slot: usize = slot.parse().expect("a slot");
        keys[slot.min(16_382) / 5_461].get_or_insert(key);
        if keys.iter().all(Option::is_some) {
            break;
        }
    }
    let keys = keys.map(|key| key.expect("a key for each master"));
    for key in &keys {
        until("a call succeeds", async || {
            limiter.decide(key, 1).await.is_ok()
        })
        .await;
    }
    // The connection is old enough to be replaced.
    let connected_at = tokio::time::Instant::now();
    while connected_at.elapsed() < Duration::from_millis(1_100) {
        let _ = limiter.decide(&keys[1], 1).await;
    }
    let before: Vec<_> = nodes.iter().map(clients).collect();
    nodes[0].signal("STOP");
    let begun = tokio::time::Instant::now();
    loop {
        let error = limiter
            .decide(&keys[0], 1)
            .await
            .expect_err("it is stopped");
        if error.to_string().contains("not asked") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
        tokio::task::yield_now().await;
    }
    for key in &keys[1..] {
        let error = limiter
            .decide(key, 1)
            .await
            .err()
            .map(|error| error.to_string());
        assert!(error.is_none_or(|error| !error.contains("not asked")));
    }
    nodes[0].signal("CONT");
    until("it is back", async || {
        limiter.decide(&keys[0], 1).await.is_ok()
    })
    .await;
    until("only another connection is left", async || {
        let _ = limiter.decide(&keys[0], 1).await;
        let now: Vec<_> = nodes.iter().map(clients).collect();
        let is_one = |(now, before): (&Vec<_>, &Vec<_>)| now.len() == 1 && now != before;
        now.iter().zip(&before).all(is_one)
    })
    .await;
}

/// Shows promise 205.
#[tokio::test]
async fn a_stopped_master_cuts_off_only_its_own_keys_of_a_fleet() {
    let nodes = cluster(0);
    let window = FixedWindow::new(Quota::per_day(1_000_000));
    let limit = Leased::new(of_cluster(&nodes), "fleet", window).expect("a limit");
    let next = Cell::new(0_u64);
    // How many of sixty new keys are not served, and how many are.
    let round = async || {
        let keys = next.replace(next.get() + 60)..next.get();
        let decided: Vec<_> = keys.map(|key| limit.decide(&key, 1)).collect();
        let mut served = [0; 2];
        for decision in decided {
            served[usize::from(decision.await.is_ok())] += 1;
        }
        served
    };
    until("all are served", async || round().await == [0, 60]).await;
    nodes[0].signal("STOP");
    until("some are served", async || {
        round().await.iter().all(|keys| *keys > 9)
    })
    .await;
    nodes[0].signal("CONT");
    until("all are served again", async || round().await == [0, 60]).await;
}

/// Its first exchange finds out that keys are in several slots.
///
/// Shows promises 123, 200.
#[tokio::test]
async fn a_fleet_with_plain_clients_shares_a_limit_in_a_cluster_of_one_master() {
    const KEYS: usize = 40;
    let server = cluster_of_one();
    let machines = [(); 2].map(|()| {
        let redis = Redis::open(&server.url()).expect("a url");
        let limit = Leased::new(redis, "fleet", TokenBucket::new(Quota::per_day(9)));
        limit.expect("a limit")
    });
    let mut admitted = [0; KEYS];
    let mut take = async |machine: usize| {
        let decided: Vec<_> = (0..KEYS)
            .map(|key| machines[machine].decide(&(key as u64), 1))
            .collect();
        for (decision, admitted) in decided.into_iter().zip(&mut admitted) {
            // No exchange has failed.
            *admitted += u32::from(decision.await.expect("a decision").is_admitted());
            assert!(*admitted <= 9);
        }
        admitted == [9; KEYS]
    };
    for turn in 0..8 {
        let _ = take(turn % 2).await;
    }
    machines[0]
        .close()
        .await
        .expect("it gives back what is left");
    until("all is used", async || take(1).await).await;
}

/// The numbers of the connections to a node, but for those of this test.
fn clients(node: &RedisServer) -> Vec<String> {
    let list: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query(&mut node.connection())
        .expect("a list");
    let others = list.lines().filter(|line| !line.contains("cmd=client"));
    let numbers = others.filter_map(|line| line.split(' ').next());
    numbers.map(ToOwned::to_owned).collect()
}

/// Shows promise 128.
#[tokio::test]
async fn check_refuses_a_plain_client_and_checks_every_master() {
    let nodes = cluster(0);
    let plain = Redis::open(&nodes[0].url()).expect("a url");
    let error = plain.check().await.expect_err("keys are elsewhere");
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("Redis::with_cluster"), "{error}");
    let redis = of_cluster(&nodes);
    assert_eq!(redis.check().await, Ok(None));
    for (right, text) in [("+@all", None), ("-del", Some("DEL"))] {
        // The last master alone refuses it.
        command(&nodes[2], &["ACL", "SETUSER", "default", right]);
        let checked = redis.check().await.err().map(|error| error.to_string());
        assert_eq!(checked.is_some(), text.is_some(), "{checked:?}");
        assert!(checked.unwrap_or_default().contains(text.unwrap_or("")));
    }
    command(
        &nodes[1],
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
    );
    command(&nodes[2], &["ACL", "SETUSER", "default", "+del"]);
    let warning = redis.check().await.expect("it works").expect("a warning");
    assert!(warning.contains("allkeys-lru"), "{warning}");
}

/// Shows promise 128.
#[tokio::test]
async fn a_user_of_a_cluster_needs_one_more_right() {
    let nodes = cluster(0);
    let rights = format!("on >secret ~{{throttle:* {RIGHTS} +cluster|slots");
    let words: Vec<_> = ["ACL", "SETUSER", "limiter"]
        .into_iter()
        .chain(rights.split_whitespace())
        .collect();
    for node in &nodes {
        command(node, &words);
    }
    let builder = ClusterClientBuilder::new(nodes.iter().map(RedisServer::url));
    let builder = builder.username("limiter").password("secret");
    let redis = Redis::with_cluster(builder).expect("urls");
    assert_eq!(redis.check().await, Ok(None));
}
