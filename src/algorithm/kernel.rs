//! What an algorithm counts, for stores that decide beside the data.

/// What one limit counts, in units: a level, cells of time, or moments. A store that knows these decides every limit
/// that consists of them. Lengths and times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Costs raise it, time lowers it.
    Level(Level),
    /// Costs counted per cell of time.
    Cells(Cells),
    /// The moment of every cost counts for a period.
    Log {
        /// The most that counts.
        limit: u64,
        /// How long a cost counts.
        period: u64,
    },
}

/// A level of which `rate` units drain in a `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) rate: u64,
    pub(crate) period: u64,
    pub(crate) capacity: u64,
    /// What is used of a new key.
    pub(crate) initial: u64,
}

/// Cells of which the newest `count` are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    pub(crate) limit: u64,
    pub(crate) length: u64,
    pub(crate) offset: u64,
    pub(crate) count: u64,
    pub(crate) division: Division,
}

/// How time is divided into cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    /// Into cells of one length.
    Even,
    /// The same; of two cells the older one counts less and less.
    Weighted,
    /// A cell begins with the first cost after the one before it.
    Anchored,
    /// Windows of the calendar.
    Calendar {
        /// Says which windows: no two calendars have one name.
        name: String,
        /// In seconds: where the window before that of the present begins, that window, the next one, and the one
        /// after that.
        starts: [u64; 4],
    },
}
