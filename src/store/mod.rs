//! Where the states of many keys live.

pub(crate) mod local;
