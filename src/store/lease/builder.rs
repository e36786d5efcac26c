//! The settings of a limiter of leased units.

use std::time::Duration;

use super::backend::Leased;
use super::fleet::Fleet;
use super::plan::Settings;
use crate::algorithm::{Algorithm, IntoAlgorithm, Portable, quotas};
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;
use crate::store::{cas::CasStore, fleet::WhenCutOff, remote::check_name};

const DEFAULT_CLOCK_ERROR: Duration = Duration::from_secs(1);
const DEFAULT_CAPACITY: usize = 100_000;
const DEFAULT_CUT_OFF_AFTER: u32 = 3;

/// Settings of a [`Leased`] limiter.
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before `build`"]
pub struct LeasedBuilder<S> {
    store: S,
    prefix: String,
    /// A tenth of the limit, unless it is set.
    units: Option<u64>,
    /// A tenth of the period, unless it is set.
    life: Option<Duration>,
    clock_error: Duration,
    capacity: usize,
    when_cut_off: WhenCutOff,
    cut_off_after: u32,
    nodes: Option<u64>,
}

impl<S: CasStore> LeasedBuilder<S> {
    /// The default settings.
    pub fn new(store: S) -> Self {
        Self {
            store,
            prefix: "throttle".to_owned(),
            units: None,
            life: None,
            clock_error: DEFAULT_CLOCK_ERROR,
            capacity: DEFAULT_CAPACITY,
            when_cut_off: WhenCutOff::Fail,
            cut_off_after: DEFAULT_CUT_OFF_AFTER,
            nodes: None,
        }
    }

    /// Sets how many units a machine takes ahead of a key at most, by default a tenth of the limit.
    ///
    /// A machine takes fewer if a key is used less, or if less is left of its limit.
    pub fn units(mut self, most: u64) -> Self {
        self.units = Some(most);
        self
    }

    /// Sets how long a machine may use what it has taken, by default a tenth of the period, at least a
    /// second and at most 30 seconds.
    ///
    /// A lease in use is renewed three times as often. What a machine holds when it crashes counts as
    /// used at the end of its lease.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, lease::LeasedBuilder}};
    ///
    /// let limit = LeasedBuilder::new(MemoryStore::new())
    ///     .units(50)
    ///     .life(Duration::from_secs(5))
    ///     .build("api", TokenBucket::new(Quota::per_second(1_000)))?;
    /// # let _ = limit;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn life(mut self, life: Duration) -> Self {
        self.life = Some(life);
        self
    }

    /// Sets how far the clocks by which machines decide differ at most, by default by a second.
    ///
    /// It has no effect on a store that reports the time of one server, as a single Redis and PostgreSQL
    /// do. With Cassandra machines decide by their own clocks. With a Redis Cluster, and
    /// without batching, as behind a proxy, they decide by those of several servers.
    ///
    /// The store counts units as out for so much longer than a machine uses them.
    pub fn clock_error(mut self, error: Duration) -> Self {
        self.clock_error = error;
        self
    }

    /// Sets how many machines there are, for [`WhenCutOff::Share`]. By default, those count that have
    /// lately reported the key that was exchanged last.
    pub fn nodes(mut self, nodes: u64) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Sets how many keys a machine can hold units of, by default 100,000. Requests for further keys are
    /// denied.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Sets what happens after `rounds` without a reply of the store, by default [`WhenCutOff::Fail`]
    /// after 3. There are twelve rounds in the life of a lease. Units that are held can be used in any
    /// case, until their lease ends.
    ///
    /// With [`WhenCutOff::Share`], each machine that is cut off may exceed the limit by its share.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Quota, store::cas::MemoryStore};
    /// use tower_throttle::store::{lease::LeasedBuilder, synced::WhenCutOff};
    ///
    /// let limit = LeasedBuilder::new(MemoryStore::new())
    ///     .when_cut_off(WhenCutOff::Share, 6)
    ///     .nodes(4)
    ///     .build("api", FixedWindow::new(Quota::per_minute(600)))?;
    /// # let _ = limit;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn when_cut_off(mut self, behavior: WhenCutOff, rounds: u32) -> Self {
        self.when_cut_off = behavior;
        self.cut_off_after = rounds;
        self
    }

    /// Sets the start of the names of all keys, by default `throttle`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Builds a limit. Leased limits of one name and prefix in one store are one limit.
    ///
    /// # Errors
    /// If the name or the prefix is not 1 to 64 letters, digits and any of `. _ -`, if a setting is out
    /// of range, or if units of the algorithm cannot be taken ahead: it says when a request goes, as a
    /// queue or [`WarmUp`](crate::WarmUp) does, it counts what it denies, as
    /// [`Lockout`](crate::Lockout) does, its windows are
    /// [anchored](crate::FixedWindow::anchored), or it is your own.
    ///
    /// ```
    /// use tower_throttle::{LeakyBucket, Quota, store::{cas::MemoryStore, lease::LeasedBuilder}};
    ///
    /// let line = LeakyBucket::new(Quota::per_second(10)).queue(5);
    /// let error = LeasedBuilder::new(MemoryStore::new()).build("api", line).unwrap_err();
    /// assert!(error.to_string().starts_with("a lease on a queue"));
    /// ```
    pub fn build<I: IntoAlgorithm<Algorithm: Portable>>(
        self,
        name: &str,
        algorithm: I,
    ) -> Result<Leased<S, I::Algorithm>, ConfigError> {
        check_name("prefix", &self.prefix)?;
        check_name("name", name)?;
        let algorithm = algorithm.into_algorithm();
        if !algorithm.facts().is_leasable {
            return Err(ConfigError::Unsupported {
                what: "a lease on a queue, an anchored window, `WarmUp` or `Lockout`",
                instead: "use `Synced` or an exact limit",
            });
        }
        let quotas = quotas(&algorithm);
        let limit = quotas.iter().map(Quota::capacity).min();
        let period = quotas.iter().map(Quota::period).min();
        let settings = Settings {
            most: self
                .units
                .unwrap_or_else(|| default_units(limit.unwrap_or(1))),
            life: self
                .life
                .unwrap_or_else(|| Settings::default_life(period.unwrap_or_default())),
            clock_error: self.clock_error,
            capacity: self.capacity,
            when_cut_off: self.when_cut_off,
            cut_off_after: self.cut_off_after,
            nodes: self.nodes,
        };
        settings.check()?;
        let fleet = Fleet::new(self.store, &self.prefix, name, &algorithm, settings)?;
        Ok(Leased::of(fleet))
    }
}

impl<S: CasStore, A: Portable> Leased<S, A> {
    /// A limit of which each machine takes at most `units` ahead per key, with default settings.
    ///
    /// Leased limits of one name in one store are one limit.
    ///
    /// # Panics
    /// If the name is not 1 to 64 letters, digits and any of `. _ -`, if `units` is 0 or too large, or if
    /// the algorithm is refused; [`LeasedBuilder::build`] returns an error instead.
    #[track_caller]
    pub fn new<I>(store: S, name: &str, algorithm: I, units: u64) -> Self
    where
        I: IntoAlgorithm<Algorithm = A>,
    {
        let builder = LeasedBuilder::new(store).units(units);
        expect_valid(builder.build(name, algorithm))
    }
}

/// A tenth of the limit.
fn default_units(limit: u64) -> u64 {
    (limit / 10).clamp(1, u64::from(super::plan::MAX_UNITS))
}
