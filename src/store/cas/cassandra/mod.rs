//! A limit in Cassandra or ScyllaDB: one row per key, changed by lightweight transactions.
//!
//! # The table
//! [`create_table`](Cassandra::create_table) makes it in a keyspace that exists, or a migration with
//! the statement that [`migration`](Cassandra::migration) returns. Each value has a time to live, so
//! the table needs no sweeps. Write to it in no other way: a write that is no lightweight transaction
//! may be lost.
//!
//! # Data centers
//! By default each data center has a limit of its own, which its replicas agree on (`LOCAL_SERIAL`).
//! In a cluster of several, [`datacenter`](Cassandra::datacenter) names the one of this machine.
//! [`across_datacenters`](Cassandra::across_datacenters) makes it one limit for all of them, and each
//! decision waits for the slowest link that a quorum needs.
//!
//! # Time
//! Each machine uses its own clock: a cluster has none that all its nodes share. A machine whose clock
//! is ahead by `e` admits what refills in `e` once more. Keep clocks synchronized, as Cassandra needs
//! anyway.
//!
//! # Speed
//! A swap takes four round trips between the nodes, or two with `paxos_variant: v2` (Cassandra 4.1 or
//! later). Coordinators that swap the same row at once hinder each other, so each machine asks the
//! same replica first. Set a [deadline](super::Cas::deadline) of about 500 ms.

mod cql;
mod error;
mod rows;
mod session;
mod store;

pub use self::store::Cassandra;
