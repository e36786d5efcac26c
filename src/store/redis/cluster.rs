//! Commands to a cluster, with redirections.

use std::time::Duration;

use redis::ServerErrorKind::{Ask, Moved};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, RedisError, Value};

use crate::store::remote::SlotOwners;

/// How long one server may take to report the slots. After that another one is asked.
const TOPOLOGY_TIMEOUT: Duration = Duration::from_millis(100);
const TOPOLOGY_ATTEMPTS: usize = 4;

/// Ranges of slots and the ids of their masters; empty if no server replied in time.
pub(super) async fn slot_owners(connection: &mut ClusterConnection) -> SlotOwners {
    for _ in 0..TOPOLOGY_ATTEMPTS {
        let fetched = tokio::time::timeout(TOPOLOGY_TIMEOUT, fetch_slot_owners(connection)).await;
        if let Ok(Ok(owners)) = fetched {
            return owners;
        }
    }
    SlotOwners::new()
}

async fn fetch_slot_owners(connection: &mut ClusterConnection) -> Result<SlotOwners, RedisError> {
    /// The first and the last slot, then the host, the port, the id and more of the master.
    type Range = (u16, u16, Vec<Value>);
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    let reply = connection.route_command(command, routing).await?;
    let Value::Array(ranges) = reply.extract_error()? else {
        return Ok(SlotOwners::new());
    };
    let mut owners = SlotOwners::new();
    for range in ranges {
        // The replicas come after the master.
        let Value::Array(mut range) = range else {
            continue;
        };
        range.truncate(3);
        let (first, last, master): Range = redis::from_redis_value(Value::Array(range))?;
        // A server may change its address, but not its id.
        if let Some(id) = master.into_iter().nth(2) {
            let id: String = redis::from_redis_value(id)?;
            owners.push((first, last, id.into()));
        }
    }
    owners.sort_unstable();
    Ok(owners)
}

/// Sends a command to the server of its slot. If that redirects it, the command was not executed
/// and is sent once more.
pub(super) async fn send(
    connection: &mut ClusterConnection,
    command: &Cmd,
) -> Result<Value, RedisError> {
    let reply = redis::aio::ConnectionLike::req_packed_command(connection, command).await;
    let error = match reply.and_then(Value::extract_error) {
        Err(error) => error,
        value => return value,
    };
    let ErrorKind::Server(kind @ (Ask | Moved)) = error.kind() else {
        return Err(error);
    };
    let node = error.redirect_node().and_then(|(node, _)| {
        let (host, port) = node.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    });
    let Some((host, port)) = node else {
        return Err(error);
    };
    let to = SingleNodeRoutingInfo::ByAddress { host, port };
    if kind == Moved {
        let routing = RoutingInfo::SingleNode(to);
        let reply = connection.route_command(command.clone(), routing).await?;
        return reply.extract_error();
    }
    // The slot is migrating: its new server accepts the command only after ASKING.
    let mut pipeline = redis::pipe();
    pipeline.cmd("ASKING").add_command(command.clone());
    let replies = connection.route_pipeline(pipeline, 1, 1, to).await?;
    let reply = replies.into_iter().next().unwrap_or(Value::Nil);
    reply.extract_error()
}
