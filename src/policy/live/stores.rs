//! The stores whose URLs a file contains.

use std::time::Duration;

use super::environment::MakeLimiter;
#[cfg(any(feature = "redis", feature = "postgres"))]
use super::environment::make_limiter;
use crate::policy::file::StoreSource;
#[cfg(feature = "postgres")]
use crate::store::cas::{CasBuilder, postgres::PostgreSql};
#[cfg(feature = "redis")]
use crate::store::redis::Redis;

/// What makes the limiters of a store. Connections are opened with the first request.
pub(super) fn open(source: &StoreSource) -> Result<MakeLimiter, String> {
    let deadline = Duration::from_millis(source.deadline_ms.map_or(100, |ms| ms.0));
    match source.url() {
        ("redis", url) => redis(url, deadline),
        (_, url) => postgres(url, deadline),
    }
}

#[cfg(feature = "redis")]
fn redis(url: &str, deadline: Duration) -> Result<MakeLimiter, String> {
    let redis = Redis::open(url).map_err(|error| error.to_string())?;
    let redis = redis.deadline(deadline);
    Ok(make_limiter(move |name, algorithm| {
        redis.try_limiter(name, algorithm)
    }))
}

#[cfg(not(feature = "redis"))]
fn redis(_: &str, _: Duration) -> Result<MakeLimiter, String> {
    Err("it needs the feature `redis` of tower-throttle".to_owned())
}

/// The table is that of `PostgreSql::create_table`.
#[cfg(feature = "postgres")]
fn postgres(url: &str, deadline: Duration) -> Result<MakeLimiter, String> {
    let store = PostgreSql::open(url).map_err(|error| error.to_string())?;
    Ok(make_limiter(move |name, algorithm| {
        let builder = CasBuilder::new(store.clone()).deadline(deadline);
        builder.build(name, algorithm)
    }))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str, _: Duration) -> Result<MakeLimiter, String> {
    Err("it needs the feature `postgres` of tower-throttle".to_owned())
}
