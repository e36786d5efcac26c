//! What is simulated, and what comes of it.

use crate::store::fleet::shape::Shape;

pub(super) const SECOND: u64 = 1_000_000;
/// What is simulated.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) shape: Shape,
    pub(super) ahead: bool,
    pub(super) machines: usize,
    pub(super) keys: usize,
    pub(super) interval: u64,
    /// Requests per second for each key, of all machines.
    pub(super) rate: u64,
    pub(super) traffic: Traffic,
    pub(super) seconds: u64,
    pub(super) seed: u64,
    /// Microseconds that a message takes at most, and how many of 1,000 messages are lost.
    pub(super) delay: u64,
    pub(super) lost: u64,
    pub(super) faults: Vec<(u64, Fault)>,
    pub(super) mistake: Option<Mistake>,
    /// How many times as long the interval of every other machine is.
    pub(super) other_interval: u64,
    /// Whether all machines ask for the first time at one moment.
    pub(super) together: bool,
    /// Whether exchanges count by the machines' own clocks, as over a store that reports no time.
    pub(super) own_time: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Even,
    /// A fifth of the machines has four fifths.
    Skewed,
    /// One machine has a ten-thousandth of it.
    OneQuiet,
    /// All of it goes to one machine, and after this many microseconds to the next.
    Moving(u64),
}

/// What happens to a machine, or to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Crash(usize),
    /// Stops for this long, with all its requests.
    Stop(usize, u64),
    /// It reports this many times its demand.
    Lies(usize, u64),
    CutOff(usize, u64),
    ForgetKeys(usize),
    /// How far the store's clock is ahead from then on.
    StoreClock(i64),
    /// The clock of a machine jumps by this much.
    MachineClock(usize, i64),
    StoreEmptied,
    /// It works on nothing for this long, and then on all that has come.
    StoreStops(u64),
    /// The store loses which batches it has executed: one that is sent again counts twice.
    SequencesLost,
    Join(usize),
}

/// A planted mistake, which a check must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Machines use what refills later at once.
    UsesEarly,
    /// A machine admits before the store has answered, and reports it.
    AdmitsFirst,
    /// Costs are charged as of a second before.
    ChargesEarly,
    /// Costs are charged as of the time of the machine's own clock.
    TrustsMachineClock,
    /// Each machine's clock is taken for the store's.
    FollowsEveryClock,
    /// A record waits until a clock that was set back has caught up.
    WaitsForClock,
    /// Each request is an exchange.
    Chatty,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FleetOutcome {
    /// Reports of keys.
    pub(super) exchanges: u64,
    /// Keys of machines in use per interval.
    pub(super) in_use: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    pub(super) waited: u64,
    /// Admitted by each machine.
    pub(super) served: Vec<u64>,
    /// By how many units the limit was exceeded at most.
    pub(super) excess: i64,
    /// Admitted per key, and in each second.
    pub(super) admitted: u64,
    pub(super) seconds: Vec<u64>,
    pub(super) bytes: usize,
}
