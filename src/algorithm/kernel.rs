//! What an algorithm counts, for stores that decide beside the data.

use crate::quota::Quota;

/// What one limit counts, in units: a level, cells of time, or moments. A store that knows these decides every limit
/// that consists of them. Lengths and times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
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
#[expect(
    missing_docs,
    reason = "hidden; the fields are the settings of buckets"
)]
pub struct Level {
    pub rate: u64,
    pub period: u64,
    pub capacity: u64,
    pub max_cost: u64,
    /// What is used of a new key.
    pub initial: u64,
    pub turns: Turns,
    /// How many units may wait; `None` if requests do not queue.
    pub places: Option<u64>,
    pub max_wait: u64,
}

/// When the turn of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// It has none.
    Never,
    /// When the level with its cost is within the capacity.
    Tokens,
    /// When the level is zero; its cost raises it.
    After,
    /// When all of its units but one have drained too, which is earlier after a rest.
    Before,
}

/// Cells of which the newest `count` are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "hidden; the fields are the settings of windows"
)]
pub struct Cells {
    pub limit: u64,
    pub length: u64,
    pub offset: u64,
    pub count: u64,
    pub division: Division,
}

/// How time is divided into cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
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

impl Level {
    /// A bucket without turns.
    pub(super) const fn new(quota: &Quota, turns: Turns) -> Self {
        Self {
            rate: quota.limit(),
            period: quota.period_ns(),
            capacity: quota.capacity(),
            max_cost: quota.capacity(),
            initial: 0,
            turns,
            places: None,
            max_wait: u64::MAX,
        }
    }
}

impl Kernel {
    pub(super) fn cells(
        limit: u64,
        (length, offset): (u64, u64),
        count: u64,
        division: Division,
    ) -> Vec<Self> {
        vec![Self::Cells(Cells {
            limit,
            length,
            offset,
            count,
            division,
        })]
    }
}
