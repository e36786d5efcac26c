//! The table of fields of each algorithm and of its states.
//!
//! Each algorithm lists its fields once. The list writes bytes, reads them, or hands each [`Field`] of the settings to a
//! closure, which may change it: so a text sets an option, and a quota is replaced.

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;

use std::{fmt, time::Duration};

use super::Algorithm;
use super::kernel::Kernel;
use super::setting::{BURST, NO_BURST, Range, Setting};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;

/// The fields of an algorithm or of a state, while they are written or read.
pub struct Fields<'a> {
    direction: Direction<'a>,
    /// The quota that was listed last, for the ranges of settings.
    quota: Quota,
    /// Whether the quota is none of the limits that decide.
    is_aside: bool,
    /// How the moments are moved that are read.
    pub(super) moved: Moved,
}

/// One moment as it was on the clock that wrote a state, and as it is on the clock of this process.
///
/// A moment of the state keeps its distance from it. The default moves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) from: Tick,
    pub(crate) to: Tick,
}

impl Moved {
    /// The moment of a state on the clock of this process. Zero stays zero: in a state it says that there is none.
    pub(super) const fn nanos(&self, ns: u64) -> u64 {
        shifted(ns, self.from.as_nanos(), self.to.as_nanos())
    }
}

const fn shifted(ns: u64, from: u64, to: u64) -> u64 {
    match ns {
        0 => 0,
        ns => ns
            .saturating_add(to.saturating_sub(from))
            .saturating_sub(from.saturating_sub(to)),
    }
}

/// A field of the settings.
enum Field<'a> {
    Tag(u64),
    /// The quota of a limit that decides.
    Quota(&'a mut Quota),
    /// That of one that does not.
    Aside(&'a Quota),
    /// With the quota before it, for its range.
    Setting(&'static Setting, &'a mut Option<u64>, &'a Quota),
    Kernel(&'a dyn Fn(Tick) -> Kernel),
}

enum Direction<'a> {
    Write(Vec<u8>),
    /// What is left to read.
    Read(&'a [u8]),
    Each(&'a mut dyn FnMut(Field<'_>) -> Result<(), ConfigError>),
    /// The bytes are not those of such fields, or there is no such form, or a value is refused.
    Failed(Option<ConfigError>),
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fields").finish_non_exhaustive()
    }
}

impl<'a> Fields<'a> {
    const fn new(direction: Direction<'a>, moved: Moved) -> Self {
        Self {
            direction,
            quota: Quota::per_second(1),
            is_aside: false,
            moved,
        }
    }

    fn each(&mut self, field: Field<'_>) {
        if let Direction::Each(each) = &mut self.direction {
            if let Err(error) = each(field) {
                self.refuse(error);
            }
        }
    }

    /// Gives up: the fields have no such form, or what was read is out of range.
    pub fn fail(&mut self) {
        self.direction = Direction::Failed(None);
    }

    /// Gives up with the reason.
    pub(super) fn refuse(&mut self, error: ConfigError) {
        self.direction = Direction::Failed(Some(error));
    }

    /// Gives up unless `holds`, which is about a value that was just read.
    pub fn require(&mut self, holds: bool) {
        if !holds {
            self.fail();
        }
    }

    /// A number that is always the same, and distinguishes kinds of fields. Those of this crate are below 1,000.
    pub fn tag(&mut self, tag: u64) {
        self.each(Field::Tag(tag));
        let mut read = tag;
        self.u64(&mut read);
        self.require(read == tag);
    }

    /// A number.
    pub fn u64(&mut self, value: &mut u64) {
        match &mut self.direction {
            Direction::Write(bytes) => bytes.extend(value.to_le_bytes()),
            Direction::Read(bytes) => match bytes.split_first_chunk() {
                Some((number, rest)) => (*value, *bytes) = (u64::from_le_bytes(*number), rest),
                None => self.fail(),
            },
            _ => {}
        }
    }

    /// How many entries follow, each of at least one byte.
    pub(super) fn len(&mut self, len: &mut usize) {
        let mut number = *len as u64;
        self.u64(&mut number);
        *len = usize::try_from(number).unwrap_or(usize::MAX);
        if matches!(self.direction, Direction::Read(rest) if *len > rest.len()) {
            self.fail();
            *len = 0;
        }
    }

    /// A number, or none.
    pub fn option(&mut self, value: &mut Option<u64>) {
        let (mut is_some, mut number) = (value.is_some().into(), value.unwrap_or_default());
        self.u64(&mut is_some);
        self.u64(&mut number);
        self.require(is_some <= 1);
        *value = (is_some == 1).then_some(number);
    }

    /// A moment, at most [`Tick::MAX`].
    ///
    /// If the clock of the process that reads it counts from another zero than the one that wrote it, it is
    /// moved by the difference.
    pub fn moment(&mut self, ns: &mut u64) {
        self.count(ns);
        *ns = self.moved.nanos(*ns).min(Tick::MAX.as_nanos());
    }

    /// A number that is at most 2^63 - 1.
    pub(super) fn count(&mut self, count: &mut u64) {
        self.u64(count);
        self.require(*count <= Tick::MAX.as_nanos());
    }

    /// When a window of this length ends, of which one lies around the last moment; `at` returns the end of the window of
    /// a moment. The window that is open stays open, and ends when the clock of this process says so.
    pub(super) fn end(&mut self, end: &mut u64, length: u64, at: impl Fn(Tick) -> u64) {
        let last = Tick::MAX.as_nanos() + length;
        self.u64(end);
        self.require(*end <= last);
        *end = shifted(*end, at(self.moved.from), at(self.moved.to)).min(last);
    }

    /// A limit, a period, and a burst if there is one.
    pub fn quota(&mut self, quota: &mut Quota) {
        self.quota_with(&BURST, quota);
    }

    /// A quota without a burst.
    pub(super) fn plain_quota(&mut self, quota: &mut Quota) {
        self.quota_with(&NO_BURST, quota);
    }

    /// Lists the fields of something whose quota is none of the limits that decide.
    pub(super) fn aside(&mut self, list: impl FnOnce(&mut Self)) {
        self.is_aside = true;
        list(self);
        self.is_aside = false;
    }

    /// A quota whose burst is this setting.
    fn quota_with(&mut self, setting: &'static Setting, quota: &mut Quota) {
        self.each(if self.is_aside {
            Field::Aside(quota)
        } else {
            Field::Quota(quota)
        });
        let (mut limit, mut period) = (quota.limit(), quota.period_ns());
        self.u64(&mut limit);
        self.u64(&mut period);
        let plain = Quota::try_per(limit, Duration::from_nanos(period));
        let mut burst = quota.own_burst();
        self.setting(setting, &mut burst);
        let read = match burst {
            Some(burst) => plain.and_then(|plain| plain.try_burst(burst)),
            None => plain,
        };
        match read {
            Ok(read) => (*quota, self.quota) = (read, read),
            Err(error) => self.refuse(error),
        }
    }

    /// What the limit counts, if a server has a script for that. At a moment, which counts from 1970: windows of the
    /// calendar differ.
    pub(super) fn kernel(&mut self, kernel: impl Fn(Tick) -> Kernel) {
        self.each(Field::Kernel(&kernel));
    }

    /// A setting; `None` is its default.
    pub(super) fn setting(&mut self, setting: &'static Setting, value: &mut Option<u64>) {
        let quota = self.quota;
        self.each(Field::Setting(setting, value, &quota));
        if let Direction::Each(_) = self.direction {
            return;
        }
        self.option(value);
        if let Some(Err(error)) = value.map(|value| setting.check(value, &quota)) {
            *value = None;
            self.refuse(error);
        }
    }

    /// A setting that has a default.
    pub(super) fn setting_or(&mut self, setting: &'static Setting, value: &mut u64, default: u64) {
        let mut own = Some(*value).filter(|value| *value != default);
        self.setting(setting, &mut own);
        *value = own.unwrap_or(default);
    }

    /// A flag, or one of two words.
    pub(super) fn flag(&mut self, setting: &'static Setting, value: &mut bool) {
        let mut number = u64::from(*value);
        self.setting_or(setting, &mut number, 0);
        *value = number == 1;
    }
}

fn write(list: impl FnOnce(&mut Fields<'_>)) -> Option<Vec<u8>> {
    let mut fields = Fields::new(Direction::Write(Vec::with_capacity(64)), Moved::default());
    list(&mut fields);
    match fields.direction {
        Direction::Write(bytes) => Some(bytes),
        _ => None,
    }
}

/// Reads the fields from the front of `bytes`. `None` if they begin with others.
fn read<'a>(bytes: &mut &'a [u8], moved: Moved, list: impl FnOnce(&mut Fields<'a>)) -> Option<()> {
    let mut fields = Fields::new(Direction::Read(bytes), moved);
    list(&mut fields);
    match fields.direction {
        Direction::Read(rest) => *bytes = rest,
        _ => return None,
    }
    Some(())
}

/// Calls `each` with the fields of the settings, until one is refused. Returns whether all of them are listed.
fn visit<A: Algorithm>(
    algorithm: &mut A,
    mut each: impl FnMut(Field<'_>) -> Result<(), ConfigError>,
) -> Result<bool, ConfigError> {
    let mut fields = Fields::new(Direction::Each(&mut each), Moved::default());
    algorithm.settings_fields(&mut fields);
    match fields.direction {
        Direction::Failed(Some(error)) => Err(error),
        Direction::Failed(None) => Ok(false),
        _ => Ok(true),
    }
}

/// The same algorithm with other quotas, and how many it has.
fn with_quotas<A: Algorithm>(
    algorithm: &A,
    other: impl Fn(&Quota) -> Result<Quota, ConfigError>,
) -> Result<(A, usize), ConfigError> {
    let (mut changed, mut quotas) = (algorithm.clone(), 0);
    let is_listed = visit(&mut changed, |field| {
        if let Field::Quota(quota) = field {
            quotas += 1;
            *quota = other(quota)?;
        }
        Ok(())
    })?;
    Ok((changed, if is_listed { quotas } else { 0 }))
}

/// The settings of `algorithm` as bytes, which are equal only for equal settings. `None` if the
/// algorithm, or a part of it, lists no fields.
pub(crate) fn settings_to_bytes<A: Algorithm>(algorithm: &A) -> Option<Vec<u8>> {
    write(|fields| algorithm.clone().settings_fields(fields))
}

/// The algorithm that has the settings in `bytes`. `None` if it is not of the kind of `like`.
pub(crate) fn settings_from_bytes<A: Algorithm>(like: &A, mut bytes: &[u8]) -> Option<A> {
    let mut algorithm = like.clone();
    let list = |fields: &mut Fields<'_>| algorithm.settings_fields(fields);
    read(&mut bytes, Moved::default(), list)?;
    (bytes.is_empty() && algorithm.validate().is_ok()).then_some(algorithm)
}

/// The state as bytes. Moments in it are as the clock counts them.
pub(crate) fn state_to_bytes<A: Algorithm>(algorithm: &A, state: &A::State) -> Option<Vec<u8>> {
    write(|fields| algorithm.state_fields(&mut state.clone(), fields))
}

/// Takes a state from the front of `bytes`, and moves it to the clock of this process.
pub(crate) fn read_moved_state<A: Algorithm>(
    algorithm: &A,
    bytes: &mut &[u8],
    moved: Moved,
) -> Option<A::State> {
    let mut state = algorithm.fresh(Tick::ZERO);
    let list = |fields: &mut Fields<'_>| algorithm.state_fields(&mut state, fields);
    read(bytes, moved, list)?;
    Some(state)
}

/// The state in `bytes`, if they hold one of `algorithm`.
#[cfg(any(feature = "cas", test))]
pub(crate) fn state_from_bytes<A: Algorithm>(algorithm: &A, mut bytes: &[u8]) -> Option<A::State> {
    let state = read_moved_state(algorithm, &mut bytes, Moved::default());
    state.filter(|_| bytes.is_empty())
}

/// The tags of its limits and their periods: what all have in common that convert each other's states.
#[cfg_attr(
    not(feature = "cas"),
    expect(dead_code, reason = "only stores on servers ask")
)]
pub(crate) fn layout_of_settings<A: Algorithm>(algorithm: &A) -> [String; 2] {
    let [mut kinds, mut periods] = [const { String::new() }; 2];
    let _ = visit(&mut algorithm.clone(), |field| {
        match field {
            Field::Tag(tag) => kinds = format!("{kinds}.{tag}"),
            Field::Quota(&mut quota) | Field::Aside(&quota) => {
                periods = format!("{periods}/{:?}", quota.period());
            }
            _ => {}
        }
        Ok(())
    });
    [kinds, periods]
}

/// The settings of `algorithm`, in order, with their values.
pub(crate) fn settings<A: Algorithm>(algorithm: &A) -> Vec<&'static Setting> {
    let mut settings = Vec::new();
    let _ = visit(&mut algorithm.clone(), |field| {
        match field {
            // A burst that is refused is none.
            Field::Setting(setting, ..) if setting.range != Range::None => settings.push(setting),
            _ => {}
        }
        Ok(())
    });
    settings
}

/// Changes the setting of this name.
pub(crate) fn set<A: Algorithm>(
    mut algorithm: A,
    name: &str,
    given: u64,
) -> Result<A, ConfigError> {
    visit(&mut algorithm, |field| match field {
        Field::Setting(setting, value, quota) if setting.name == name => {
            *value = Some(given);
            setting.check(given, quota)
        }
        _ => Ok(()),
    })?;
    Ok(algorithm)
}

/// The same algorithm for another quota, if it lists one.
pub(super) fn with_quota<A: Algorithm>(algorithm: &A, quota: Quota) -> Result<A, ConfigError> {
    let (changed, quotas) = with_quotas(algorithm, |_| Ok(quota))?;
    if quotas != 1 {
        let what = match quotas {
            0 => "another quota for this algorithm",
            _ => "one quota for a set of several limits",
        };
        let instead = "set a new algorithm with set_algorithm";
        return Err(ConfigError::unsupported(what, instead));
    }
    changed.validate()?;
    Ok(changed)
}

/// The algorithm with the share of one of so many machines: for a limit in process on each of them while a store is
/// unavailable (see [`Fallback`](crate::store::Fallback)).
///
/// Each limit of a set has its share. If there are more machines than units, each machine gets one unit
/// per longer period.
///
/// # Errors
/// If one unit per share needs a longer period than a quota allows.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket, algorithm::{Algorithm, share_of}};
///
/// let bucket = TokenBucket::new(Quota::per_second(10).burst(50));
/// assert_eq!(share_of(&bucket, 5)?.quota().to_string(), "2/s; burst=10");
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
pub fn share_of<A: Algorithm>(algorithm: &A, machines: u64) -> Result<A, ConfigError> {
    match with_quotas(algorithm, |quota| quota.share_of(machines))? {
        (_, 0) => algorithm.with_quota(algorithm.quota().share_of(machines)?),
        (share, _) => Ok(share),
    }
}

/// What the limits of `algorithm` count, one after the other, if that is levels, cells and logs. A server that has a
/// script for these decides without loading the state.
#[cfg_attr(
    not(feature = "cas"),
    expect(dead_code, reason = "only stores on servers ask")
)]
pub(crate) fn kernels<A: Algorithm>(algorithm: &A, now: Tick) -> Option<Vec<Kernel>> {
    let (mut kernels, mut quotas) = (Vec::new(), 0);
    let visited = visit(&mut algorithm.clone(), |field| {
        match field {
            Field::Quota(_) | Field::Aside(_) => quotas += 1,
            Field::Kernel(kernel) => kernels.push(kernel(now)),
            _ => {}
        }
        Ok(())
    });
    let is_complete = matches!(visited, Ok(true)) && quotas == kernels.len() && quotas > 0;
    is_complete.then_some(kernels)
}

/// Refuses settings that are out of range.
pub(super) fn check<A: Algorithm>(algorithm: &A) -> Result<(), ConfigError> {
    let visited = visit(&mut algorithm.clone(), |field| match field {
        Field::Setting(setting, Some(value), quota) => setting.check(*value, quota),
        _ => Ok(()),
    });
    visited.map(drop)
}
