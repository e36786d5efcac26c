//! What the pages of the guide say about behavior, page by page.

mod layers;
mod migrating;
mod proxies;
mod support;
