//! Without the feature `axum`, the URI has the path of a request.

use http::Extensions;

pub(super) const fn nested(_: &Extensions) -> Option<&str> {
    None
}
