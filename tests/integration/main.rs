//! What needs no server of its own, or only for a moment, and counts nothing of the whole process.

mod client;
mod compile_fail;
#[cfg(feature = "governor")]
mod gcra;
mod matrix;
mod operator;
mod readme;
mod vectors;
mod vocabulary;
