//! The table, and the texts of the statements.

use std::{fmt, time::Duration};

use crate::error::ConfigError;
use crate::store::remote::is_table_name;

/// The longest name that Cassandra allows.
const MAX_NAME: usize = 48;
const YEAR: i64 = 365 * 86_400;
/// The longest time to live that Cassandra allows.
const MAX_TTL_SECONDS: i64 = 20 * YEAR;
/// The last expiry of tables that Cassandra 4 can read, in January 2038, and a day for clocks that
/// are ahead.
const LAST_EXPIRY: i64 = 0x7fff_ffff - 86_400;

/// The texts of all statements on one table.
#[derive(Clone)]
pub(super) struct Cql {
    /// The table's name, as it was given.
    pub(super) table: String,
    pub(super) load: String,
    pub(super) insert: String,
    pub(super) update: String,
    pub(super) migration: String,
}

impl Cql {
    /// The statements on `table`, which is a keyspace and a name.
    pub(super) fn new(table: &str) -> Result<Self, ConfigError> {
        let name = quoted(table)?;
        // Never INSERT: the row that it makes would outlive values with a shorter time to live, and
        // would then be in the way as a row without a version. The conditions name both columns, so
        // that a conflict returns both.
        let update =
            format!("UPDATE {name} USING TTL ? SET version = ?, value = ? WHERE key = ? IF");
        Ok(Self {
            table: table.to_owned(),
            load: format!("SELECT version, value FROM {name} WHERE key = ?"),
            insert: format!("{update} version = null AND value = null"),
            update: format!("{update} version = ? AND value != null"),
            migration: format!(
                "\
-- The states of rate limits: tower-throttle writes one row per key, with a time to live.
CREATE TABLE IF NOT EXISTS {name} (
    key     text PRIMARY KEY,
    version bigint,
    value   blob
) WITH gc_grace_seconds = 10800;
"
            ),
        })
    }
}

/// Manual impl: the statements are long, and follow from the name.
impl fmt::Debug for Cql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cql").field(&self.table).finish()
    }
}

/// Whole seconds, rounded up. One more, because Cassandra counts from the start of the present second.
/// Zero would mean for ever. `now` is in seconds since 1970.
pub(super) fn ttl_seconds(ttl: Duration, now: u64) -> i32 {
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let longest = LAST_EXPIRY.saturating_sub(now).clamp(YEAR, MAX_TTL_SECONDS);
    let seconds = i64::try_from(ttl.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX);
    i32::try_from(seconds.saturating_add(1).min(longest)).unwrap_or(i32::MAX)
}

fn quoted(table: &str) -> Result<String, ConfigError> {
    let is_name = |part| is_table_name(part, MAX_NAME);
    match table.split_once('.') {
        Some((keyspace, name)) if is_name(keyspace) && is_name(name) => {
            Ok(format!("\"{keyspace}\".\"{name}\""))
        }
        _ => Err(ConfigError::out_of_range(
            "table",
            table,
            format!(
                "a keyspace and a table with a dot between them, each of 1 to {MAX_NAME} lowercase \
                 letters, digits and _ that begin with a letter"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_keyspace_and_a_name() {
        let longest = format!("{0}.{0}", "t".repeat(MAX_NAME));
        for name in ["app.limits", "a.b2_", &longest] {
            assert!(Cql::new(name).is_ok(), "{name}");
        }
        let longer = format!("app.{}", "t".repeat(MAX_NAME + 1));
        for name in [
            "",
            ".",
            "limits",
            "app.",
            ".limits",
            "a.b.c",
            "app.Limits",
            "app.1",
            "app._a",
            "app.a b",
            "app.a\"; DROP TABLE b",
            &longer,
        ] {
            let error = Cql::new(name).expect_err(name);
            let start = format!("table: {name} is not allowed; give a keyspace and a table");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
    }

    /// Shows promise 85.
    #[test]
    fn a_time_to_live_is_never_too_short_and_never_zero() {
        const NOW: u64 = 1_800_000_000;
        let seconds = |nanos| ttl_seconds(Duration::from_nanos(nanos), NOW);
        assert_eq!(seconds(0), 1);
        assert_eq!(seconds(1), 2);
        assert_eq!(seconds(1_000_000_000), 2);
        assert_eq!(seconds(1_000_000_001), 3);
        // 2038-01-18.
        let longest = i32::try_from(LAST_EXPIRY).unwrap() - 1_800_000_000;
        assert_eq!(ttl_seconds(Duration::MAX, NOW), longest);
        let more = Duration::from_secs(u64::from(u32::MAX));
        assert_eq!(ttl_seconds(more, NOW), longest);
        for now in [2_140_000_000, u64::MAX] {
            assert_eq!(i64::from(ttl_seconds(Duration::MAX, now)), YEAR);
        }
    }
}
