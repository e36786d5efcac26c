//! The files of the page.

use axum::{
    Router,
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, media type and text of each file.
pub(crate) const FILES: [(&str, &str, &str); 10] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", CSS, include_str!("page/style.css")),
    ("/app.js", SCRIPT, include_str!("page/app.js")),
    ("/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/lane.js", SCRIPT, include_str!("page/lane.js")),
    ("/live.js", SCRIPT, include_str!("page/live.js")),
    ("/policies.js", SCRIPT, include_str!("page/policies.js")),
    ("/setting.js", SCRIPT, include_str!("page/setting.js")),
    ("/what-if.js", SCRIPT, include_str!("page/what-if.js")),
];

/// Nothing from other servers. The picture in a `data:` URL is the empty icon.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'";

pub(crate) fn routes() -> Router {
    FILES
        .iter()
        .fold(Router::new(), |router, (path, media, text)| {
            router.route(path, get(move || async { file(media, text) }))
        })
}

fn file(media: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, media),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ];
    (headers, text)
}
