//! What a script has to be told of an algorithm that is chosen while the program runs.

use super::params::Call;
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{
    All, AnyAlgorithm, AnyState, FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket, WarmUp,
};
use crate::error::ConfigError;

/// `Script` without its associated type.
trait DynScript {
    fn prepared(&self) -> Result<AnyAlgorithm, ConfigError>;
    fn parts(&self, parts: &mut Vec<Part>);
    fn arguments(&self, call: Call, args: &mut Args);
    fn recall(&self, words: &mut StateWords<'_>) -> Option<AnyState>;
}

impl<A: Script> DynScript for A {
    fn prepared(&self) -> Result<AnyAlgorithm, ConfigError> {
        self.clone().prepared().map(AnyAlgorithm::new)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        Script::parts(self, parts);
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        Script::arguments(self, call, args);
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<AnyState> {
        Script::recall(self, words).map(AnyState::from_state)
    }
}

/// The algorithm in it, if there is a script for that.
fn known(any: &AnyAlgorithm) -> Option<&dyn DynScript> {
    fn of<A: Script>(any: &AnyAlgorithm) -> Option<&dyn DynScript> {
        any.downcast_ref::<A>()
            .map(|algorithm| algorithm as &dyn DynScript)
    }
    let kinds = [
        of::<TokenBucket>,
        of::<FixedWindow>,
        of::<SlidingWindow>,
        of::<SlidingLog>,
        of::<SlidingGrid>,
        of::<LeakyBucket>,
        of::<WarmUp>,
        #[cfg(feature = "governor")]
        of::<crate::algorithm::Gcra>,
        of::<All<AnyAlgorithm>>,
        of::<AnyAlgorithm>,
    ];
    kinds.iter().find_map(|kind| kind(any))
}

impl Script for AnyAlgorithm {
    fn prepared(self) -> Result<Self, ConfigError> {
        match known(&self) {
            Some(known) => known.prepared(),
            None => Err(ConfigError::Unsupported {
                what: "an algorithm of your own, or a tuple, inside of AnyAlgorithm in Redis",
                instead: "give it one of this crate, or All of these",
            }),
        }
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        if let Some(known) = known(self) {
            known.parts(parts);
        }
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        if let Some(known) = known(self) {
            known.arguments(call, args);
        }
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<AnyState> {
        known(self)?.recall(words)
    }
}
