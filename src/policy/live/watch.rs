//! Loads a policy file again when it has changed.
//!
//! A thread reads the file and the files of its lists five times per second and compares their contents. So it
//! sees whatever a reader sees: a file that is replaced, edited in place, reached through links of which one is
//! swapped (a `ConfigMap` of Kubernetes), on a network, or in a folder that vanishes and returns. Notifications
//! of the system miss some of these, and would need this loop beside them.

use std::{
    error::Error,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use super::layer::PolicyHandle;
use super::limits::{LiveLimits, PolicyLimits};
use super::report::Reloaded;
use crate::policy::file::PolicyFile;

/// Contents are loaded when two readings in a row agree: a file is not read while it is written.
const TICK: Duration = Duration::from_millis(200);

impl PolicyHandle {
    /// Loads the TOML file at `path` again whenever it, or a file of its lists, has changed, within a second.
    ///
    /// The contents are compared, twice with a pause of 0.2 s, so it does not matter how the file is replaced:
    /// by renaming, in place, or by a link that is swapped, as Kubernetes does for a `ConfigMap`. While the file
    /// or its folder is gone, or if there is a mistake in it, the limits stay as they were.
    ///
    /// `report` gets what each reload has changed, unless it was nothing, and why one has failed, once per
    /// content. It is called in a thread of its own, which ends when the last layer, service and handle of these
    /// limits is dropped. If it panics, it is called once more with that as an error, and the watch goes on. A loop
    /// per file reads it: call this once.
    ///
    /// # Errors
    /// If the system starts no thread. A file that cannot be read is reported.
    ///
    /// ```
    /// use std::{fs, sync::mpsc, time::Duration};
    /// use tower_throttle::policy::{Environment, PolicyFile, PolicyLayer};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let folder = std::env::temp_dir().join(format!("watch-{}", std::process::id()));
    /// # fs::create_dir_all(&folder)?;
    /// let path = folder.join("policies.toml");
    /// let text = "version = 1\n[[limit]]\nname = \"all\"\nlimit = \"fixed_window 5/h\"\nkey = \"global\"";
    /// fs::write(&path, text)?;
    /// let layer = PolicyLayer::new(PolicyFile::from_toml(text)?, Environment::new().folder(&folder))?;
    /// let (sender, reports) = mpsc::channel();
    /// layer.handle().watch(&path, move |report| {
    ///     let _ = sender.send(report.map(|reloaded| reloaded.changed));
    /// })?;
    /// fs::write(&path, text.replace("5/h", "9/h"))?;
    /// let changed = reports.recv_timeout(Duration::from_secs(10))??;
    /// assert_eq!(changed, ["all"]);
    /// # Ok(fs::remove_dir_all(&folder)?)
    /// # }
    /// ```
    pub fn watch(
        &self,
        path: impl Into<PathBuf>,
        report: impl FnMut(Result<Reloaded, Box<dyn Error + Send + Sync>>) + Send + 'static,
    ) -> io::Result<()> {
        let mut watch = FileWatch {
            path: path.into(),
            shared: Arc::downgrade(&self.backend().shared),
            report,
            lists: Vec::new(),
            seen: None,
            loaded: None,
        };
        let thread = thread::Builder::new().name("tower-throttle-watch".to_owned());
        thread.spawn(move || {
            while watch.tick() {
                // If it returns early, a change is seen earlier.
                thread::park_timeout(TICK);
            }
        })?;
        Ok(())
    }
}

/// What a reload has changed, or why it has failed.
type Report = Result<Reloaded, Box<dyn Error + Send + Sync>>;

struct FileWatch<F> {
    path: PathBuf,
    /// Weak: the thread ends with the limits.
    shared: Weak<LiveLimits>,
    report: F,
    /// The files of the lists of the last file without a mistake in its text.
    lists: Vec<PathBuf>,
    /// What the last reading found, and what was loaded last, or tried.
    seen: Option<u64>,
    loaded: Option<u64>,
}

impl<F: FnMut(Report)> FileWatch<F> {
    /// Reads the files once. Returns false when the limits are gone.
    fn tick(&mut self) -> bool {
        let Some(shared) = self.shared.upgrade() else {
            return false;
        };
        let text = fs::read_to_string(&self.path);
        let found = Some(fingerprint(&text, &self.lists));
        let is_settled = mem::replace(&mut self.seen, found) == found;
        if is_settled && mem::replace(&mut self.loaded, found) != found {
            // What the program has given may panic: `report`, and what makes its stores.
            let loading = AssertUnwindSafe(|| match self.load(text, &PolicyLimits { shared }) {
                Ok(reloaded) if reloaded == Reloaded::default() => {}
                report => (self.report)(report),
            });
            if catch_unwind(loading).is_err() {
                let error = "a reload, or what reports it, has panicked".into();
                let _ = catch_unwind(AssertUnwindSafe(|| (self.report)(Err(error))));
            }
        }
        true
    }

    fn load(&mut self, text: io::Result<String>, limits: &PolicyLimits) -> Report {
        let text = text.map_err(|error| format!("{}: {error}", self.path.display()))?;
        let file = PolicyFile::from_toml(&text)?;
        let folder = &limits.shared.environment.folder;
        let lists = file.content.lists.values();
        let lists = lists.filter_map(|list| Some(folder.join(list.file.as_ref()?)));
        let lists: Vec<_> = lists.collect();
        if lists != self.lists {
            // They are read twice before they are loaded, as the file was.
            self.lists = lists;
            return Ok(Reloaded::default());
        }
        Ok(limits.reload(&file)?)
    }
}

/// Identifies the contents of the files, or why they cannot be read.
fn fingerprint(text: &io::Result<String>, lists: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.as_ref().map_err(io::Error::kind).hash(&mut hasher);
    for path in lists {
        let read = fs::read(path).map_err(|error| error.kind());
        (path, read).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
