//! What a decision needs that changes more than the state in the table.

use tokio::sync::oneshot;

use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::local::{Effect, Outcome};

/// What the slow path makes of a request.
#[derive(Debug)]
pub(in crate::store) enum Slow {
    Decided(Decision),
    /// The request has to wait for an exchange, and is then decided again.
    Wait(oneshot::Receiver<Result<(), StoreError>>),
}

/// What was read from a state.
pub(in crate::store) struct Read<T>(pub(in crate::store) T);

impl<T> Outcome for Read<T> {
    fn effect(&self) -> Effect {
        Effect::Read
    }
}

/// What was found while a state was written.
pub(in crate::store) struct Written<T>(pub(in crate::store) T);

impl<T> Outcome for Written<T> {
    fn effect(&self) -> Effect {
        Effect::Changed
    }
}
