//! Which request waits for a cost above one.

/// When a request of cost n in a line pays: after its turn or before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charge {
    /// The request goes as soon as the line is free. The next one goes n intervals later.
    #[default]
    After,
    /// The request goes n intervals after the previous one, whatever that one cost.
    Before,
}
