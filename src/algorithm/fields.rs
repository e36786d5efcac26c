//! The table of fields of each algorithm and of its states.
//!
//! Each algorithm lists its fields once, and the list runs in one of these directions:
//!
//! | direction | a field | a setting | a kernel |
//! |---|---|---|---|
//! | write | its bytes | its bytes | |
//! | read | what the bytes hold | as well, if that is in range | |
//! | list | is left out | its name and its value | |
//! | set | is left out | the given value, if it is the one of that name | |
//! | replace | a quota becomes the given one | | |
//! | share | a quota becomes a machine's share | | |
//! | kernels | is left out | is left out | what the limit counts |
//! | name | its number, if it is a tag | the period of a quota | |

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::Algorithm;
use super::kernel::Kernel;
use super::setting::{BURST, Listed, NO_BURST, Range, Setting};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::varint;

/// The fields of an algorithm or of a state, while they are written or read.
#[derive(Debug)]
pub struct Fields<'a> {
    direction: Direction<'a>,
    /// The quota that was listed last, for the ranges of settings.
    quota: Quota,
    /// How many quotas of limits that decide were listed.
    quotas: usize,
    /// Whether the quota is none of the limits that decide.
    is_aside: bool,
    /// How the moments are moved that are read.
    moved: Moved,
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

    /// The same, at most [`Tick::MAX`].
    pub(super) fn moment(&self, ns: u64) -> u64 {
        self.nanos(ns).min(Tick::MAX.as_nanos())
    }
}

const fn shifted(ns: u64, from: u64, to: u64) -> u64 {
    if ns == 0 {
        0
    } else if to >= from {
        ns.saturating_add(to - from)
    } else {
        ns.saturating_sub(from - to)
    }
}

#[derive(Debug)]
enum Direction<'a> {
    Write(Vec<u8>),
    /// What is left to read.
    Read(&'a [u8]),
    /// The settings so far.
    List(Vec<Listed>),
    /// Replaces the setting of this name.
    Set(&'a str, u64),
    /// Replaces the quota.
    Replace(Quota),
    /// Gives each limit the share of one of so many machines.
    Share(u64),
    /// What the limits count at a moment, so far.
    Kernels(Tick, Vec<Kernel>),
    /// The tags and the periods so far.
    Name([String; 2]),
    /// The bytes are not those of such fields, or there is no such form, or a value is refused.
    Failed(Option<ConfigError>),
}

impl Fields<'_> {
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

    /// Whether nothing more is written or read.
    pub(super) const fn has_failed(&self) -> bool {
        matches!(self.direction, Direction::Failed(_))
    }

    /// A number that is always the same, and distinguishes kinds of fields. Those of this crate are below 1,000.
    pub fn tag(&mut self, tag: u64) {
        if let Direction::Name([kinds, _]) = &mut self.direction {
            *kinds = format!("{kinds}.{tag}");
        }
        let mut read = tag;
        self.u64(&mut read);
        self.require(read == tag);
    }

    /// A number.
    pub fn u64(&mut self, value: &mut u64) {
        let mut wide = u128::from(*value);
        self.u128(&mut wide);
        match u64::try_from(wide) {
            Ok(read) => *value = read,
            Err(_) => self.fail(),
        }
    }

    /// A large number.
    pub fn u128(&mut self, value: &mut u128) {
        match &mut self.direction {
            Direction::Write(bytes) => varint::write(bytes, *value),
            Direction::Read(bytes) => match varint::read(bytes) {
                Some(read) => *value = read,
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
        if let Direction::Read(rest) = &self.direction {
            self.require(*len <= rest.len());
        }
        if self.has_failed() {
            *len = 0;
        }
    }

    /// Yes or no.
    pub fn bool(&mut self, value: &mut bool) {
        let mut number = u64::from(*value);
        self.u64(&mut number);
        self.require(number <= 1);
        *value = number == 1;
    }

    /// A number, or none.
    pub fn option(&mut self, value: &mut Option<u64>) {
        let mut is_some = value.is_some();
        self.bool(&mut is_some);
        if is_some {
            let mut number = value.unwrap_or_default();
            self.u64(&mut number);
            *value = Some(number);
        } else {
            *value = None;
        }
    }

    /// A moment, at most [`Tick::MAX`].
    ///
    /// If the clock of the process that reads it counts from another zero than the one that wrote it, it is
    /// moved by the difference.
    pub fn moment(&mut self, ns: &mut u64) {
        self.count(ns);
        *ns = self.moved.moment(*ns);
    }

    /// A number that is at most 2^63 - 1.
    pub(super) fn count(&mut self, count: &mut u64) {
        self.u64(count);
        self.require(*count <= Tick::MAX.as_nanos());
    }

    /// How moments are moved that are not listed one by one.
    pub(super) const fn moved(&self) -> Moved {
        self.moved
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
        if let Direction::Kernels(..) = self.direction {
            self.fail();
        }
    }

    /// A quota whose burst is this setting.
    fn quota_with(&mut self, setting: &'static Setting, quota: &mut Quota) {
        self.quotas += usize::from(!self.is_aside);
        match &mut self.direction {
            Direction::Name([_, periods]) => *periods = format!("{periods}/{:?}", quota.period()),
            _ if self.is_aside => {}
            Direction::Replace(other) => *quota = *other,
            Direction::Share(machines) => match quota.share_of(*machines) {
                Ok(share) => *quota = share,
                Err(error) => return self.refuse(error),
            },
            _ => {}
        }
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
    pub(super) fn kernel(&mut self, kernel: impl FnOnce(Tick) -> Kernel) {
        if let Direction::Kernels(now, kernels) = &mut self.direction {
            kernels.push(kernel(*now));
        }
    }

    /// A setting; `None` is its default.
    pub(super) fn setting(&mut self, setting: &'static Setting, value: &mut Option<u64>) {
        match &mut self.direction {
            Direction::List(list) => {
                // A refused burst is listed only if there is one.
                if value.is_some() || setting.range != Range::None {
                    list.push((setting, *value));
                }
                return;
            }
            Direction::Set(name, given) if *name == setting.name => *value = Some(*given),
            Direction::Write(_) | Direction::Read(_) => self.option(value),
            _ => return,
        }
        if let Some(Err(error)) = value.map(|value| setting.check(value, &self.quota)) {
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

/// Calls `list` in one direction.
fn run<'a>(direction: Direction<'a>, list: impl FnOnce(&mut Fields<'a>)) -> Fields<'a> {
    run_moved(direction, Moved::default(), list)
}

fn run_moved<'a>(
    direction: Direction<'a>,
    moved: Moved,
    list: impl FnOnce(&mut Fields<'a>),
) -> Fields<'a> {
    let mut fields = Fields {
        direction,
        quota: Quota::per_second(1),
        quotas: 0,
        is_aside: false,
        moved,
    };
    list(&mut fields);
    fields
}

/// Writes the fields behind `bytes`.
fn write(bytes: Vec<u8>, list: impl FnOnce(&mut Fields<'_>)) -> Option<Vec<u8>> {
    match run(Direction::Write(bytes), list).direction {
        Direction::Write(bytes) => Some(bytes),
        _ => None,
    }
}

/// `None` if the bytes are not exactly those of the fields.
fn read<'a>(bytes: &'a [u8], list: impl FnOnce(&mut Fields<'a>)) -> Option<()> {
    let after = run(Direction::Read(bytes), list).direction;
    matches!(after, Direction::Read([])).then_some(())
}

/// The algorithm after a change. The number is that of its quotas.
fn changed<A: Algorithm>(
    mut algorithm: A,
    direction: Direction<'_>,
) -> Result<(A, usize), ConfigError> {
    let after = run(direction, |fields| algorithm.settings_fields(fields));
    match after.direction {
        Direction::Failed(Some(error)) => Err(error),
        Direction::Failed(None) => Ok((algorithm, 0)),
        _ => Ok((algorithm, after.quotas)),
    }
}

/// The settings of `algorithm` as bytes, which are equal only for equal settings. `None` if the
/// algorithm, or a part of it, lists no fields.
pub fn settings_to_bytes<A: Algorithm>(algorithm: &A) -> Option<Vec<u8>> {
    let bytes = Vec::with_capacity(32);
    write(bytes, |fields| algorithm.clone().settings_fields(fields))
}

/// The algorithm that has the settings in `bytes`. `None` if it is not of the kind of `like`.
pub fn settings_from_bytes<A: Algorithm>(like: &A, bytes: &[u8]) -> Option<A> {
    let mut algorithm = like.clone();
    read(bytes, |fields| algorithm.settings_fields(fields))?;
    algorithm.validate().ok()?;
    Some(algorithm)
}

/// The state as bytes. Moments in it are as the clock counts them.
pub fn state_to_bytes<A: Algorithm>(algorithm: &A, state: &A::State) -> Option<Vec<u8>> {
    state_onto_bytes(algorithm, state, Vec::with_capacity(32))
}

/// As [`state_to_bytes`], behind `bytes`.
pub(crate) fn state_onto_bytes<A: Algorithm>(
    algorithm: &A,
    state: &A::State,
    bytes: Vec<u8>,
) -> Option<Vec<u8>> {
    write(bytes, |fields| {
        algorithm.state_fields(&mut state.clone(), fields);
    })
}

/// Takes a state from the front of `bytes`, and moves it to the clock of this process.
pub(crate) fn read_moved_state<A: Algorithm>(
    algorithm: &A,
    bytes: &mut &[u8],
    moved: Moved,
) -> Option<A::State> {
    let mut state = algorithm.fresh(Tick::ZERO);
    let list = |fields: &mut Fields<'_>| algorithm.state_fields(&mut state, fields);
    match run_moved(Direction::Read(bytes), moved, list).direction {
        Direction::Read(rest) => *bytes = rest,
        _ => return None,
    }
    Some(state)
}

/// The state in `bytes`, if they hold one of `algorithm`.
pub fn state_from_bytes<A: Algorithm>(algorithm: &A, bytes: &[u8]) -> Option<A::State> {
    let mut state = algorithm.fresh(Tick::ZERO);
    read(bytes, |fields| algorithm.state_fields(&mut state, fields))?;
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
pub fn layout_of_settings<A: Algorithm>(algorithm: &A) -> [String; 2] {
    let list = |fields: &mut Fields<'_>| algorithm.clone().settings_fields(fields);
    match run(Direction::Name(Default::default()), list).direction {
        Direction::Name(name) => name,
        _ => Default::default(),
    }
}

/// The settings of `algorithm`, in order, with their values.
pub(crate) fn settings<A: Algorithm>(algorithm: &A) -> Vec<Listed> {
    let list = |fields: &mut Fields<'_>| algorithm.clone().settings_fields(fields);
    match run(Direction::List(Vec::new()), list).direction {
        Direction::List(settings) => settings,
        _ => Vec::new(),
    }
}

/// Changes the setting of this name.
pub(crate) fn set<A: Algorithm>(algorithm: A, name: &str, value: u64) -> Result<A, ConfigError> {
    changed(algorithm, Direction::Set(name, value)).map(|(changed, _)| changed)
}

/// The same algorithm for another quota, if it lists one.
pub(super) fn with_quota<A: Algorithm>(algorithm: &A, quota: Quota) -> Result<A, ConfigError> {
    let (changed, quotas) = changed(algorithm.clone(), Direction::Replace(quota))?;
    if quotas != 1 {
        let what = match quotas {
            0 => "another quota for this algorithm",
            _ => "one quota for a set of several limits",
        };
        let instead = "set a new algorithm with set_algorithm";
        return Err(ConfigError::Unsupported { what, instead });
    }
    changed.validate()?;
    Ok(changed)
}

/// The algorithm whose limits have the share of one of so many machines.
#[cfg_attr(
    not(any(feature = "cas", test)),
    expect(dead_code, reason = "only stores on servers ask")
)]
pub(crate) fn share_of<A: Algorithm>(algorithm: &A, machines: u64) -> Result<A, ConfigError> {
    match changed(algorithm.clone(), Direction::Share(machines))? {
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
    let list = |fields: &mut Fields<'_>| algorithm.clone().settings_fields(fields);
    let after = run(Direction::Kernels(now, Vec::new()), list);
    match after.direction {
        Direction::Kernels(_, kernels) if kernels.len() == after.quotas => Some(kernels),
        _ => None,
    }
    .filter(|kernels| !kernels.is_empty())
}

/// Refuses settings that are out of range or have no effect.
pub(super) fn check<A: Algorithm>(algorithm: &A) -> Result<(), ConfigError> {
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
