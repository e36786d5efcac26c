//! Who learns which keys are admitted and denied.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures_util::FutureExt;
use http::StatusCode;
use test_support::random::Random;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, Decision, FixedWindow, Quota, RateLimitLayer, RateLimited, StoreError,
    key::{Extracted, Rejection},
    layer::TopKeys,
};

use crate::support::{Reply, Script, admit, deny};

/// A key, and the cost if it was admitted.
type Told = (u64, Option<u64>);

/// Keeps all that it is told.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<Told>>>);

impl Seen {
    /// A watcher that tells this.
    fn watch(&self) -> impl Fn(&u64, Result<u64, &RateLimited>) + Clone + use<> {
        let seen = self.clone();
        move |key: &u64, decided: Result<u64, &RateLimited>| {
            assert!(decided.is_ok() || decided.is_err_and(|denied| denied.decision().is_some()));
            seen.0.lock().unwrap().push((*key, decided.ok()));
        }
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn window(limit: u64) -> FixedWindow {
    FixedWindow::new(Quota::per_day(limit)).anchored()
}

/// Shows promise 341.
#[tokio::test]
async fn each_decision_about_a_key_is_told_once_to_all_who_watch() {
    let (seen, denials) = (Seen::default(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&denials);
    let key = |n: &u64| match *n {
        0 => Extracted::Skip,
        1 => Extracted::Reject(Rejection::new(StatusCode::BAD_REQUEST, "no key")),
        n => Extracted::Key(n),
    };
    let layer = RateLimitLayer::new(key, window(3))
        .cost(|_: &u64| 2)
        .watch(seen.watch())
        .watch(move |key: &u64, decided: Result<u64, &RateLimited>| {
            if decided.is_err() {
                noted.lock().unwrap().push(*key);
            }
        })
        .respond(AsError);
    let service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
    for n in [0, 1, 7, 7, 8] {
        let _ = service.clone().oneshot(n).await;
    }
    assert_eq!(seen.take(), [(7, Some(2)), (7, None), (8, Some(2))]);
    assert_eq!(*denials.lock().unwrap(), [7]);
}

/// Shows promise 341.
#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_told_when_its_wait_is_over() {
    use tokio_test::{assert_pending, assert_ready, task};
    use tower::{Service, limit::ConcurrencyLimit};
    use tower_throttle::LeakyBucket;

    let seen = Seen::default();
    let line = LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(|n: &u64| *n, line).queue(1);
    let layer = layer.watch(seen.watch()).respond(AsError);
    let service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
    let _ = service.clone().oneshot(7).await;
    let mut waits = task::spawn(service.clone().oneshot(7));
    assert_pending!(waits.poll());
    assert_eq!(seen.take(), [(7, Some(1))]);
    assert!(service.clone().oneshot(7).await.is_err());
    assert_eq!(seen.take(), [(7, None)]);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let _ = assert_ready!(waits.poll());
    assert_eq!(seen.take(), [(7, Some(1))]);
    // One that leaves was neither admitted nor denied.
    let mut leaves = task::spawn(service.oneshot(7));
    assert_pending!(leaves.poll());
    drop(leaves);
    assert_eq!(seen.take(), []);
    // One that then waits for the service is told once.
    let echo = service_fn(async |n: u64| Ok::<_, BoxError>(n));
    let mut inner = ConcurrencyLimit::new(echo, 1);
    let mut service = layer.layer(inner.clone());
    let mut waits = task::spawn(service.ready().await.unwrap().call(7));
    assert_pending!(waits.poll());
    inner.ready().await.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_pending!(waits.poll());
    assert_pending!(waits.poll());
    assert_eq!(seen.take(), [(7, Some(1))]);
}

/// Shows promise 341.
#[tokio::test]
async fn all_who_watch_are_told_in_the_order_in_which_they_were_added() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let named = |name| {
        let told = Arc::clone(&told);
        move |_: &u64, _: Result<u64, &RateLimited>| told.lock().unwrap().push(name)
    };
    let third = named("third");
    let layer = RateLimitLayer::new(|n: &u64| *n, window(1))
        .watch(named("first"))
        .watch(named("second"))
        .watch(move |key: &u64, decided: Result<u64, &RateLimited>| {
            if decided.is_err() {
                third(key, decided);
            }
        })
        .watch(named("fourth"))
        .respond(AsError);
    let service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
    for expected in [
        &["first", "second", "fourth"][..],
        &["first", "second", "third", "fourth"],
    ] {
        let _ = service.clone().oneshot(7).await;
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), expected);
    }
}

/// Shows promise 341.
#[tokio::test]
async fn neither_an_outage_nor_shadow_mode_is_a_denial() {
    let seen = Seen::default();
    let down = || Err(StoreError::new("down", true));
    for passes in [false, true] {
        let script = Script::default();
        script.push(Reply::Now(down()));
        script.later().send(down()).unwrap();
        let layer = RateLimitLayer::new(|n: &u64| *n, script);
        let layer = if passes {
            layer
        } else {
            layer.deny_on_store_error()
        };
        let layer = layer.watch(seen.watch()).respond(AsError);
        let service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
        for _ in 0..2 {
            assert_eq!(service.clone().oneshot(7).await.is_ok(), passes);
        }
        let told: &[Told] = if passes { &[(7, Some(1)); 2] } else { &[] };
        assert_eq!(seen.take(), told);
    }
    let layer = RateLimitLayer::new(|n: &u64| *n, Script::now([admit(), deny()]));
    let layer = layer.watch(seen.watch()).shadow().respond(AsError);
    let service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
    for _ in 0..2 {
        assert!(service.clone().oneshot(7).await.is_ok());
    }
    assert_eq!(seen.take(), [(7, Some(1)), (7, Some(1))]);
}

/// Skewed traffic: key k is about twice as frequent as key 2k. At the end comes a heavy key that is new.
fn traffic() -> Vec<u64> {
    let mut random = Random::new(1);
    let mut next = |bound| random.below(bound);
    (0..20_000)
        .map(|_| {
            let most = 1 + next(5_000);
            let most = 1 + next(most);
            1 + next(most)
        })
        .chain(std::iter::repeat_n(77_777, 3_000))
        .collect()
}

/// What is wrong with a list of the `n` keys that were counted most often.
fn fault(listed: &[(String, u64)], n: usize, traffic: &[u64]) -> Option<String> {
    let mut truth = HashMap::<String, u64>::new();
    for key in traffic {
        *truth.entry(key.to_string()).or_default() += 1;
    }
    if listed.len() > n {
        return Some(format!("{} keys", listed.len()));
    }
    let least = traffic.len() as u64 / n as u64;
    for (key, count) in listed {
        let right = truth.get(key).copied().unwrap_or(0);
        if *count < right || *count > right + least {
            return Some(format!("{key}: {count}, and not {right}"));
        }
    }
    let heavy = truth.iter().filter(|(_, count)| **count > least);
    let mut missing = heavy.filter(|(key, _)| !listed.iter().any(|(listed, ..)| listed == *key));
    missing
        .next()
        .map(|(key, count)| format!("{key} with {count} is missing"))
}

/// Sends a request for each key, about which the limit decides so.
fn send(top: &TopKeys<fn(&u64) -> String>, decision: Decision, keys: impl Iterator<Item = u64>) {
    let keys: Vec<_> = keys.collect();
    let limit = Script::now(keys.iter().map(|_| decision));
    let layer = RateLimitLayer::new(|n: &u64| *n, limit).watch(top.clone());
    let layer = layer.respond(AsError);
    let service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
    for key in keys {
        let _ = service.clone().oneshot(key).now_or_never();
    }
}

/// Shows promise 341.
#[test]
fn the_keys_that_are_denied_and_admitted_most_are_listed() {
    let traffic = traffic();
    for n in [1, 2, 10, 100, 10_000] {
        let top = TopKeys::new(n, u64::to_string as fn(&u64) -> String);
        send(&top, deny(), traffic.iter().copied());
        assert_eq!(fault(&top.denied_keys(), n, &traffic), None, "{n}");
        send(&top, admit(), traffic.iter().copied());
        assert_eq!(fault(&top.used_keys(), n, &traffic), None, "{n}");
        top.reset();
        assert_eq!((top.denied_keys(), top.used_keys()), (vec![], vec![]));
    }
}

/// Shows promise 341.
#[test]
fn threads_that_count_at_the_same_time_lose_nothing() {
    let top = TopKeys::new(50, u64::to_string as fn(&u64) -> String);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let top = &top;
            scope.spawn(move || send(top, deny(), (0..20_000).map(|n| thread * n % 40)));
        }
    });
    let counted: u64 = top.denied_keys().iter().map(|(_, count)| count).sum();
    assert_eq!(counted, 80_000);
}
