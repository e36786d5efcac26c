//! The states of all keys as bytes, shard by shard.
//!
//! An entry is how many lines after the one before it is, its tag, and its state. The last entry of a shard is
//! followed by a zero.

use std::io;

use super::{Table, TableShard, WINDOW, offset};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::saved::{Reading, SavedLimit, Writing, damaged};
use crate::store::local::line::{DENIED_MARK, FINGERPRINT_BITS};
use crate::sync::{PoisonError, lock};

impl<A: Algorithm> Table<A> {
    /// Writes the states that count at `now`: those of a copy of each shard, so that none is locked for long.
    pub(in crate::store::local) fn save(&self, now: Tick, out: &mut Writing) -> io::Result<()> {
        for shard in &self.shards {
            let shard = TableShard::clone(&lock(&shard.0.0));
            let mut last = 0;
            for (at, line) in shard.all_lines().enumerate() {
                for slot in line.used() {
                    let state = &line.states[slot];
                    if shard.algorithm.forgettable_at(state) > now {
                        out.number((at - last + 1) as u64);
                        last = at;
                        let tag = line.marked_tag(slot).to_le_bytes();
                        out.0.extend(&tag[..5]);
                        out.state(&*shard.algorithm, state)?;
                    }
                }
            }
            out.number(0);
        }
        Ok(())
    }

    /// Puts the states into an empty table of the same capacity.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a distance is checked to be below 32"
    )]
    pub(in crate::store::local) fn load(
        &mut self,
        saved: &SavedLimit<A>,
        from: &mut Reading<'_>,
    ) -> io::Result<()> {
        for shard in &mut self.shards {
            let shard = shard.0.0.get_mut().unwrap_or_else(PoisonError::into_inner);
            let lines = shard.lines;
            let mut last = 0_usize;
            loop {
                let further = match from.number()? {
                    0 => break,
                    further => usize::try_from(further - 1).map_err(|_| damaged())?,
                };
                let at = last.checked_add(further).filter(|at| *at < lines);
                let at = at.ok_or_else(damaged)?;
                last = at;
                let mut tag = [0; 8];
                tag[..5].copy_from_slice(from.bytes(5)?);
                let marked = u64::from_le_bytes(tag);
                let tag = marked & !DENIED_MARK;
                let distance = (tag >> FINGERPRINT_BITS) as usize;
                if tag & ((1 << FINGERPRINT_BITS) - 1) == 0 || distance >= lines.min(WINDOW) {
                    return Err(damaged());
                }
                let Some(state) = saved.state(&shard.algorithm, from)? else {
                    continue;
                };
                let steps = offset(distance);
                let home = (at + steps.div_ceil(lines) * lines - steps) % lines;
                let line = shard.line_mut(at).1;
                let slot = line.empty_slot().ok_or_else(damaged)?;
                line.put(slot, marked, state);
                let reach = &mut shard.line_mut(home).1.reach;
                *reach = (*reach).max(distance as u8);
            }
        }
        Ok(())
    }
}
