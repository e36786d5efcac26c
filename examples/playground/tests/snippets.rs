//! The code that the page offers compiles, and the application that it makes has the limit.

use axum::{Router, body::Body, http::Request};
use tower::ServiceExt;
use tower_throttle::key::PeerAddr;

macro_rules! snippets {
    ($($name:ident)*) => {
        $(#[allow(
            unreachable_pub,
            clippy::duration_suboptimal_units,
            reason = "the code is for a file of its own, and for the oldest supported Rust"
        )]
        mod $name {
            include!(concat!("snippets/", stringify!($name), ".rs"));
        })*

        fn all() -> Vec<(&'static str, Router)> {
            vec![$((stringify!($name), $name::app())),*]
        }
    };
}

snippets! {
    token_bucket leaky_bucket leaky_bucket_queue fixed_window fixed_window_anchored sliding_window
    sliding_grid sliding_log warm_up lockout several
}

#[tokio::test(start_paused = true)]
async fn each_application_denies_a_client_in_the_end() {
    for (name, app) in all() {
        let mut denied = false;
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..10_100 {
            let mut request = Request::get("/").body(Body::empty()).unwrap();
            let client = PeerAddr(([192, 0, 2, 7], 4711).into());
            request.extensions_mut().insert(client);
            requests.spawn(app.clone().oneshot(request));
        }
        while let Some(response) = requests.join_next().await {
            denied |= response.unwrap().unwrap().status() == 429;
        }
        assert!(denied, "{name}");
    }
}
