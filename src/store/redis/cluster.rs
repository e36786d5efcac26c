//! Commands to a cluster, with redirections.

use redis::ServerErrorKind::{Ask, Moved};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, RedisError, Value};

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
