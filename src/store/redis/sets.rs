//! The scripts of several limits.

use super::call::Call;
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::All;
use crate::error::ConfigError;

impl<A: Script, B: Script> Script for (A, B) {
    fn prepared(self) -> Result<Self, ConfigError> {
        Ok((self.0.prepared()?, self.1.prepared()?))
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        self.0.parts(parts);
        self.1.parts(parts);
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        self.0.push_args(call, args);
        self.1.push_args(call, args);
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        Some((self.0.read_state(words)?, self.1.read_state(words)?))
    }
}

impl<A: Script> Script for All<A> {
    fn prepared(self) -> Result<Self, ConfigError> {
        if self.parts().is_empty() {
            return Err(ConfigError::Unsupported {
                what: "an empty All in Redis",
                instead: "give All at least one part",
            });
        }
        let parts: Result<Vec<_>, _> = self.parts().iter().cloned().map(A::prepared).collect();
        Ok(Self::new(parts?))
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        for part in Self::parts(self) {
            part.parts(parts);
        }
    }

    fn push_args(&self, call: Call, args: &mut Vec<Args>) {
        for part in Self::parts(self) {
            part.push_args(call, args);
        }
    }

    fn read_state(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let parts = Self::parts(self).iter();
        parts.map(|part| part.read_state(words)).collect()
    }
}
