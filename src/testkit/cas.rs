//! What a store with a compare-and-swap does.

use std::collections::hash_map::RandomState;
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::task::Poll;
use std::time::Duration;

use super::is;
use crate::algorithm::TokenBucket;
use crate::backend::Backend;
use crate::clock::{Clock, MonotonicClock, Timer};
use crate::quota::Quota;
use crate::store::cas::{Cas, CasStore, Fault, Faulty, Loaded, Swapped, Value};

const MINUTE: Duration = Duration::from_secs(60);

/// Checks the contract of a store: values and versions, conflicts, swaps at the same time, times to live, and
/// one limit in it with lost replies, repeated and late swaps.
///
/// It uses keys with random names, which expire within minutes, and takes some seconds, in which a time
/// to live passes. Swaps at the same time are futures of one task, so a store in this process is checked
/// for what happens between its awaits, and a database for what its server does.
///
/// ```
/// use tower_throttle::{store::cas::MemoryStore, testkit::check_cas_store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # tokio::time::pause();
/// assert_eq!(check_cas_store(MemoryStore::new()).await, Ok(()));
/// # }
/// ```
///
/// # Errors
/// If the store breaks the contract, or fails.
pub async fn check_cas_store<S: CasStore>(store: S) -> Result<(), String> {
    let key = |name: &str| format!("testkit:{:x}:{name}", RandomState::new().hash_one(name));
    values(&store, &key("values"), &key("'\"?\\ ключ")).await?;
    conflicts(&store, &key("conflicts"), &key("absent")).await?;
    counters(&store, &key("counters")).await?;
    expiry(&store, &key("expiry")).await?;
    faults(store, &key("faults")).await
}

fn value(version: u64, bytes: &[u8]) -> Value {
    Value {
        version,
        bytes: bytes.to_vec(),
    }
}

async fn load<S: CasStore>(store: &S, key: &str) -> Result<Loaded, String> {
    let loaded = store.load(key).await;
    loaded.map_err(|error| format!("a load failed: {error}"))
}

async fn swap<S: CasStore>(
    store: &S,
    key: &str,
    expected: Option<u64>,
    new: &Value,
    ttl: Duration,
) -> Result<Swapped, String> {
    let swapped = store.swap(key, expected, new, ttl).await;
    swapped.map_err(|error| format!("a swap failed: {error}"))
}

/// The value is replaced, and the next load sees it.
async fn replace<S: CasStore>(
    store: &S,
    key: &str,
    expected: Option<u64>,
    new: &Value,
    ttl: Duration,
) -> Result<(), String> {
    let swapped = swap(store, key, expected, new, ttl).await?;
    is(matches!(swapped, Swapped::Done(_)), || {
        format!("a swap of version {expected:?}, which is there, returned {swapped:?}")
    })?;
    holds(store, key, Some(new)).await
}

async fn holds<S: CasStore>(store: &S, key: &str, expected: Option<&Value>) -> Result<(), String> {
    let found = load(store, key).await?.value;
    let [found, expected] = [found.as_ref(), expected]
        .map(|value| value.map(|value| (value.version, value.bytes.len(), value)));
    let text = |value: Option<(u64, usize, &Value)>| {
        value.map(|(version, len, _)| format!("{version:?} with {len} bytes"))
    };
    is(found == expected, || {
        format!("a load found {:?}, not {:?}", text(found), text(expected))
    })
}

async fn values<S: CasStore>(store: &S, key: &str, odd: &str) -> Result<(), String> {
    holds(store, key, None).await?;
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let mut expected = None;
    for new in [
        value(7, &all),
        value(u64::MAX, b""),
        value(1 << 63, &all.repeat(300)),
        value(0, b"last"),
    ] {
        replace(store, key, expected, &new, MINUTE).await?;
        expected = Some(new.version);
    }
    holds(store, odd, None).await?;
    replace(store, odd, None, &value(1, b"odd"), MINUTE).await?;
    holds(store, key, Some(&value(0, b"last"))).await
}

async fn conflicts<S: CasStore>(store: &S, key: &str, absent: &str) -> Result<(), String> {
    let conflict = async |key: &str, expected: Option<u64>, there: Option<&Value>| {
        let swapped = swap(store, key, expected, &value(9, b"new"), MINUTE).await?;
        let is_conflict = match &swapped {
            Swapped::Done(_) => false,
            Swapped::Conflict(loaded) => loaded
                .as_ref()
                .is_none_or(|loaded| loaded.value.as_ref() == there),
        };
        is(is_conflict, || {
            format!("a swap of version {expected:?}, which is not there, returned {swapped:?}")
        })?;
        holds(store, key, there).await
    };
    let (first, second) = (value(1, b"first"), value(2, b"second"));
    conflict(absent, Some(1), None).await?;
    replace(store, key, None, &first, MINUTE).await?;
    conflict(key, None, Some(&first)).await?;
    conflict(key, Some(2), Some(&first)).await?;
    replace(store, key, Some(1), &second, MINUTE).await?;
    // The same swap again, as a client that retries would send it.
    let again = swap(store, key, Some(1), &second, MINUTE).await?;
    is(matches!(again, Swapped::Conflict(_)), || {
        format!("a repeated swap returned {again:?}")
    })?;
    conflict(key, Some(1), Some(&second)).await
}

/// Clients that count up at the same time, from a key without a value on, lose nothing: of swaps of one version at
/// most one succeeds.
async fn counters<S: CasStore>(store: &S, key: &str) -> Result<(), String> {
    let clients = (1..=4_u64).map(|client| async move {
        let (mut done, mut unknown) = (0, 0);
        for turn in 0..25 {
            let found = load(store, key).await?.value;
            let version = found.as_ref().map(|found| found.version);
            let mut bytes = found.map_or_else(Vec::new, |found| found.bytes);
            bytes.push(0);
            let new = value(client * 1_000 + turn, &bytes);
            match store.swap(key, version, &new, MINUTE).await {
                Ok(Swapped::Done(_)) => done += 1,
                Ok(Swapped::Conflict(_)) => {}
                Err(error) if error.is_transient() => unknown += 1,
                Err(error) => return Err(format!("a swap failed: {error}")),
            }
        }
        Ok((done, unknown))
    });
    let mut clients: Vec<_> = clients.map(Box::pin).collect();
    let mut counts = Vec::new();
    poll_fn(|cx| {
        clients.retain_mut(|client| match client.as_mut().poll(cx) {
            Poll::Ready(counted) => {
                counts.push(counted);
                false
            }
            Poll::Pending => true,
        });
        if clients.is_empty() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    let (mut done, mut unknown) = (0, 0);
    for counted in counts {
        let counted = counted?;
        (done, unknown) = (done + counted.0, unknown + counted.1);
    }
    let stored = load(store, key)
        .await?
        .value
        .map_or(0, |value| value.bytes.len());
    is((done..=done + unknown).contains(&stored), || {
        format!("{done} swaps at the same time were done, and the value counts {stored}")
    })
}

/// A value lives as long as its last swap says, and then its key is free.
async fn expiry<S: CasStore>(store: &S, key: &str) -> Result<(), String> {
    let sleep = async |span| {
        MonotonicClock
            .sleep_until(MonotonicClock.now().plus(span))
            .await;
    };
    let short = Duration::from_secs(2);
    replace(store, key, None, &value(1, b"long"), MINUTE).await?;
    replace(store, key, Some(1), &value(2, b"short"), short).await?;
    sleep(short * 3 / 4).await;
    holds(store, key, Some(&value(2, b"short")))
        .await
        .map_err(|fault| format!("before its time to live was over, {fault}"))?;
    let begun = MonotonicClock.now();
    while MonotonicClock.now().since(begun) < 5 * short {
        sleep(Duration::from_millis(100)).await;
        let swapped = swap(store, key, None, &value(3, b"new"), MINUTE).await?;
        if matches!(swapped, Swapped::Done(_)) {
            return holds(store, key, Some(&value(3, b"new"))).await;
        }
    }
    Err(format!(
        "a key is not free {:?} after a time to live of {short:?}",
        5 * short
    ))
}

/// A limit in the store admits what it promises, and counts each cost once, whatever happens to its swaps.
async fn faults<S: CasStore>(store: S, key: &str) -> Result<(), String> {
    let store = Faulty::new(store);
    // Nothing comes back during the check.
    let bucket = TokenBucket::new(Quota::per_day(10));
    let limit = Cas::new(store.clone(), "testkit", bucket).map_err(|error| error.to_string())?;
    let limit = limit.deadline(Duration::from_secs(10));
    let planned = [
        Fault::Delay(Duration::ZERO),
        Fault::LostReply,
        Fault::LostRequest,
        Fault::Late,
        Fault::Twice,
        Fault::Conflict,
    ];
    let mut left = 10;
    for fault in planned {
        // The first load has no fault.
        if left < 10 {
            store.plan([fault]);
        }
        let decision = limit.decide(key, 1).await;
        store.plan([]);
        let decision = decision.map_err(|error| format!("a limit, {fault:?}: {error}"))?;
        left -= 1;
        is(decision.remaining() == left, || {
            format!(
                "a limit after {fault:?} has {}, not {left}",
                decision.remaining()
            )
        })?;
    }
    Ok(())
}
