//! A limit in PostgreSQL: one row per key, and one statement per decision.
//!
//! # The table
//! [`create_table`](PostgreSql::create_table) makes it, or a migration with the statements that
//! [`migration`](PostgreSql::migration) returns. Several programs and limits may share one table.
//!
//! By default it is `UNLOGGED`: a write is not logged, so a decision does not wait for the disk.
//! After a crash of the server the table is empty, and each limit starts afresh; after an orderly
//! restart it is as it was. Replicas have no rows of it, so a limit also starts afresh after a
//! failover. [`logged`](PostgreSql::logged) changes both.
//!
//! Half of each page is left free, and updates change no indexed column. Old versions of a
//! row are then removed by the next update of the page. A transaction elsewhere that stays open
//! stops this, and makes each statement slower.
//!
//! # Rows that have expired
//! Each 25th write removes up to 50 rows that have expired, most of them a minute ago or more, so a table does not grow
//! beyond what is in use. One that is written no more stays as it is, until you drop it.
//!
//! # Time
//! The server's clock decides, so the clocks of the machines may differ.
//!
//! # Isolation
//! Each statement is a transaction of its own. Any isolation level works; `READ COMMITTED`, the
//! default, has the fewest conflicts. The batch of a fleet, and decisions on keys that other machines use
//! at once, are a transaction on a connection that no other call uses meanwhile. A thread of this crate serves it, and
//! decides on these keys: a machine whose runtime is overloaded does not hold its locks for longer. A transaction locks
//! its rows in the order of their keys, each once for all calls of this machine. So machines take turns, and none works
//! in vain. A machine that stops in the middle holds its locks for a second at most. Calls for a row that another
//! transaction holds for more than 50 ms fail, and those for other rows do not.

mod connections;
mod error;
mod sql;
mod statements;
mod store;

pub use self::store::PostgreSql;
