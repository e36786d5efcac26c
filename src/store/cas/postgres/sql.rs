//! The table and the statements.
//!
//! The moments in the table are microseconds since 1970, in whole numbers. They are read with
//! `clock_timestamp()`: `now()` is the moment at which the transaction began.

use std::time::Duration;

use crate::error::ConfigError;
use crate::store::remote::is_table_name;

/// The present moment.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/// Begins the transaction of a batch. Each of its statements sees what was committed before, whatever the
/// default of the role. A machine that stops in the middle holds its locks for a second at most. It waits for a
/// locked row no longer than a swap does.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
                     SET LOCAL idle_in_transaction_session_timeout = '1s'; \
                     SET LOCAL lock_timeout = '1s'";
/// A row is due so long after it expires: as long as its time to live, but within these bounds. So its index entry
/// changes at most once in that time.
pub(super) const MIN_SLACK: Duration = Duration::from_secs(60);
pub(super) const MAX_SLACK: Duration = Duration::from_secs(3_600);
/// How many rows that are due a sweep reads.
const SWEPT: u32 = 50;
/// The longest name, so that the name of the index fits in 63 bytes.
const MAX_NAME: usize = 54;
/// Taken while the table is made: two machines that make it at once would both fail to find it. Also mixed
/// into the locks for which the machines of a fleet queue.
const LOCK: i64 = 0x7468_726f_7474_6c65;

/// The texts of the statements on one table.
#[derive(Debug)]
pub(super) struct Sql {
    /// Its name, as it was given.
    pub(super) name: String,
    /// The same in quotes.
    quoted: String,
    pub(super) load: String,
    pub(super) insert: String,
    pub(super) update: String,
    /// Locks the rows of several keys.
    pub(super) lock: String,
    pub(super) read: String,
    pub(super) write: String,
    /// Finds out whether the table is there, has the columns, and may be read.
    pub(super) probe: String,
    pub(super) sweep: String,
    pub(super) begin: String,
    index: String,
}

impl Sql {
    /// The statements on `table`, which may be preceded by a schema.
    pub(super) fn new(table: &str) -> Result<Self, ConfigError> {
        let parts: Vec<&str> = table.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_table_name(part, MAX_NAME)) {
            return Err(ConfigError::out_of_range(
                "table",
                table,
                format!(
                    "a name of 1 to {MAX_NAME} lowercase letters, digits and _ that begins with a \
                     letter, or a schema and such a name with a dot between them"
                ),
            ));
        }
        // In quotes, a word of SQL such as `limit` is a name.
        let quoted = format!("\"{}\"", parts.join("\".\""));
        let [least, most] = [MIN_SLACK, MAX_SLACK].map(|slack| slack.as_micros());
        Ok(Self {
            load: format!(
                "SELECT clock.now, t.version, t.value, t.expires_at \
                 FROM (SELECT {NOW} AS now) AS clock LEFT JOIN {quoted} AS t ON t.key = $1"
            ),
            // No row is returned if nothing was written. To return the row that is in the way takes
            // a second part of the statement, which makes each swap half as slow again.
            insert: format!(
                "INSERT INTO {quoted} AS t (key, version, value, expires_at, sweep_at) \
                 VALUES ($1, $2, $3, {NOW} + $4::bigint, {NOW} + $4::bigint + $5::bigint) \
                 ON CONFLICT (key) DO UPDATE SET version = excluded.version, value = excluded.value, \
                 expires_at = excluded.expires_at \
                 WHERE t.expires_at <= excluded.expires_at - $4::bigint RETURNING t.expires_at"
            ),
            // It changes no indexed column. A sweep moves `sweep_at` of rows that have not expired.
            update: format!(
                "UPDATE {quoted} AS t SET version = $2, value = $3, expires_at = {NOW} + $4::bigint \
                 WHERE t.key = $1 AND t.version = $5 RETURNING t.expires_at"
            ),
            // Locks the rows in the order of the keys, so no two transactions wait for each other. A row
            // that is not there yet is inserted as one that has expired; the others are not written, so that
            // one new version of each fits in its page. Machines that use the same keys queue for the first
            // of them: a row wakes all that wait for it, as each commit moves it.
            lock: format!(
                "INSERT INTO {quoted} AS t (key, version, value, expires_at, sweep_at) \
                 SELECT k.key, 0, '', 0, {NOW} + $3::bigint \
                 FROM (SELECT pg_advisory_xact_lock(hashtextextended($2::text, {LOCK})), \
                 set_config('lock_timeout', '50ms', true)) AS turn, \
                 unnest($1::text[]) AS k (key) ORDER BY k.key COLLATE \"C\" \
                 ON CONFLICT (key) DO UPDATE SET version = t.version WHERE false"
            ),
            // A statement of its own: it sees what was committed before the rows were locked.
            read: format!(
                "SELECT clock.now, t.version, t.value, t.expires_at \
                 FROM (SELECT {NOW} AS now) AS clock, \
                 unnest($1::text[]) WITH ORDINALITY AS k (key, place) JOIN {quoted} AS t USING (key) \
                 ORDER BY k.place"
            ),
            write: format!(
                "UPDATE {quoted} AS t SET version = n.version, value = n.value, \
                 expires_at = {NOW} + n.ttl \
                 FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[]) \
                 AS n (key, version, value, ttl) WHERE t.key = n.key"
            ),
            probe: format!(
                "SELECT has_table_privilege('{quoted}', 'INSERT') AND \
                 has_table_privilege('{quoted}', 'UPDATE') AND \
                 has_table_privilege('{quoted}', 'DELETE'), pg_is_in_recovery(), \
                 EXISTS (SELECT key, version, value, expires_at, sweep_at FROM {quoted} WHERE key = '')"
            ),
            // Rows that another machine writes or sweeps are skipped. A row that was written after
            // this statement began is read again as it is locked.
            sweep: format!(
                "WITH clock AS (SELECT {NOW} AS now), due AS (\
                 SELECT t.key, t.expires_at FROM {quoted} AS t \
                 WHERE t.sweep_at < (SELECT now FROM clock) \
                 ORDER BY t.sweep_at LIMIT {SWEPT} FOR UPDATE SKIP LOCKED), kept AS (\
                 UPDATE {quoted} AS t SET sweep_at = due.expires_at + \
                 least(greatest(due.expires_at - clock.now, {least}), {most}) \
                 FROM due, clock WHERE t.key = due.key AND due.expires_at > clock.now) \
                 DELETE FROM {quoted} AS t USING due, clock \
                 WHERE t.key = due.key AND due.expires_at <= clock.now"
            ),
            index: format!("\"{}_sweep_at\"", parts[parts.len() - 1]),
            name: table.to_owned(),
            quoted,
            begin: BEGIN.to_owned(),
        })
    }

    /// The statements that make the table.
    pub(super) fn migration(&self, logged: bool) -> String {
        let (name, index) = (&self.quoted, &self.index);
        let unlogged = if logged { "" } else { "UNLOGGED " };
        format!(
            "\
-- The states of rate limits: tower-throttle writes one row per key.
CREATE {unlogged}TABLE IF NOT EXISTS {name} (
    key        text COLLATE \"C\" PRIMARY KEY,
    version    bigint NOT NULL,
    value      bytea NOT NULL,
    expires_at bigint NOT NULL, -- microseconds since 1970
    sweep_at   bigint NOT NULL  -- the same: when another write reads the row, and removes it or sets this anew
) WITH (
    -- Half of each page is for new versions of its rows. Updates then change no index.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 1000
);
CREATE INDEX IF NOT EXISTS {index} ON {name} (sweep_at);
"
        )
    }

    /// The same for a program that several machines start at once, as one transaction.
    pub(super) fn locked_migration(&self, logged: bool) -> String {
        let migration = self.migration(logged);
        format!(
            "SET LOCAL lock_timeout = '10s';\nSELECT pg_advisory_xact_lock({LOCK});\n{migration}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_name_with_an_optional_schema() {
        let longest = "t".repeat(MAX_NAME);
        for name in ["limits", "limit", "a_2", "app.limits", &longest] {
            assert!(Sql::new(name).is_ok(), "{name}");
        }
        let longer = "t".repeat(MAX_NAME + 1);
        for name in [
            "",
            ".",
            "a.",
            ".a",
            "a.b.c",
            "Limits",
            "1a",
            "_2",
            "a b",
            "a\"; DROP TABLE b",
            "é",
            &longer,
        ] {
            let error = Sql::new(name).expect_err(name);
            let start = format!("table: {name} is not allowed; give a name of 1 to 54");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
    }

    #[test]
    fn the_index_is_in_the_schema_of_its_table() {
        let text = Sql::new("app.limits").expect("a name").migration(false);
        assert!(text.contains("CREATE UNLOGGED TABLE IF NOT EXISTS \"app\".\"limits\" ("));
        let index = "INDEX IF NOT EXISTS \"limits_sweep_at\" ON \"app\".\"limits\" (sweep_at)";
        assert!(text.contains(index), "{text}");
        let text = Sql::new("limits").expect("a name").migration(true);
        assert!(text.contains("CREATE TABLE IF NOT EXISTS \"limits\" ("));
    }
}
