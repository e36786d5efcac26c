//! The permits of a request, which a program may hold for longer than the response lasts.

use std::sync::Arc;

use http::Extensions;

use super::permit::Permit;
use crate::sync::{Mutex, lock};

/// The permits of a request, one per limit that it is in flight in. The body of its response has them, a
/// [`PermitBody`](super::PermitBody).
#[derive(Debug, Default)]
pub struct HeldPermits {
    _first: Option<Permit>,
    /// Those of several limits, as a policy file may have.
    _others: Vec<Permit>,
}

impl FromIterator<Permit> for HeldPermits {
    #[inline]
    fn from_iter<I: IntoIterator<Item = Permit>>(permits: I) -> Self {
        let mut permits = permits.into_iter();
        Self {
            _first: permits.next(),
            _others: permits.collect(),
        }
    }
}

/// Holds the permits of a request until it is dropped, whatever becomes of the response: for an upgraded
/// connection, such as a WebSocket, whose response 101 ends before the connection begins.
///
/// Move it into the task that serves the connection, and put a clone into the
/// [extensions](http::Response::extensions_mut) of the response. Each [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) that the response
/// passes on its way out then leaves its permit to the holder. They are released when the response and the holder are
/// dropped: when the task ends, panics or is aborted, or with the response if the connection was not upgraded.
///
/// A layer with [`release_at_response`](crate::ConcurrencyLimitLayer::release_at_response) leaves nothing.
///
/// ```
/// use axum::{Extension, Router, body::Body, extract::Request, response::IntoResponse, routing::get};
/// use http::StatusCode;
/// use tower::ServiceExt;
/// use tower_throttle::concurrency::{ConcurrencyLimitLayer, PermitHolder};
/// use tower_throttle::Global;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// async fn chat() -> impl IntoResponse {
///     let holder = PermitHolder::new();
///     let permit = Extension(holder.clone());
///     // With `WebSocketUpgrade`: `upgrade.on_upgrade(async move |socket| { .. drop(holder) })`.
///     tokio::spawn(async move {
///         std::future::pending::<()>().await;
///         drop(holder);
///     });
///     (StatusCode::SWITCHING_PROTOCOLS, permit)
/// }
///
/// let limit = ConcurrencyLimitLayer::new(Global, 100);
/// let handle = limit.handle();
/// let app: Router = Router::new().route("/chat", get(chat).layer(limit));
/// let response = app.oneshot(Request::get("/chat").body(Body::empty()).unwrap()).await.unwrap();
/// drop(response);
/// assert_eq!(handle.in_flight(&()), 1, "the connection goes on");
/// # }
/// ```
#[must_use = "dropping it releases the permits"]
#[derive(Clone, Debug, Default)]
pub struct PermitHolder(Arc<Mutex<Vec<HeldPermits>>>);

impl PermitHolder {
    /// Holds nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Leaves the permits to the holder that the response names. Returns them if there is none, or none any more.
#[inline]
pub(super) fn hand_over(extensions: &Extensions, held: HeldPermits) -> Option<HeldPermits> {
    let holder = extensions.get::<PermitHolder>();
    // The last clone is that of the response.
    let Some(PermitHolder(holder)) = holder.filter(|holder| Arc::strong_count(&holder.0) > 1)
    else {
        return Some(held);
    };
    lock(holder).push(held);
    None
}
