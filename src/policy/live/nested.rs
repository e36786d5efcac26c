//! The path of a request in a nested router of axum.

use axum::extract::{NestedPath, OriginalUri};
use http::Extensions;

/// What a nested router of axum has left of the path, with its empty segments.
///
/// `Router::nest("/api", ..)` serves `/api//login` by its route `/{tenant}/login`, and then removes one
/// `/` too many: the URI says `/login`. A nested service is asked for that path instead, so a limit
/// applies if either path matches.
pub(super) fn nested(extensions: &Extensions) -> Option<&str> {
    let prefix = extensions.get::<NestedPath>()?.as_str();
    let original = extensions.get::<OriginalUri>()?.path();
    let segments = prefix.trim_end_matches('/').matches('/').count();
    let (at, _) = original.match_indices('/').nth(segments)?;
    Some(&original[at..])
}
