//! Algorithms that stores on other machines can keep.

use super::fields::{Fields, list, name, read, replace, write};
use super::setting::Listed;
use super::{Algorithm, Kernel};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Settings and states as bytes that any machine can read.
///
/// A store with a compare-and-swap needs it: an algorithm of your own that works there lists its fields.
/// One list writes and reads, so the two cannot differ.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::algorithm::{self, Algorithm, Cost, Fields, GiveBack, Portable};
/// use tower_throttle::{ConfigError, Decision, Quota, Verdict, clock::Tick};
///
/// /// Admits everything and counts it.
/// #[derive(Clone, Debug)]
/// struct Meter(Quota);
///
///
/// impl Algorithm for Meter {
///     type State = u64;
///
///     fn quota(&self) -> Quota {
///         self.0
///     }
///     fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
///         Ok(Self(quota))
///     }
///     fn fresh(&self, _: Tick) -> u64 {
///         0
///     }
///     fn decide(&self, count: &mut u64, _: Tick, cost: u64) -> Decision {
///         *count = count.saturating_add(cost);
///         Decision::new(Verdict::Admit, self.0.limit(), 1, None, 0)
///     }
///     fn refund(&self, count: &mut u64, _: Tick, cost: Cost, _: GiveBack) {
///         *count = count.saturating_sub(cost.units);
///     }
///     fn charge(&self, count: &mut u64, _: Tick, cost: u64) -> Duration {
///         *count = count.saturating_add(cost);
///         Duration::ZERO
///     }
///     fn forgettable_at(&self, _: &u64) -> Tick {
///         Tick::MAX
///     }
/// }
///
/// impl Portable for Meter {
///     fn settings_fields(&mut self, fields: &mut Fields<'_>) {
///         fields.tag(1_000); // tells it from other algorithms
///         fields.quota(&mut self.0);
///     }
///     fn state_fields(&self, count: &mut u64, fields: &mut Fields<'_>) {
///         fields.u64(count);
///     }
/// }
///
/// let meter = Meter(Quota::per_second(10));
/// let bytes = algorithm::state_to_bytes(&meter, &300).expect("a state");
/// assert_eq!(algorithm::state_from_bytes(&meter, &bytes), Some(300));
/// assert_eq!(algorithm::state_from_bytes(&meter, &bytes[..1]), None);
/// let bytes = algorithm::settings_to_bytes(&meter).expect("settings");
/// let other = Meter(Quota::per_day(1));
/// assert_eq!(algorithm::settings_from_bytes(&other, &bytes).map(|read| read.0), Some(meter.0));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be kept by a store on another machine",
    label = "implement `Portable` for `{Self}`: its settings and states as bytes"
)]
pub trait Portable: Algorithm {
    /// Lists the settings, which may be replaced by what was read. Bytes are equal only for equal
    /// settings.
    fn settings_fields(&mut self, fields: &mut Fields<'_>);

    /// Lists the fields of a state, which may be replaced by what was read. Moments in it are as the
    /// clock counts them.
    fn state_fields(&self, state: &mut Self::State, fields: &mut Fields<'_>);

    /// What its limits count, one after the other, if that is levels, cells and logs. A server that has a script for
    /// these decides without loading the state. At a moment, which counts from 1970: windows of the calendar differ.
    #[doc(hidden)]
    fn kernels(&self, now: Tick) -> Option<Vec<Kernel>> {
        let _ = now;
        None
    }

    /// Gives each limit this machine's share of its quota, for one of `machines` machines.
    #[doc(hidden)]
    fn take_share(&mut self, machines: u64) -> Result<(), ConfigError> {
        *self = self.with_quota(self.quota().share_of(machines)?)?;
        Ok(())
    }
}

/// The settings of `algorithm` as bytes, which are equal only for equal settings. `None` if the
/// algorithm, or a part of it, is not one of this crate's.
pub fn settings_to_bytes<A: Portable>(algorithm: &A) -> Option<Vec<u8>> {
    write(|fields| algorithm.clone().settings_fields(fields))
}

/// The algorithm that has the settings in `bytes`. `None` if it is not of the kind of `like`.
pub fn settings_from_bytes<A: Portable>(like: &A, bytes: &[u8]) -> Option<A> {
    let mut algorithm = like.clone();
    read(bytes, |fields| {
        algorithm.settings_fields(fields);
    })?;
    algorithm.validate().ok()?;
    Some(algorithm)
}

/// The state as bytes. Moments in it are as the clock counts them.
pub fn state_to_bytes<A: Portable>(algorithm: &A, state: &A::State) -> Option<Vec<u8>> {
    write(|fields| algorithm.state_fields(&mut state.clone(), fields))
}

/// The state in `bytes`, if they hold one of `algorithm`.
pub fn state_from_bytes<A: Portable>(algorithm: &A, bytes: &[u8]) -> Option<A::State> {
    let mut state = algorithm.fresh(Tick::ZERO);
    read(bytes, |fields| {
        algorithm.state_fields(&mut state, fields);
    })?;
    Some(state)
}

/// The tags of its limits and their periods: what all have in common that convert each other's states.
///
/// ```
/// use tower_throttle::{Lockout, Quota, algorithm::layout_of_settings};
///
/// let [five, ten] = [5, 10].map(|failures| Lockout::new(Quota::per_hour(failures)));
/// assert_eq!(layout_of_settings(&five), layout_of_settings(&ten));
/// assert_ne!(layout_of_settings(&five), layout_of_settings(&Lockout::new(Quota::per_day(5))));
/// ```
pub fn layout_of_settings<A: Portable>(algorithm: &A) -> [String; 2] {
    name(|fields| algorithm.clone().settings_fields(fields))
}

/// The settings of `algorithm`, in order, with their values.
pub(crate) fn settings<A: Portable>(algorithm: &A) -> Vec<Listed> {
    list(|fields| algorithm.clone().settings_fields(fields))
}

/// Changes the setting of this name.
pub(crate) fn set<A: Portable>(mut algorithm: A, name: &str, value: u64) -> Result<A, ConfigError> {
    replace(name, value, |fields| algorithm.settings_fields(fields))?;
    Ok(algorithm)
}

/// Refuses settings that are out of range or have no effect.
pub(super) fn check<A: Portable>(algorithm: &A) -> Result<(), ConfigError> {
    check_listed(&algorithm.quota(), &settings(algorithm))
}

/// As [`check`], given the list.
pub(crate) fn check_listed(quota: &Quota, listed: &[Listed]) -> Result<(), ConfigError> {
    let is_set = |name: &&str| {
        let mut listed = listed.iter();
        listed.any(|(setting, value)| setting.name == *name && value.is_some())
    };
    for (setting, value) in listed {
        let (name, Some(value)) = (setting.name, *value) else {
            continue;
        };
        if let Some(other) = setting.needs.filter(|other| !is_set(other)) {
            let allowed = format!("a {other} too: {name} has no effect without it");
            return Err(setting.refuse(value, allowed));
        }
        if let Some(other) = setting.not_with.filter(is_set) {
            let allowed = format!("{name} or {other}: {name} has no effect beside {other}");
            return Err(setting.refuse(value, allowed));
        }
        setting.check(value, quota)?;
    }
    Ok(())
}
