//! A Redis server as a store with a compare-and-swap, for limits that decide in this process.

use std::{sync::LazyLock, time::Duration};

use redis::{Cmd, FromRedisValue, Value};

use super::{connection::STORE, send::Text, server::Redis};
use crate::clock::{Tick, nanos};
use crate::error::StoreError;
use crate::store::cas::{self, CasStore, Loaded, Program, Runs, Settings, Swapped};

static SCRIPT: LazyLock<Text> = LazyLock::new(|| Text::new(include_str!("lua/swap.lua")));

/// The bytes of a version, before those of its value.
const VERSION_LEN: usize = 8;

/// What the script replies: the seconds and microseconds of the time, whether it has swapped, and the value if it has not.
type Reply = (u64, u64, bool, Option<Vec<u8>>);

/// A limit that the script decides and one that is swapped have values at different keys.
///
/// ```no_run
/// use tower_throttle::store::{fleet::Synced, redis::Redis};
/// use tower_throttle::{Quota, TokenBucket};
///
/// # fn example() -> Result<(), tower_throttle::ConfigError> {
/// let redis = Redis::open("redis://127.0.0.1:6379")?;
/// let limit = Synced::new(redis, "api", TokenBucket::new(Quota::per_second(1_000)))?;
/// # Ok(())
/// # }
/// ```
impl CasStore for Redis {
    const NAME: &'static str = STORE;
    const RUNS: Runs = Runs::Scripts;

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        Ok(self.run_swap(key, |_| {}).await?.1)
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &cas::Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let expected = expected.map(u64::to_le_bytes);
        let expected = expected.as_ref().map_or(&[][..], |version| version);
        let mut value = Vec::with_capacity(VERSION_LEN + new.bytes.len());
        value.extend(new.version.to_le_bytes());
        value.extend(&new.bytes);
        // Rounded up, and never zero.
        let ttl_ms = nanos(ttl) / 1_000_000 + 1;
        let reply = self.run_swap(key, |command| {
            command.arg(expected).arg(&value[..]).arg(ttl_ms);
        });
        let (was_swapped, loaded) = reply.await?;
        Ok(if was_swapped {
            Swapped::Done(loaded.server_time)
        } else {
            Swapped::Conflict(Some(loaded))
        })
    }

    async fn run<P: Program>(&self, program: &P) -> Result<P::Reply, StoreError> {
        self.run_script(program).await
    }

    /// The keys of a cluster are on several servers. Calls are not batched then.
    fn group_of(&self, _: &str) -> Option<usize> {
        self.batches().then_some(0)
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }
}

impl Redis {
    /// Runs the script with the arguments that `add_args` adds. Returns whether it has swapped.
    async fn run_swap(
        &self,
        key: &str,
        add_args: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<(bool, Loaded), StoreError> {
        let reply = SCRIPT.send(&self.connection, |command| {
            command.arg(1).arg(format!("{key}:swap"));
            add_args(command);
        });
        let reply = reply.await.map_err(|error| error.error)?;
        parse(reply)
            .ok_or_else(|| StoreError::new("Redis: a reply that is not the script's", false))
    }
}

fn parse(reply: Value) -> Option<(bool, Loaded)> {
    let (seconds, micros, was_swapped, value) = Reply::from_redis_value(reply).ok()?;
    let micros = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    let value = match value {
        None => None,
        Some(bytes) => {
            let (version, bytes) = bytes.split_first_chunk::<VERSION_LEN>()?;
            let version = u64::from_le_bytes(*version);
            Some(cas::Value {
                version,
                bytes: bytes.to_vec(),
            })
        }
    };
    let server_time = Tick::from_nanos(micros.checked_mul(1_000)?);
    Some((
        was_swapped,
        Loaded {
            value,
            server_time: Some(server_time),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::cas::Faulty;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn servers_of_one_limit_have_clocks_of_their_own() {
        let url = "redis://127.0.0.1:1";
        let single = Redis::open(url).expect("a client");
        let builder = redis::cluster::ClusterClientBuilder::new([url]);
        let cluster = Redis::with_cluster(builder).expect("a client");
        for (store, group) in [(single, Some(0)), (cluster, None)] {
            assert_eq!(store.group_of(""), group);
            assert_eq!(Faulty::new(store).group_of(""), group);
        }
    }

    #[test]
    fn replies_of_other_forms_are_refused() {
        let reply = |parts: Vec<Value>| parse(Value::Array(parts)).is_some();
        let time = || vec![text("1767225600"), text("999999")];
        let with = |more: Vec<Value>| [time(), more].concat();
        assert!(reply(with(vec![Value::Int(1), Value::Nil])));
        assert!(reply(with(vec![Value::Int(0), Value::Nil])));
        assert!(reply(with(vec![Value::Int(0), text("version.state")])));
        assert!(!reply(with(vec![])));
        assert!(!reply(with(vec![Value::Int(0), text("short")])));
        assert!(!reply(with(vec![Value::Int(0), Value::Okay])));
        assert!(!reply(vec![text("now"), text("0"), Value::Int(1)]));
        assert!(!reply(vec![
            text("18446744073709551615"),
            text("0"),
            Value::Int(1)
        ]));
        assert!(parse(text("OK")).is_none());
    }
}
