//! When a queued request pays for a cost above one.

/// When a request of cost n in a line pays: after its turn or before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charge {
    /// The request is released as soon as the line is free, and the next one n intervals later.
    #[default]
    After,
    /// The request is released n intervals after the previous one, regardless of its cost.
    Before,
}
