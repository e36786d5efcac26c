//! What policies do to requests, in virtual time.

mod api;
mod log;
mod outcome;
mod requests;

pub(crate) use self::api::routes;

#[cfg(test)]
mod tests;
