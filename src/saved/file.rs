//! A file of several limits.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use super::{Reading, SavedKind, Writing, damaged, read_checked, refused};
use crate::sync::{Mutex, lock};

/// A limit in this process whose state can be saved and loaded: a [`Local`](crate::Local), a
/// [`Limiter`](crate::Limiter), the [`Handle`](crate::Handle) of a layer over a table, that of a policy file, and an
/// [`Arc`] of one of them.
///
/// [`Quotas`](crate::store::Quotas) have none: a state says what was used under the quota that the lookup gave the key, and
/// what is saved names one quota for all keys. A tier that is a [`Local`](crate::Local) is saved by itself.
///
/// ```
/// use tower_throttle::{FixedWindow, Limiter, Quota, store::SaveState};
///
/// fn copy(from: &dyn SaveState, to: &dyn SaveState) -> std::io::Result<()> {
///     let mut bytes = Vec::new();
///     from.save(&mut bytes)?;
///     to.load(&mut &bytes[..])
/// }
///
/// let limiter = || Limiter::new(FixedWindow::new(Quota::per_day(3)));
/// let (old, new) = (limiter(), limiter());
/// assert!(old.check(1).is_admitted());
/// copy(&old, &new)?;
/// assert_eq!(new.peek(1).remaining(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no state that can be saved",
    note = "a `Local`, a `Limiter`, and the handle of a layer over a table or of a policy file have one",
    note = "of `Quotas` save the tiers: give `Quotas::tier` a `Local`, and the file a clone of it",
    note = "of several limits in one layer save `handle.first()` and `handle.second()`"
)]
pub trait SaveState: Send + Sync {
    /// Writes what is used, so that the next process goes on with it.
    ///
    /// All keys of a table that still count are written, as tags and not as themselves, with the secret seed of their
    /// hash. Who has the bytes can find keys that share a limit, so keep them as you keep a password. A [`StateFile`]
    /// does so, and replaces its file at once. Decisions go on meanwhile: a shard of the table is locked for less than
    /// a millisecond at a time.
    ///
    /// # Errors
    /// If the writer fails, or an algorithm has no form as bytes.
    fn save(&self, writer: &mut dyn Write) -> io::Result<()>;

    /// Reads what [`save`](Self::save) has written, and goes on with it. Call it before the first request.
    ///
    /// What has passed since then counts as passed, by the machine's wall clock
    /// ([`Clock::unix_time`](crate::clock::Clock::unix_time)): not more, and nothing if that clock was set back.
    /// Windows end when the clock of this process says so.
    ///
    /// Other settings of the algorithm apply as by [`set_algorithm`](crate::Local::set_algorithm): what was used stays
    /// used.
    ///
    /// # Errors
    /// If the bytes are damaged, or do not fit: they are of another version, another algorithm or another
    /// [`capacity`](crate::Local::capacity), or the table of that program hashes otherwise. Also if the limit is
    /// in use. Then it stays as it was.
    ///
    /// Keys are found again only if their [`Hash`](std::hash::Hash) is what it was.
    fn load(&self, reader: &mut dyn Read) -> io::Result<()>;
}

impl<T: SaveState + ?Sized> SaveState for Arc<T> {
    fn save(&self, writer: &mut dyn Write) -> io::Result<()> {
        (**self).save(writer)
    }

    fn load(&self, reader: &mut dyn Read) -> io::Result<()> {
        (**self).load(reader)
    }
}

/// Several limits in one file, by name, so that a deploy does not forget what was used.
///
/// [`save`](Self::save) replaces the file at once: a reader finds the states of one moment, the new ones or those
/// before. It is readable by its owner only, as the [states](SaveState::save) hold the secret seeds of keys.
///
/// ```
/// use tower_throttle::{ClientIp, FixedWindow, Lockout, Quota, RateLimitLayer, store::StateFile};
///
/// # fn main() -> std::io::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("states-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let search = RateLimitLayer::new(ClientIp::peer(), FixedWindow::new(Quota::per_day(100)));
/// let login = RateLimitLayer::new(ClientIp::peer(), Lockout::new(Quota::per_hour(5)));
/// let states = StateFile::new(folder.join("limits"))
///     .limit("search", search.handle())
///     .limit("login", login.handle());
///
/// // Before the first request. There is no file at the first start.
/// if let Err(error) = states.load() {
///     eprintln!("some limits begin afresh: {error}");
/// }
/// // From time to time, and when the server has stopped.
/// states.save()?;
/// # std::fs::remove_dir_all(&folder)
/// # }
/// ```
pub struct StateFile {
    path: PathBuf,
    limits: Vec<(String, Box<dyn SaveState>)>,
    saving: Mutex<()>,
}

impl StateFile {
    /// A file that is not read or written yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            limits: Vec::new(),
            saving: Mutex::new(()),
        }
    }

    /// Adds a limit.
    ///
    /// # Panics
    /// If the name is taken.
    #[must_use]
    #[track_caller]
    pub fn limit(mut self, name: impl Into<String>, limit: impl SaveState + 'static) -> Self {
        let name = name.into();
        let is_taken = self.limits.iter().any(|(taken, _)| *taken == name);
        assert!(!is_taken, "two limits of a state file are named `{name}`");
        self.limits.push((name, Box::new(limit)));
        self
    }

    /// Writes the states of all limits into a new file, and puts it in place of the old one.
    ///
    /// It waits for the disk, so call it where that is allowed, as in `tokio::task::spawn_blocking`.
    ///
    /// # Errors
    /// If the file cannot be written. The old one stays.
    pub fn save(&self) -> io::Result<()> {
        let _saving = lock(&self.saving);
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", process::id()));
        let new = self.path.with_file_name(name);
        let written = self
            .write_to(&new)
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write_to(&self, path: &PathBuf) -> io::Result<()> {
        // A file of a process of this number that has ended.
        let _ = fs::remove_file(path);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        save_named(self.named(), &mut file)?;
        file.sync_all()
    }

    /// Loads the states of all limits that are in the file. A limit that is not begins afresh, as all do if there is
    /// no file.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged: then nothing is loaded. Or if the state of a limit does not fit: then
    /// this limit begins afresh, the others are loaded, and the error says why.
    pub fn load(&self) -> io::Result<()> {
        match File::open(&self.path) {
            Ok(mut file) => load_named(self.named(), &mut file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn named(&self) -> impl Iterator<Item = (&str, &dyn SaveState)> {
        self.limits.iter().map(|(name, limit)| (&**name, &**limit))
    }
}

/// Writes several limits by name.
pub(crate) fn save_named<'a>(
    limits: impl Iterator<Item = (&'a str, &'a dyn SaveState)>,
    writer: &mut dyn Write,
) -> io::Result<()> {
    let mut out = Writing::new(SavedKind::File);
    for (name, limit) in limits {
        let mut state = Vec::new();
        limit.save(&mut state)?;
        out.block(name.as_bytes());
        out.block(&state);
    }
    out.finish(writer)
}

/// Loads those of the limits that were saved. The error is about each that does not fit.
pub(crate) fn load_named<'a>(
    limits: impl Iterator<Item = (&'a str, &'a dyn SaveState)>,
    reader: &mut dyn Read,
) -> io::Result<()> {
    let bytes = read_checked(SavedKind::File, reader)?;
    let mut reading = Reading(&bytes);
    let mut saved = Vec::new();
    while !reading.0.is_empty() {
        let name = std::str::from_utf8(reading.block()?).map_err(|_| damaged())?;
        saved.push((name, reading.block()?));
    }
    let mut reasons = Vec::new();
    for (name, limit) in limits {
        let found = saved.iter().find(|(saved, _)| *saved == name);
        if let Some(Err(error)) = found.map(|&(_, mut state)| limit.load(&mut state)) {
            reasons.push(format!("{name}: {error}"));
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(refused(reasons.join("; ")))
}

/// Manual impl: limits are not `Debug`.
impl fmt::Debug for StateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.limits.iter().map(|(name, _)| name);
        f.debug_struct("StateFile")
            .field("path", &self.path)
            .field("limits", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
