//! The part of the oracle that counts failures, event by event.

use std::collections::BTreeMap;

/// The settings of a lockout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) limit: u64,
    pub(crate) period: u64,
    pub(crate) block: u64,
    pub(crate) max_block: u64,
    pub(crate) forget: u64,
}

/// The failures of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    settings: Blocks,
    attempts: BTreeMap<u64, u64>,
    /// How many blocks have ended.
    level: u32,
    /// When the present block ends.
    block: Option<u64>,
    /// When the last block ended.
    until: u64,
    /// The newest moment of an attempt.
    seen: u64,
}

impl Failures {
    fn count(&self) -> u64 {
        self.attempts.values().sum()
    }

    fn end_block(&mut self, end: u64) {
        self.level += 1;
        self.until = end;
        self.block = None;
        self.attempts.clear();
    }

    /// Drops what has ended by `now`.
    pub(crate) fn at(mut self, now: u64) -> Self {
        match self.block {
            Some(end) if now < end => return self,
            Some(end) => self.end_block(end),
            None => {}
        }
        if now >= self.until + self.settings.forget {
            self.level = 0;
        }
        let period = self.settings.period;
        self.attempts.retain(|at, _| now < at + period);
        self
    }

    /// Starts or ends the block, if the failures are as many or as few as that takes.
    fn with_block(mut self) -> Self {
        let Blocks {
            block, max_block, ..
        } = self.settings;
        if self.count() < self.settings.limit {
            self.block = None;
        } else if self.block.is_none() {
            let doubled = (0..self.level).fold(block, |length, _| (2 * length).min(max_block));
            self.block = Some((self.seen + doubled).max(self.until));
        }
        self
    }

    /// The same failures under other settings.
    pub(crate) fn under(mut self, settings: Blocks) -> Self {
        if self.settings != settings {
            self.settings = settings;
            self.block = None;
        }
        self.with_block()
    }

    pub(crate) fn fits(&self, now: u64, cost: u64) -> bool {
        let is_open = self.block.is_none() && now >= self.until;
        is_open && self.count().saturating_add(cost) <= self.settings.limit
    }

    pub(crate) fn take(mut self, now: u64, cost: u64) -> Self {
        if self.block.is_some() {
            let mut newest = self.attempts.last_entry().expect("a block has failures");
            *newest.get_mut() += cost;
        } else {
            *self.attempts.entry(now).or_default() += cost;
            self.seen = now;
        }
        self.with_block()
    }

    pub(crate) fn refund(mut self, taken_at: u64, now: u64, mut cost: u64) -> Self {
        // No failure of a block expires before the block ends.
        let period = match self.block {
            Some(_) => u64::MAX,
            None => self.settings.period,
        };
        for (at, held) in self.attempts.iter_mut().rev() {
            if *at <= taken_at && now < at.saturating_add(period) {
                let given = cost.min(*held);
                *held -= given;
                cost -= given;
            }
        }
        self.attempts.retain(|_, held| *held > 0);
        self.with_block()
    }

    pub(crate) fn owes(&self) -> bool {
        self.block.is_some() && self.count() > self.settings.limit
    }
}
