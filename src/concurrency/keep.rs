//! The permits of a request, which a program may hold for longer than the response lasts.

use std::sync::{Arc, Weak};

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
/// Move it into the task that serves the connection, and put what [`keep`](Self::keep) returns into the
/// extensions of the response. Each [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) that the response
/// passes on its way out then leaves its permit to the holder. They are released when the holder is dropped:
/// when the task ends, panics or is aborted, or at once if the connection was not upgraded.
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
///     let keep = Extension(holder.keep());
///     // With `WebSocketUpgrade`: `upgrade.on_upgrade(async move |socket| { .. drop(holder) })`.
///     tokio::spawn(async move {
///         std::future::pending::<()>().await;
///         drop(holder);
///     });
///     (StatusCode::SWITCHING_PROTOCOLS, keep)
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
#[derive(Debug, Default)]
pub struct PermitHolder(Arc<Mutex<Vec<HeldPermits>>>);

/// An extension of a response: its permits go to a [`PermitHolder`], as long as that exists.
#[derive(Clone, Debug)]
pub struct KeepPermits(Weak<Mutex<Vec<HeldPermits>>>);

impl PermitHolder {
    /// Holds nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What goes into the [extensions](http::Response::extensions_mut) of the response; in axum as
    /// `Extension(holder.keep())`.
    pub fn keep(&self) -> KeepPermits {
        KeepPermits(Arc::downgrade(&self.0))
    }
}

/// Leaves the permits to the holder that the response names. Returns them if there is none, or none any more.
#[inline]
pub(super) fn hand_over(extensions: &Extensions, held: HeldPermits) -> Option<HeldPermits> {
    let keep = extensions.get::<KeepPermits>();
    let Some(holder) = keep.and_then(|keep| keep.0.upgrade()) else {
        return Some(held);
    };
    // If the holder is dropped meanwhile, this is the last reference, and the permits are released here.
    lock(&holder).push(held);
    None
}
