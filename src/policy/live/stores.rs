//! The stores whose URLs a file contains.

use super::environment::Environment;
use crate::policy::file::StoreSource;
#[cfg(feature = "postgres")]
use crate::store::cas::{CasBuilder, postgres::PostgreSql};
#[cfg(feature = "redis")]
use crate::store::redis::Redis;

impl Environment {
    /// Adds a store of a file. Connections are opened with the first request.
    pub(super) fn store_of(self, source: &StoreSource, name: &str) -> Result<Self, String> {
        match source.parts() {
            #[cfg(feature = "redis")]
            ("redis", url, deadline) => {
                let redis = Redis::open(url).map_err(|error| error.to_string())?;
                let redis = redis.deadline(deadline);
                Ok(self.store(name, move |name, algorithm| {
                    redis.try_limiter(name, algorithm)
                }))
            }
            // The table is that of `PostgreSql::create_table`.
            #[cfg(feature = "postgres")]
            ("postgres", url, deadline) => {
                let store = PostgreSql::open(url).map_err(|error| error.to_string())?;
                let builder = CasBuilder::new(store).deadline(deadline);
                Ok(self.store(name, move |name, algorithm| {
                    builder.clone().build(name, algorithm)
                }))
            }
            (feature, ..) => {
                drop(self);
                Err(format!(
                    "{name} needs the feature `{feature}` of tower-throttle"
                ))
            }
        }
    }
}
