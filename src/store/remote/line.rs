//! Calls that wait for one thing, a connection or a key, and the tasks that serve them.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::oneshot;

use crate::clock::Tick;
use crate::error::StoreError;

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Waiting<C, R> {
    pub(crate) call: C,
    pub(crate) queued_at: Tick,
    pub(crate) deadline: Tick,
    pub(crate) reply_tx: oneshot::Sender<Result<R, StoreError>>,
}

impl<C, R> Waiting<C, R> {
    /// Whether it still has to be done.
    pub(crate) fn is_wanted(&self, now: Tick) -> bool {
        self.deadline > now && !self.reply_tx.is_closed()
    }
}

/// Calls in their order, and at most `TASKS` tasks that serve them. A task ends when no call waits.
#[derive(Debug)]
pub(crate) struct Line<C, R, const TASKS: usize> {
    calls: VecDeque<Waiting<C, R>>,
    tasks: [Option<Task>; TASKS],
}

#[derive(Clone, Copy, Debug)]
struct Task {
    id: TaskId,
    /// How many calls it has taken at last.
    serves: usize,
    /// It has ended by then, unless its runtime does not run any more. After that another one may take
    /// its place.
    ends_by: Tick,
}

/// Tells a task from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId(u64);

impl TaskId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl<C, R, const TASKS: usize> Line<C, R, TASKS> {
    pub(crate) const fn new() -> Self {
        Self {
            calls: VecDeque::new(),
            tasks: [None; TASKS],
        }
    }

    /// The number of calls that wait.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether this task serves it.
    pub(crate) fn is_served_by(&self, id: TaskId) -> bool {
        self.tasks.iter().flatten().any(|task| task.id == id)
    }

    /// Whether no task serves it.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.iter().all(Option::is_none)
    }

    /// Adds a call. Returns the id of a new task, if one more may serve it.
    pub(crate) fn push(
        &mut self,
        waiting: Waiting<C, R>,
        now: Tick,
        ends_by: Tick,
    ) -> Option<TaskId> {
        self.calls.push_back(waiting);
        let is_free = |task: &&mut Option<Task>| task.is_none_or(|task| task.ends_by < now);
        let free = self.tasks.iter_mut().find(is_free)?;
        let id = TaskId::next();
        *free = Some(Task {
            id,
            serves: 0,
            ends_by,
        });
        Some(id)
    }

    /// Takes the first calls for a task: all, or as many as make it and another one serve equally many,
    /// within `bounds`. `None` if another task has taken its place.
    pub(crate) fn take(
        &mut self,
        id: TaskId,
        bounds: &RangeInclusive<usize>,
        ends_by: Tick,
    ) -> Option<Vec<Waiting<C, R>>> {
        let waiting = self.calls.len();
        let other = self.tasks.iter().flatten().find(|task| task.id != id);
        let even = other.map_or(waiting, |other| (waiting + other.serves).div_ceil(2));
        let count = waiting.min(even.max(*bounds.start()).min(*bounds.end()));
        let task = self.task(id)?;
        *task = Some(Task {
            id,
            serves: count,
            ends_by,
        });
        Some(self.calls.drain(..count).collect())
    }

    /// Ends a task. Returns the calls that no other one will serve: they fail when they are dropped, after
    /// the lock of the line is released.
    pub(crate) fn end(&mut self, id: TaskId) -> VecDeque<Waiting<C, R>> {
        if let Some(task) = self.task(id) {
            *task = None;
            if self.is_idle() {
                return std::mem::take(&mut self.calls);
            }
        }
        VecDeque::new()
    }

    fn task(&mut self, id: TaskId) -> Option<&mut Option<Task>> {
        let is_own = |task: &&mut Option<Task>| task.is_some_and(|task| task.id == id);
        self.tasks.iter_mut().find(is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_left_to_another_task_until_the_last_one_ends() {
        let mut line = Line::<(), (), 2>::new();
        let mut push = || {
            let waiting = Waiting {
                call: (),
                queued_at: Tick::ZERO,
                deadline: Tick::MAX,
                reply_tx: oneshot::channel().0,
            };
            line.push(waiting, Tick::ZERO, Tick::MAX)
        };
        let [first, second, none] = [(); 3].map(|()| push());
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(none, None);
        assert!(line.end(first).is_empty() && !line.is_idle());
        assert_eq!(
            [first, second].map(|id| line.is_served_by(id)),
            [false, true]
        );
        assert_eq!((line.end(second).len(), line.is_idle()), (3, true));
    }
}
