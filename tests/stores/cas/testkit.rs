//! The check of stores finds every store with one mistake.

use std::sync::Mutex;
use std::time::Duration;

use tower_throttle::StoreError;
use tower_throttle::store::cas::{CasStore, Loaded, MemoryStore, Swapped, Value};
use tower_throttle::testkit::check_cas_store;

#[derive(Clone, Copy, Debug)]
enum Mistake {
    None,
    IgnoresTheVersion,
    IgnoresAnAbsentValue,
    LosesAWrite,
    SaysDoneAfterAConflict,
    ConflictWrites,
    ReturnsAnOldValue,
    ChecksBeforeItWrites,
    DropsBytes,
    SharesOneValue,
    ExpiresEarly,
    NeverFreesAKey,
}

/// A store in memory with one mistake.
#[derive(Debug)]
struct Mistaken {
    store: MemoryStore,
    mistake: Mistake,
    calls: Mutex<u64>,
    /// The key of the last swap, and the value before it.
    old: Mutex<Option<(String, Option<Value>)>>,
}

impl Mistaken {
    fn new(mistake: Mistake) -> Self {
        Self {
            store: MemoryStore::new(),
            mistake,
            calls: Mutex::default(),
            old: Mutex::default(),
        }
    }

    fn key<'a>(&self, key: &'a str) -> &'a str {
        match self.mistake {
            Mistake::SharesOneValue => "all",
            _ => key,
        }
    }
}

impl CasStore for Mistaken {
    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let loaded = self.store.load(self.key(key)).await?;
        let old = self.old.lock().expect("no panic").take();
        match (self.mistake, old) {
            (Mistake::ReturnsAnOldValue, Some((of, old))) if of == key => Ok(Loaded {
                value: old,
                server_time: None,
            }),
            _ => Ok(loaded),
        }
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let key = self.key(key);
        let there = self.store.load(key).await?.value;
        let version = there.as_ref().map(|value| value.version);
        let is_expected = version == expected;
        *self.old.lock().expect("no panic") = Some((key.to_owned(), there));
        let call = {
            let mut calls = self.calls.lock().expect("no panic");
            *calls += 1;
            *calls
        };
        let write = async |new: &Value, ttl| self.store.swap(key, version, new, ttl).await;
        match self.mistake {
            Mistake::IgnoresTheVersion if version.is_some() && expected.is_some() => {
                write(new, ttl).await
            }
            Mistake::IgnoresAnAbsentValue if expected.is_none() => write(new, ttl).await,
            Mistake::LosesAWrite if is_expected && call % 20 == 0 => Ok(Swapped::Done(None)),
            Mistake::SaysDoneAfterAConflict if !is_expected => Ok(Swapped::Done(None)),
            Mistake::ConflictWrites if !is_expected => {
                write(new, ttl).await?;
                Ok(Swapped::Conflict(None))
            }
            Mistake::ChecksBeforeItWrites if is_expected => {
                tokio::task::yield_now().await;
                let now = self.store.load(key).await?.value;
                let version = now.map(|value| value.version);
                self.store.swap(key, version, new, ttl).await
            }
            Mistake::DropsBytes => {
                let mut new = new.clone();
                new.bytes.truncate(65_535);
                self.store.swap(key, expected, &new, ttl).await
            }
            Mistake::ExpiresEarly => self.store.swap(key, expected, new, ttl / 2).await,
            Mistake::NeverFreesAKey => self.store.swap(key, expected, new, Duration::MAX).await,
            _ => self.store.swap(key, expected, new, ttl).await,
        }
    }
}

/// Shows promise 370.
#[tokio::test(start_paused = true)]
async fn the_check_of_a_store_finds_every_planted_mistake() {
    assert_eq!(check_cas_store(MemoryStore::new()).await, Ok(()));
    assert_eq!(check_cas_store(Mistaken::new(Mistake::None)).await, Ok(()));
    for mistake in [
        Mistake::IgnoresTheVersion,
        Mistake::IgnoresAnAbsentValue,
        Mistake::LosesAWrite,
        Mistake::SaysDoneAfterAConflict,
        Mistake::ConflictWrites,
        Mistake::ReturnsAnOldValue,
        Mistake::ChecksBeforeItWrites,
        Mistake::DropsBytes,
        Mistake::SharesOneValue,
        Mistake::ExpiresEarly,
        Mistake::NeverFreesAKey,
    ] {
        let checked = check_cas_store(Mistaken::new(mistake)).await;
        assert!(checked.is_err(), "{mistake:?} is not found");
    }
}
