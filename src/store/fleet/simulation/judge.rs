//! Counts admissions as the algorithm itself would, to see by how much they exceed it.

use std::collections::VecDeque;

use crate::store::fleet::shape::{Shape, ShapePart, Used, signed};

/// One key as an exact limiter would see it.
#[derive(Debug)]
pub(super) struct Judge {
    shape: Shape,
    at: u64,
    used: Vec<Used>,
    /// For grids and logs: each admission within the period.
    log: VecDeque<u64>,
    pub(super) excess: i64,
    pub(super) admitted: u64,
    /// Admitted per second.
    pub(super) seconds: Vec<u64>,
}

impl Judge {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            used: shape.parts.iter().map(ShapePart::unused).collect(),
            shape: shape.clone(),
            at: 0,
            log: VecDeque::new(),
            excess: i64::MIN,
            admitted: 0,
            seconds: Vec::new(),
        }
    }

    /// An admission at the true time `now`, which never decreases.
    pub(super) fn admit(&mut self, now: u64, start: u64) {
        let second = usize::try_from((now - start) / 1_000_000).unwrap();
        self.seconds.resize(self.seconds.len().max(second + 1), 0);
        self.seconds[second] += 1;
        self.admitted += 1;
        let period = self.shape.parts.iter().filter_map(|part| match part {
            ShapePart::Cells(grid) if grid.count > 2 => Some(grid.length * (grid.count as u64 - 1)),
            _ => None,
        });
        let period = period.max().unwrap_or(0);
        self.log.push_back(now);
        while self.log.front().is_some_and(|first| first + period <= now) {
            self.log.pop_front();
        }
        for (part, used) in self.shape.parts.iter().zip(&mut self.used) {
            part.advance(used, self.at, now);
            part.charge(used, now, 1, now);
            let excess = match part {
                ShapePart::Cells(grid) if grid.count > 2 => {
                    signed(self.log.len() as u64) - signed(grid.limit)
                }
                _ => -part.free(used, now),
            };
            self.excess = self.excess.max(excess);
        }
        self.at = now;
    }
}
