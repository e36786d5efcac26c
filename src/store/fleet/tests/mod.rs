//! Models that are explored state by state.

mod models;
