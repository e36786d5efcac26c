//! What needs no server of its own, or only for a moment, and counts nothing of the whole process.

mod accept;
mod client;
mod compile_fail;
#[cfg(feature = "governor")]
mod gcra;
mod operator;
mod pacer;
mod refused;
mod stream;
mod vectors;
mod vocabulary;
