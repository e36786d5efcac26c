//! What the crate logs with the feature `tracing` and measures with `metrics`. Without them, nothing is run.

/// Logs an event with the target `tower_throttle`.
macro_rules! log {
    ($level:ident, [$($field:ident = $value:expr),*], $($text:tt)+) => {{
        #[cfg(feature = "tracing")]
        ::tracing::$level!(target: "tower_throttle", $($field = $value,)* $($text)+);
        #[cfg(not(feature = "tracing"))]
        if false {
            let _ = ($(&$value,)* format_args!($($text)+));
        }
    }};
}

/// Changes a counter, a gauge or a histogram.
macro_rules! measure {
    ($kind:ident $name:expr, [$($label:literal = $value:expr),*], $change:ident($by:expr)) => {{
        #[cfg(feature = "metrics")]
        ::metrics::$kind!($name, $($label => $value),*).$change($by);
        #[cfg(not(feature = "metrics"))]
        if false {
            let _ = ($name, $(&$value,)* $by);
        }
    }};
}

pub(crate) use {log, measure};

#[cfg(feature = "tracing")]
pub(crate) use tracing::field::{debug as as_debug, display as as_text};

/// A field of an event, as its `Display` writes it.
#[cfg(not(feature = "tracing"))]
pub(crate) fn as_text<T>(value: T) -> T {
    value
}

/// A field of an event, as its `Debug` writes it.
#[cfg(not(feature = "tracing"))]
pub(crate) fn as_debug<T>(value: T) -> T {
    value
}
