//! What the pages of the guide say about behavior, page by page.

mod clients;
mod layers;
mod support;
