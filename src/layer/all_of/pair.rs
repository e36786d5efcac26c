//! Two limits, each of which may be an [`AllOf`] itself.

use std::sync::Arc;

use super::part::{Part, PartOf, Slot};
use super::{AllOf, AskParts, KeyPair, Parts, Renamed};
use crate::decision::Decision;
use crate::layer::gate::{Exit, Gate, Limiting};
use crate::respond::{OwnRules, Policies};

impl<KA, KB, A: Gate<KA>, B: Gate<KB>> Parts<KeyPair<KA, KB>> for (A, B)
where
    A: Send + Sync + 'static,
    B: Send + Sync + 'static,
{
    type Slots = (Slot<A::Entry>, Slot<B::Entry>);
}

impl<KA, KB, A: Gate<KA>, B: Gate<KB>> AskParts<KeyPair<KA, KB>> for (A, B)
where
    A: Send + Sync + 'static,
    B: Send + Sync + 'static,
{
    fn with<T>(
        &self,
        key: &KeyPair<KA, KB>,
        slots: &mut Self::Slots,
        run: impl FnOnce(&mut [&mut dyn Part]) -> T,
    ) -> T {
        let first = key.first.as_ref().map(|of| PartOf {
            gate: &self.0,
            key: &of.key,
            ask: of.ask,
            number: (0, 2),
            rules: None,
            slot: &mut slots.0,
        });
        let second = key.second.as_ref().map(|of| PartOf {
            gate: &self.1,
            key: &of.key,
            ask: of.ask,
            number: (1, 2),
            rules: None,
            slot: &mut slots.1,
        });
        match (first, second) {
            (Some(mut first), Some(mut second)) => run(&mut [&mut first, &mut second]),
            (Some(mut first), None) => run(&mut [&mut first]),
            (None, Some(mut second)) => run(&mut [&mut second]),
            (None, None) => run(&mut []),
        }
    }

    fn policies<'a>(
        &'a self,
        key: &'a KeyPair<KA, KB>,
        decision: &mut Decision,
    ) -> (Arc<Policies>, OwnRules<'a>) {
        let is_second = decision.policy % 2 == 1;
        decision.policy /= 2;
        let told = if is_second {
            let of = key.second.as_ref();
            of.map(|of| self.1.policies(&of.key, decision))
        } else {
            let of = key.first.as_ref();
            of.map(|of| self.0.policies(&of.key, decision))
        };
        told.unwrap_or_default()
    }
}

impl<A: Limiting, B: Limiting> Renamed for (A, B) {
    #[track_caller]
    fn renamed(&self, name: Option<&str>, number: &mut usize) -> Self {
        let (mut first, mut second) = self.clone();
        first.rename(name, number);
        second.rename(name, number);
        (first, second)
    }
}

impl<A: Limiting, B: Limiting> AllOf<(A, B)> {
    pub(in crate::layer) fn of_both(first: A, second: B) -> Self {
        Self::new((first, second).renamed(None, &mut 1))
    }
}

impl<KA, KB, Res, A, B> Exit<KeyPair<KA, KB>, Res> for AllOf<(A, B)>
where
    A: Exit<KA, B::Response> + Send + Sync + 'static,
    B: Exit<KB, Res> + Send + Sync + 'static,
{
    type Response = A::Response;

    #[inline]
    fn exit<E>(
        (first, second): <Self as Gate<KeyPair<KA, KB>>>::Entry,
        result: Result<Res, E>,
    ) -> Result<A::Response, E> {
        A::exit(first.entry, B::exit(second.entry, result))
    }
}
