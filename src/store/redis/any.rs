//! The script of an algorithm that is chosen at run time.

use super::call::Call;
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{AnyAlgorithm, AnyState};
use crate::error::ConfigError;

/// `Script` without its associated type.
trait DynScript {
    fn prepared(&self) -> Result<AnyAlgorithm, ConfigError>;
    fn parts(&self, parts: &mut Vec<Part>);
    fn push_args(&self, call: Call, args: &mut Vec<Args>);
    fn read_state(&self, words: &mut StateWords<'_>) -> Option<AnyState>;
}

impl<A: Script + Into<AnyAlgorithm>> DynScript for A {
    fn prepared(&self) -> Result<AnyAlgorithm, ConfigError> {
        self.clone().prepared().map(A::into)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        Script::parts(self, parts);
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        Script::push_args(self, call, args);
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<AnyState> {
        Script::read_state(self, words).map(AnyState::from_state)
    }
}

/// The algorithm it holds, if there is a script for that.
fn dyn_script(any: &AnyAlgorithm) -> Option<&dyn DynScript> {
    Some(match any {
        AnyAlgorithm::TokenBucket(algorithm) => algorithm,
        AnyAlgorithm::FixedWindow(algorithm) => algorithm,
        AnyAlgorithm::CalendarWindow(algorithm) => &**algorithm,
        AnyAlgorithm::SlidingWindow(algorithm) => algorithm,
        AnyAlgorithm::SlidingLog(algorithm) => algorithm,
        AnyAlgorithm::SlidingGrid(algorithm) => &**algorithm,
        AnyAlgorithm::LeakyBucket(algorithm) => algorithm,
        AnyAlgorithm::Lockout(algorithm) => algorithm,
        AnyAlgorithm::WarmUp(algorithm) => &**algorithm,
        #[cfg(feature = "governor")]
        AnyAlgorithm::Gcra(algorithm) => algorithm,
        AnyAlgorithm::All(algorithm) => algorithm,
        _ => return None,
    })
}

impl Script for AnyAlgorithm {
    fn prepared(self) -> Result<Self, ConfigError> {
        let script = dyn_script(&self).ok_or(ConfigError::Unsupported {
            what: "a lockout that counts denials in a script, which writes nothing if it denies",
            instead: "use `Cas` with the same Redis server as its store",
        })?;
        script.prepared()
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        if let Some(script) = dyn_script(self) {
            script.parts(parts);
        }
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        if let Some(script) = dyn_script(self) {
            script.push_args(call, args);
        }
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<AnyState> {
        dyn_script(self)?.read_state(words)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{Algorithm, All, FixedWindow, Lockout, TokenBucket};
    use crate::quota::Quota;

    #[test]
    fn what_no_script_decides_is_refused_with_what_to_use_instead() {
        let window = || FixedWindow::new(Quota::per_second(1));
        let locked = Lockout::new(Quota::per_second(1)).after_denials_of(window());
        let any = |algorithm: AnyAlgorithm| Script::prepared(algorithm).map(|any| any.quota());
        let bucket = TokenBucket::new(Quota::per_second(1));
        let steps = bucket.refill_every(Duration::from_secs(1));
        let refused = [bucket.debt(1).into(), steps.into(), locked.into()];
        let [.., error] = refused.map(|algorithm| {
            let error = any(algorithm).unwrap_err().to_string();
            let advice = "use `Cas` with the same Redis server as its store";
            assert!(error.ends_with(advice), "{error}");
            error
        });
        let all = All::new([AnyAlgorithm::from(window()), locked.into()]);
        assert_eq!(any(all.into()).unwrap_err().to_string(), error);
        assert_eq!(any(window().into()).unwrap(), Quota::per_second(1));
    }
}
