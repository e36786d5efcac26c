//! The tower part: that it keeps the contract between services, for any request.
mod axum_shape;
