//! The recorded cases of `tests/vectors`, decided in a store by `examples/replay`.

use std::path::Path;

use super::Store;
use crate::shared_vectors::{cases, fault as fault_of};

/// How `examples/replay` decides in a store.
pub(crate) struct Replay {
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// The cases that the store decides in another way, and the differences.
    pub(crate) differences: Vec<(&'static str, &'static str)>,
}

impl Replay {
    /// A replay that decides by compare-and-swap in `store`.
    #[cfg(feature = "cas")]
    pub(crate) fn in_store(store: String) -> Self {
        Self {
            arguments: vec!["--store".to_owned(), store],
            differences: OF_ONE_LAYOUT.to_vec(),
        }
    }
}

/// Of another layout a key has another value. That of `Gcra` is the time of a unit.
pub(crate) const OF_ONE_LAYOUT: [(&str, &str); 2] = [
    ("gcra-of-three-quotas", "line 3: remaining is 4, expected 0"),
    ("anchored-window-of-three-lengths", "is 3, expected 0"),
];

fn name(case: &Path) -> String {
    let name = case.file_stem().expect("a file");
    name.to_string_lossy().into_owned()
}

fn replayed(case: &Path, replay: &Replay) -> Option<String> {
    let arguments: Vec<_> = replay.arguments.iter().map(String::as_str).collect();
    fault_of(case, &arguments)
}

/// What is wrong with a store's decisions.
pub(crate) fn fault<S: Store>() -> Option<String> {
    let store = S::start();
    let replay = store.replay();
    let (mut faults, mut different, mut decided, mut skipped) = (Vec::new(), 0, 0, 0);
    for case in cases() {
        let name = name(&case);
        let expected = replay.differences.iter().find(|(case, _)| *case == name);
        match (replayed(&case, &replay), expected) {
            (None, None) => decided += 1,
            (Some(fault), _) if fault.contains("no script decides") => skipped += 1,
            (Some(fault), Some((_, difference))) if fault.contains(difference) => different += 1,
            (fault, _) => faults.push(format!("{name}: {fault:?}")),
        }
    }
    if different != replay.differences.len() || decided + different + skipped < 76 || skipped > 10 {
        faults.push(format!(
            "{decided} cases decided and {different} in another way"
        ));
    }
    faults.extend(store.fault_after_replay());
    (!faults.is_empty()).then(|| faults.join("\n"))
}
