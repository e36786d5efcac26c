//! Timers for models: the model sets the time and lets timers fire.

use std::{cell::RefCell, collections::BTreeMap, task::Waker};

use crate::clock::Tick;

thread_local! {
    /// All threads of a model share one thread of the operating system.
    static STATE: RefCell<State> = const { RefCell::new(State::new()) };
}

struct State {
    now: Tick,
    next_id: u64,
    /// The timers that exist. A deadline of `MAX` is not armed.
    timers: BTreeMap<u64, (Tick, Waker)>,
}

impl State {
    const fn new() -> Self {
        Self {
            now: Tick::ZERO,
            next_id: 0,
            timers: BTreeMap::new(),
        }
    }
}

/// Sets the time.
pub(crate) fn set_now(now: Tick) {
    STATE.with_borrow_mut(|state| state.now = now);
}

/// Fires all timers that are due.
pub(crate) fn fire_due() {
    let due = STATE.with_borrow_mut(|state| {
        let now = state.now;
        let due = state.timers.values_mut().filter(|timer| timer.0 <= now);
        let due = due.map(|timer| {
            timer.0 = Tick::MAX;
            timer.1.clone()
        });
        due.collect::<Vec<_>>()
    });
    due.into_iter().for_each(Waker::wake);
}

pub(crate) fn now() -> Tick {
    STATE.with_borrow(|state| state.now)
}

/// See `clock::Alarm`.
#[derive(Debug)]
pub(crate) struct Alarm {
    id: u64,
    at: Tick,
}

impl Alarm {
    pub(crate) fn new(waker: Waker) -> Self {
        STATE.with_borrow_mut(|state| {
            state.next_id += 1;
            state.timers.insert(state.next_id, (Tick::MAX, waker));
            Self {
                id: state.next_id,
                at: Tick::MAX,
            }
        })
    }

    pub(crate) const fn serve_caller(&mut self) {}

    pub(crate) fn is_late_for(&self, at: Tick) -> bool {
        at < self.at
    }

    pub(crate) const fn clear(&mut self, _: Tick) {
        self.at = Tick::MAX;
    }

    pub(crate) fn set(&mut self, at: Tick) -> bool {
        let is_due = at <= now();
        self.at = if is_due { Tick::MAX } else { at };
        STATE.with_borrow_mut(|state| {
            if let Some(timer) = state.timers.get_mut(&self.id) {
                timer.0 = self.at;
            }
        });
        !is_due
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // The waker is dropped after the borrow: it may own a line, whose timers borrow again.
        let _ = STATE.with_borrow_mut(|state| state.timers.remove(&self.id));
    }
}
