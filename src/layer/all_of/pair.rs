//! Two limits, each of which may be an [`AllOf`] itself.

use std::sync::Arc;

use super::{AllEntry, AllOf, GatePart, KeyPair, Parts};
use crate::layer::{
    gate::{AtGate, Enter, Exit, Gate, Limiting},
    state::State,
};

impl<KA, KB, A, B> Parts<KeyPair<KA, KB>> for (A, B)
where
    A: Enter<KA> + Send + Sync + 'static,
    B: Enter<KB> + Send + Sync + 'static,
{
    type Entries = (A::Entry, B::Entry);

    fn with<T>(
        &self,
        key: &KeyPair<KA, KB>,
        (first_entry, second_entry): &mut Self::Entries,
        run: impl FnOnce(&mut [GatePart<'_>]) -> T,
    ) -> T {
        let first = key.first.as_ref();
        let mut first = first.map(|(key, ask)| (self.0.at(key, first_entry), *ask));
        let second = key.second.as_ref();
        let mut second = second.map(|(key, ask)| (self.1.at(key, second_entry), *ask));
        let first = first.as_mut().map(|(at, ask)| GatePart::new(at, *ask));
        let second = second.as_mut().map(|(at, ask)| GatePart::new(at, *ask));
        match (first, second) {
            (Some(first), Some(second)) => run(&mut [first, second]),
            (one, other) => run(one.or(other).as_mut_slice()),
        }
    }
}

impl<KA, KB, A, B> Gate<KeyPair<KA, KB>> for AllOf<(A, B)>
where
    A: Enter<KA> + Send + Sync + 'static,
    B: Enter<KB> + Send + Sync + 'static,
{
    type Entry = AllEntry<(A::Entry, B::Entry)>;

    fn leave(&self, key: &KeyPair<KA, KB>, entry: &mut Self::Entry) {
        self.at(key, entry).leave();
    }
}

impl<A, B> Limiting for AllOf<(A, B)>
where
    A: Limiting + Send + Sync + 'static,
    B: Limiting + Send + Sync + 'static,
{
    type Limiter = (A, B);

    #[inline]
    fn state(&self) -> &Arc<State<(A, B)>> {
        self.state()
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        *number = (*number).max(1);
        let (mut first, mut second) = (*self.state().backend).clone();
        first.rename(name, number);
        second.rename(name, number);
        self.set_name(name, Arc::new((first, second)));
    }
}

impl<A: Limiting, B: Limiting> AllOf<(A, B)> {
    pub(in crate::layer) fn of_both(first: Arc<A>, second: Arc<B>) -> Self {
        let (mut first, mut second) = (Arc::unwrap_or_clone(first), Arc::unwrap_or_clone(second));
        let mut number = 1;
        first.rename(None, &mut number);
        second.rename(None, &mut number);
        Self::new((first, second))
    }
}

impl<KA, KB, Res, A, B> Exit<KeyPair<KA, KB>, Res> for AllOf<(A, B)>
where
    A: Exit<KA, B::Response> + Enter<KA> + Send + Sync + 'static,
    B: Exit<KB, Res> + Enter<KB> + Send + Sync + 'static,
{
    type Response = A::Response;

    #[inline]
    fn exit<E>(
        entry: AllEntry<(A::Entry, B::Entry)>,
        result: Result<Res, E>,
    ) -> Result<A::Response, E> {
        let (first, second) = entry.each;
        A::exit(first, B::exit(second, result))
    }
}
