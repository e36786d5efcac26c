//! The permits of one key that machines hold: the state of a [`Record`](super::record::Record).
//!
//! ```text
//! state = count lease..
//! lease = machine, expires_at, life, holds, wants
//! ```
//!
//! A machine is 8 bytes. Other numbers are written seven bits per byte; moments are nanoseconds since 1970.

use std::time::Duration;

use super::record::{read_number, write_number};
use crate::clock::{Tick, nanos};

/// How long a turn of few machines is, in nanoseconds: several times as long as machines take to find out what there
/// is. Of many machines it is shorter, so that each has its turn within a few seconds.
const TURN: u64 = 1_000_000_000;
const SHORTEST_TURN: u64 = 50_000_000;
/// How many machines have turns of full length.
const FEW: u64 = 4;

/// The length of a turn of so many machines.
fn turn_of(machines: u64) -> u64 {
    (TURN / machines.div_ceil(FEW).max(1)).max(SHORTEST_TURN)
}

/// What the machines of a fleet hold of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holdings(pub(super) Vec<Holding>);

/// What one machine holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) machine: u64,
    pub(super) expires_at: Tick,
    pub(super) life: Duration,
    pub(super) holds: u64,
    /// With the units of requests that wait.
    pub(super) wants: u64,
}

/// What a machine sees of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseView {
    /// How many units they hold.
    pub(crate) others: u64,
    machine: u64,
    /// How many units each of them wants, if one of them has to wait.
    wants: Vec<(u64, u64)>,
    now: Tick,
}

/// What a machine is to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LeasePlan {
    /// What the store is to know of: what is in flight, and what may be.
    pub(crate) holds: u64,
    pub(crate) wants: u64,
    /// How many units may be in flight, if the store agrees. Fewer than are, if others are to have theirs.
    pub(crate) grants: u64,
}

impl LeasePlan {
    /// Whether there is no room for some requests.
    pub(crate) const fn waits(&self) -> bool {
        self.wants > self.holds
    }
}

impl LeaseView {
    /// How many units of `limit` this machine may have, which wants so many, if the others leave them: an equal
    /// share while one of them waits. What a machine does not want of its share is shared by the others.
    /// Units that cannot be divided go to some machines, in turn.
    pub(crate) fn share(&self, limit: u64, wants: u64) -> u64 {
        if self.wants.is_empty() {
            return limit;
        }
        let (mut left, mut hungry) = (limit, self.wants.clone());
        hungry.push((wants, self.machine));
        hungry.sort_unstable_by(|one, other| other.cmp(one));
        while let Some((least, machine)) = hungry.pop() {
            if least > left / (hungry.len() as u64 + 1) {
                hungry.push((least, machine));
                break;
            }
            left -= least;
        }
        if !hungry.contains(&(wants, self.machine)) {
            return limit;
        }
        let before = hungry.iter().filter(|(_, machine)| *machine < self.machine);
        let (place, count) = (before.count() as u64, hungry.len() as u64);
        let turn = self.now.as_nanos() / turn_of(count);
        let has_more = place.wrapping_add(turn) % count < left % count;
        left / count + u64::from(has_more)
    }

    /// When another machine has its turn, if machines wait.
    pub(super) fn until_next_turn(&self) -> Option<Duration> {
        let turn = turn_of(self.wants.len() as u64 + 1);
        let left = turn - self.now.as_nanos() % turn;
        (!self.wants.is_empty()).then(|| Duration::from_nanos(left))
    }
}

impl Holdings {
    /// What `machine` sees at `now`.
    pub(super) fn view(&self, machine: u64, now: Tick) -> LeaseView {
        let is_other = |lease: &Holding| lease.machine != machine;
        let others: Vec<_> = self.live(now).filter(is_other).collect();
        let waits = others.iter().any(|lease| lease.wants > lease.holds);
        let wants = others.iter().filter(|_| waits);
        let add = |sum: u64, lease: &Holding| sum.saturating_add(lease.holds);
        LeaseView {
            others: others.iter().fold(0, add),
            machine,
            wants: wants.map(|lease| (lease.wants, lease.machine)).collect(),
            now,
        }
    }

    /// What the store knows of `machine`.
    pub(super) fn of(&self, machine: u64, now: Tick) -> Option<Holding> {
        self.live(now).find(|lease| lease.machine == machine)
    }

    fn live(&self, now: Tick) -> impl Iterator<Item = Holding> {
        self.0
            .iter()
            .copied()
            .filter(move |lease| lease.expires_at > now)
    }

    /// The same with `own` in place of what the machine held before. A lease that ends later than its life
    /// lasts, because the clock of the store was set back, ends after a life.
    pub(super) fn with(&self, own: Holding, now: Tick) -> Self {
        let others = self.live(now).filter(|lease| lease.machine != own.machine);
        let bounded = |lease: Holding| Holding {
            expires_at: lease.expires_at.min(now.plus(lease.life)),
            ..lease
        };
        let own = (own.holds > 0 || own.wants > 0).then_some(own);
        Self(others.map(bounded).chain(own).collect())
    }

    /// When all of them are over.
    pub(super) fn expires_at(&self) -> Tick {
        let ends = self.0.iter().map(|lease| lease.expires_at).max();
        ends.unwrap_or_default()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_number(&mut bytes, self.0.len() as u64);
        for lease in &self.0 {
            bytes.extend(lease.machine.to_le_bytes());
            write_number(&mut bytes, lease.expires_at.as_nanos());
            write_number(&mut bytes, nanos(lease.life));
            write_number(&mut bytes, lease.holds);
            write_number(&mut bytes, lease.wants);
        }
        bytes
    }

    /// `None` if the bytes are of another format.
    pub(super) fn from_bytes(mut rest: &[u8]) -> Option<Self> {
        let mut held = Self::default();
        for _ in 0..read_number(&mut rest)? {
            let (machine, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            held.0.push(Holding {
                machine: u64::from_le_bytes(*machine),
                expires_at: Tick::from_nanos(read_number(&mut rest)?),
                life: Duration::from_nanos(read_number(&mut rest)?),
                holds: read_number(&mut rest)?,
                wants: read_number(&mut rest)?,
            });
        }
        rest.is_empty().then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Tick = Tick::from_nanos(1 << 60);
    const LIFE: Duration = Duration::from_secs(10);

    fn lease(machine: u64, holds: u64, wants: u64) -> Holding {
        Holding {
            machine,
            expires_at: NOW.plus(LIFE),
            life: LIFE,
            holds,
            wants,
        }
    }

    #[test]
    fn leases_are_read_as_they_were_written() {
        let held = Holdings(vec![lease(u64::MAX, 3, 300), lease(7, 0, 1)]);
        let bytes = held.to_bytes();
        assert_eq!(Holdings::from_bytes(&bytes), Some(held));
        for place in 0..bytes.len() {
            assert_eq!(
                Holdings::from_bytes(&bytes[..place]),
                None,
                "cut at {place}"
            );
        }
    }

    #[test]
    fn machines_that_wait_get_equal_shares_of_what_they_want() {
        let share = |held: &Holdings, machine| {
            let own = held.of(machine, NOW).map_or(0, |own| own.wants);
            held.view(machine, NOW).share(10, own)
        };
        // 9 of 10 are held here, and the other one wants one more.
        let held = Holdings(vec![lease(1, 1, 2), lease(2, 9, 20)]);
        assert_eq!(share(&held, 2), 8);
        // It wants as much as this one.
        let held = Holdings(vec![lease(1, 1, 20), lease(2, 9, 20)]);
        assert_eq!([1, 2].map(|machine| share(&held, machine)), [5, 5]);
        // As long as none waits there is no share.
        let held = Holdings(vec![lease(1, 1, 1), lease(2, 9, 20)]);
        assert_eq!(share(&held, 2), 10);
        // What a third one does not want is left to those that wait.
        let held = Holdings(vec![lease(1, 0, 20), lease(2, 0, 20), lease(3, 2, 2)]);
        assert_eq!([1, 2, 3].map(|machine| share(&held, machine)), [4, 4, 10]);
    }

    #[test]
    fn units_that_cannot_be_divided_go_to_each_machine_in_turn() {
        let held = Holdings((1..=3).map(|machine| lease(machine, 0, 9)).collect());
        for limit in [1, 2, 4, 5] {
            let mut granted = [0; 3];
            for turn in 0..3 {
                let now = NOW.plus(Duration::from_nanos(turn * TURN));
                let shares = [1, 2, 3].map(|machine| held.view(machine, now).share(limit, 9));
                assert_eq!(shares.iter().sum::<u64>(), limit, "all of it, and no more");
                granted = std::array::from_fn(|at| granted[at] + shares[at]);
            }
            assert_eq!(granted, [limit; 3]);
        }
        // Machines of another release have to agree whose turn it is.
        let first = Tick::from_nanos(3 * TURN);
        let held = Holdings(
            (1..=3)
                .map(|machine| Holding {
                    expires_at: first.plus(LIFE),
                    ..lease(machine, 0, 9)
                })
                .collect(),
        );
        let shares = [1, 2, 3].map(|machine| held.view(machine, first).share(4, 9));
        assert_eq!(shares, [2, 1, 1]);
    }

    /// A machine that wants no more than an equal share has what it wants, and the others all of the rest.
    #[test]
    fn no_unit_is_kept_for_a_machine_that_does_not_want_it() {
        let wants = [3, 9, 9];
        let machines = (1..).zip(wants);
        let leases = machines.map(|(machine, wants)| lease(machine, 0, wants));
        let held = Holdings(leases.collect());
        for turn in 0..3 {
            let now = NOW.plus(Duration::from_nanos(turn * TURN));
            let machines = (1..).zip(wants);
            let used = machines.map(|(at, wants)| held.view(at, now).share(10, wants).min(wants));
            assert_eq!(used.sum::<u64>(), 10, "turn {turn}");
        }
    }

    #[test]
    fn what_a_machine_has_in_flight_is_written_although_it_wants_no_more() {
        for (holds, wants, is_written) in [(1, 0, true), (0, 1, true), (0, 0, false)] {
            let written = Holdings::default().with(lease(1, holds, wants), NOW);
            assert_eq!(written.of(1, NOW).is_some(), is_written);
        }
    }
}
