//! How each example runs, as `cargo run --example` takes it. `cargo run -p quickstart` runs the first one.

/// Name, features and arguments, in which `TMP` is a folder, and `REDIS` and `POSTGRES` are the URLs of servers.
pub(crate) const EXAMPLES: [&str; 29] = [
    "quickstart",
    "axum_routes",
    "client_pacing",
    "lists",
    "login",
    "queue",
    "restart",
    "tiers",
    "plans",
    "tokens",
    "redis --features redis -- REDIS",
    "postgres --features postgres -- POSTGRES",
    "fleet --features cas,redis -- REDIS",
    "own_algorithm",
    "plain_service",
    "proxies",
    "sampler",
    "overload -- Gradient2",
    "pictures -- TMP",
    "connections --features accept",
    "configured --features policies",
    "grpc --features tonic",
    "grpc_messages --features stream,tonic",
    "observe --features metrics",
    "replay -- TMP/trace.jsonl",
    "replay -- --summary TMP/trace.jsonl",
    "replay -- --svg TMP/trace.svg TMP/trace.jsonl",
    "replay -- --help",
    "replay --features redis -- --redis REDIS TMP/trace.jsonl",
];

/// Examples that serve until they are stopped or need a large server: the stages `cassandra` and `playground` start them.
pub(crate) const STARTED_BY_TESTS: [&str; 2] = ["cassandra", "playground"];
