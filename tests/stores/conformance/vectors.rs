//! The recorded cases of `tests/vectors`, decided in a store by `examples/replay`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::Store;
use crate::shared_vectors::{cases, fault as fault_of, lines};

/// How `examples/replay` decides in a store.
pub(crate) struct Replay {
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// The cases that the store refuses, because it converts a key to another quota in one way.
    pub(crate) refused: &'static [&'static str],
}

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
    let (mut faults, mut refused, mut decided) = (Vec::new(), 0, 0);
    for case in cases() {
        let name = name(&case);
        match replayed(&case, &replay) {
            None => decided += 1,
            Some(fault)
                if replay.refused.contains(&&*name)
                    && fault.contains("expected as_is or reset in") =>
            {
                refused += 1;
            }
            Some(fault) => faults.push(format!("{name}: {fault}")),
        }
    }
    if refused != replay.refused.len() || decided + refused < 99 {
        faults.push(format!("{decided} cases decided and {refused} refused"));
    }
    faults.extend(store.fault_after_replay());
    (!faults.is_empty()).then(|| faults.join("\n"))
}

/// The algorithms of which one unit too many is not found.
pub(crate) fn unseen<S: Store>() -> Vec<&'static str> {
    let store = S::start();
    let replay = store.replay();
    let algorithms = [
        "fixed_window",
        "sliding_log",
        "sliding_window_counter",
        "sliding_grid",
        "gcra",
        "leaky_bucket_meter",
        "leaky_bucket_queue",
        "warm_up",
    ];
    let is_unseen = |algorithm: &&'static str| {
        let start = format!("random-{algorithm}-");
        let case = cases()
            .into_iter()
            .find(|case| name(case).starts_with(&start));
        let text = fs::read_to_string(case.expect("a case")).expect("a readable case");
        let (policy, steps) = text.split_once('\n').expect("a policy first");
        let mut policy: Value = lines(policy).remove(0);
        for field in ["limit", "burst"] {
            if let Some(most) = policy.get(field).and_then(Value::as_u64) {
                policy[field] = Value::from(most + 1);
            }
        }
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "-");
        let altered = format!("vectors-{}-{thread}{algorithm}.jsonl", std::process::id());
        let altered = std::env::temp_dir().join(altered);
        fs::write(&altered, format!("{policy}\n{steps}")).expect("a writable folder");
        let found = replayed(&altered, &replay);
        fs::remove_file(&altered).expect("it was written above");
        found.is_none()
    };
    algorithms.into_iter().filter(is_unseen).collect()
}
