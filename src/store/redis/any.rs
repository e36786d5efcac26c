//! The script of an algorithm that is chosen at run time.

use super::call::Call;
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{
    Algorithm, All, AnyAlgorithm, AnyState, FixedWindow, LeakyBucket, Lockout, SlidingGrid,
    SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};
use crate::error::ConfigError;

/// `Script` without its associated type.
trait DynScript {
    fn prepared(&self) -> Result<AnyAlgorithm, ConfigError>;
    fn parts(&self, parts: &mut Vec<Part>);
    fn push_args(&self, call: Call, args: &mut Args);
    fn read_state(&self, words: &mut StateWords<'_>) -> Option<AnyState>;
}

impl<A: Script> DynScript for A {
    fn prepared(&self) -> Result<AnyAlgorithm, ConfigError> {
        self.clone().prepared().map(AnyAlgorithm::new)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        Script::parts(self, parts);
    }

    fn push_args(&self, call: Call, args: &mut Args) {
        Script::push_args(self, call, args);
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<AnyState> {
        Script::read_state(self, words).map(AnyState::from_state)
    }
}

/// The algorithm it holds, if there is a script for that.
fn dyn_script(any: &AnyAlgorithm) -> Option<&dyn DynScript> {
    fn downcast<A: Script>(any: &AnyAlgorithm) -> Option<&dyn DynScript> {
        any.downcast_ref::<A>()
            .map(|algorithm| algorithm as &dyn DynScript)
    }
    let kinds = [
        downcast::<TokenBucket>,
        downcast::<FixedWindow>,
        downcast::<SlidingWindow>,
        downcast::<SlidingLog>,
        downcast::<SlidingGrid>,
        downcast::<LeakyBucket>,
        downcast::<Lockout>,
        downcast::<WarmUp>,
        #[cfg(feature = "governor")]
        downcast::<crate::algorithm::Gcra>,
        downcast::<All<AnyAlgorithm>>,
        downcast::<AnyAlgorithm>,
    ];
    kinds.iter().find_map(|kind| kind(any))
}

impl Script for AnyAlgorithm {
    fn prepared(self) -> Result<Self, ConfigError> {
        match dyn_script(&self) {
            Some(script) => script.prepared(),
            None if self.facts().counts_denials => Err(ConfigError::Unsupported {
                what: "a lockout that counts denials in a script, which writes nothing if it denies",
                instead: "use `Cas` with the same Redis server as its store",
            }),
            None => Err(ConfigError::Unsupported {
                what: "an algorithm of your own, or a tuple, inside AnyAlgorithm in Redis",
                instead: "give it an algorithm of this crate, or All of such",
            }),
        }
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        if let Some(script) = dyn_script(self) {
            script.parts(parts);
        }
    }

    fn push_args(&self, call: Call, args: &mut Args) {
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
    use super::*;
    use crate::quota::Quota;

    #[test]
    fn a_lockout_of_denials_is_refused_with_what_to_use_instead() {
        let window = || FixedWindow::new(Quota::per_second(1));
        let locked = Lockout::new(Quota::per_second(1)).after_denials_of(window());
        let any = |algorithm: AnyAlgorithm| Script::prepared(algorithm).map(|any| any.quota());
        let error = any(locked.into()).unwrap_err().to_string();
        assert!(
            error.ends_with("use `Cas` with the same Redis server as its store"),
            "{error}"
        );
        let all = All::new([AnyAlgorithm::from(window()), locked.into()]);
        assert_eq!(any(all.into()).unwrap_err().to_string(), error);
        assert_eq!(any(window().into()).unwrap(), Quota::per_second(1));
    }
}
