//! Replies that are lost, cut or split on the way.

use std::time::Duration;

use tower_throttle::store::redis::Redis;
use tower_throttle::{FixedWindow, Quota, store::Backend};

use crate::proxy::{Harm, Protocol, Proxy};
use crate::redis::faults::recovers;
use crate::redis::open;
use crate::redis_server::RedisServer;

fn used(server: &RedisServer, key: &str) -> u64 {
    let script = "local v = redis.call('GET', KEYS[1]) return v and string.format('%.0f', (struct.unpack('<d', v, #v - 7)))";
    let value: Option<String> = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg(format!("{{throttle:proxy:{key}}}window/86400s"))
        .query(&mut server.connection())
        .expect("a value");
    value.map_or(0, |text| text.parse().expect("a number"))
}

/// Shows promise 87.
#[tokio::test]
async fn a_lost_reply_is_an_error_and_its_call_is_counted_once() {
    let server = RedisServer::start();
    for harm in [Harm::Lost, Harm::Cut, Harm::CutInside] {
        let proxy = Proxy::before(Protocol::Redis, server.port());
        let redis = Redis::open(&proxy.url()).expect("a url");
        // Only a lost reply has to be waited for.
        let redis = redis.deadline(match harm {
            Harm::Lost => Duration::from_millis(500),
            _ => Duration::from_secs(10),
        });
        let limiter = redis.limiter("proxy", FixedWindow::new(Quota::per_day(1_000)));
        recovers(&limiter).await;
        for lost in 0..8 {
            let key = format!("{harm:?}{lost}");
            let before = proxy.harmed();
            proxy.harms_one(harm, lost);
            let (mut calls, mut admitted, mut failed) = (0, 0, 0);
            // On a busy machine a call may end before it is sent.
            while calls < 8 || (calls < 16 && proxy.harmed() == before) {
                calls += 1;
                match limiter.decide(key.as_str(), 1).await {
                    Ok(decision) => admitted += u64::from(decision.is_admitted()),
                    Err(error) => {
                        assert!(error.is_transient(), "{error}");
                        failed += 1;
                    }
                }
            }
            let harmed = proxy.harmed() - before;
            assert_eq!(harmed, 1, "the fault happened");
            let used = used(&server, &key);
            assert!(
                admitted <= used && used <= calls,
                "{key}: {admitted}, {used}"
            );
            if matches!(harm, Harm::Lost) {
                // No reply arrives until the connection is replaced.
                assert!(failed >= 1, "{key}");
                recovers(&limiter).await;
            } else {
                assert_eq!((admitted, failed), (7, 1), "{key}");
                assert_eq!(used, 8, "{key}: each call once, never sent again");
            }
        }
    }
}

#[tokio::test]
async fn replies_that_arrive_byte_by_byte_are_parsed() {
    let server = RedisServer::start();
    let proxy = Proxy::before(Protocol::Redis, server.port());
    proxy.harms_every(Harm::Split, 1);
    let redis = open(&proxy.url()).await;
    let limiter = redis.limiter("proxy", FixedWindow::new(Quota::per_day(1_000)));
    let calls: Vec<_> = (0..200).map(|_| limiter.decide("bytes", 1)).collect();
    for call in calls {
        assert!(call.await.expect("a decision").is_admitted());
    }
    assert_eq!(used(&server, "bytes"), 200);
    assert!(proxy.harmed() > 0, "the fault happened");
}
