//! What an extractor says arrives through every extractor around it.

use super::missing::{Absent, resolve};
use super::or::FindKey;
use crate::error::Rejection;
use crate::key::{ClientIp, Costs, Extracted, Filter, KeyExtractor, Or, Priorities, Weight, With};

/// An extractor that says something of its own about everything.
#[derive(Clone, Debug)]
pub(crate) struct Loud(Extracted<u8>);

pub(crate) const LOUD: Loud = Loud(Extracted::Key(1));

const WEIGHT: Weight = Weight {
    cost: 10,
    priority: 50,
};

impl Loud {
    /// The same with another key.
    pub(crate) const fn with(key: Extracted<u8>) -> Self {
        Self(key)
    }
}

impl KeyExtractor<()> for Loud {
    type Key = u8;

    fn extract(&self, (): &()) -> Extracted<u8> {
        self.0.clone()
    }

    fn weigh(&self, (): &()) -> Weight {
        WEIGHT
    }

    fn unread_proxy_header(&self, (): &()) -> bool {
        true
    }
}

impl FindKey<()> for Loud {
    fn find(&self, (): &()) -> Option<u8> {
        Some(1)
    }
}

/// An extractor that has a key and says nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet;

impl KeyExtractor<()> for Quiet {
    type Key = u8;

    fn extract(&self, (): &()) -> Extracted<u8> {
        Extracted::Key(0)
    }
}

impl FindKey<()> for Quiet {
    fn find(&self, (): &()) -> Option<u8> {
        None
    }
}

/// What `outer` does not pass on of a [`Loud`] inside of it.
pub(crate) fn violations<K: KeyExtractor<()>>(outer: &K) -> Vec<String> {
    let mut violations = Vec::new();
    if outer.weigh(&()) != WEIGHT {
        violations.push("weight".to_owned());
    }
    if !outer.unread_proxy_header(&()) {
        violations.push("unread_proxy_header".to_owned());
    }
    violations
}

/// Whether `outer` says the same about a request as an extractor that says `inner`.
fn is_same<K: KeyExtractor<()>>(outer: &K, inner: &Extracted<u8>) -> bool {
    match (outer.extract(&()), inner) {
        (Extracted::Reject(outer), Extracted::Reject(inner)) => outer == *inner,
        (outer, inner) => {
            std::mem::discriminant(&outer.map(|_| 0)) == std::mem::discriminant(inner)
        }
    }
}

/// Shows promise 54.
#[test]
fn what_an_extractor_says_arrives_through_every_wrapper() {
    let never = |(): &()| false;
    let rejection = Rejection::new(http::StatusCode::IM_A_TEAPOT, "planted");
    for key in [
        Extracted::Key(1),
        Extracted::Skip,
        Extracted::Reject(rejection.clone()),
    ] {
        let loud = Loud::with(key.clone());
        macro_rules! check {
            ($($outer:expr),+ $(,)?) => {$({
                let outer = $outer;
                assert_eq!(violations(&outer), <[&str; 0]>::default(), stringify!($outer));
                assert!(is_same(&outer, &key), "{}: {key:?}", stringify!($outer));
            })+};
        }
        check![
            With::new(loud.clone(), Filter::new(never, None)),
            With::new(loud.clone(), Filter::new(never, Some(rejection.clone()))),
            With::new(
                With::new(loud.clone(), Filter::new(never, None)),
                Costs(|(): &()| WEIGHT.cost)
            ),
            With::new(loud.clone(), Priorities(|(): &()| 50)),
            Or::new(Quiet, loud.clone()),
            Or::new(Quiet, Quiet).or(loud.clone()),
            (loud.clone(), Quiet),
            (Quiet, loud.clone()),
            (Quiet, (Quiet, (loud.clone(), Quiet))),
            With::new(
                (Quiet, Or::new(Quiet, loud)),
                Filter::new(never, Some(rejection.clone()))
            ),
        ];
    }
    assert_eq!(violations(&Or::new(LOUD, Quiet)), <[&str; 0]>::default());
}

#[cfg(feature = "tracing")]
#[test]
fn a_key_that_clients_leave_out_is_logged_once() {
    static LOGGED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    test_support::log::subscribe(tracing::Level::WARN);
    for _ in 0..3 {
        let found = resolve(None, None, 7, &Absent::ByClient(&"no token", &LOGGED));
        assert!(matches!(found, Extracted::Key(7)));
    }
    let text = test_support::log::log();
    assert_eq!(text.matches("no token: such requests").count(), 1, "{text}");
}

#[test]
fn only_clients_that_are_found_by_the_peer_leave_a_header_of_a_proxy_unread() {
    for name in ["x-forwarded-for", "forwarded"] {
        let request = http::Request::builder().header(name, "192.0.2.1").body(());
        let is_unread = |clients: ClientIp| clients.unread_proxy_header(request.as_ref().unwrap());
        assert!(is_unread(ClientIp::peer()));
        assert!(!is_unread(ClientIp::x_forwarded_for().hops(1)));
    }
    assert!(!ClientIp::peer().unread_proxy_header(&http::Request::new(())));
}

/// Shows promise 54.
#[test]
fn the_largest_cost_of_a_tuple_counts_and_a_free_request_stays_free() {
    let cost = |cost: u64| With::new(Quiet, Costs(move |(): &()| cost));
    for (first, second, together) in [(1, 1, 1), (10, 1, 10), (3, 10, 10), (0, 1, 0), (0, 7, 7)] {
        assert_eq!((cost(first), cost(second)).weigh(&()).cost, together);
        assert_eq!((cost(second), cost(first)).weigh(&()).cost, together);
        assert_eq!(
            ((cost(second), Quiet), cost(first)).weigh(&()).cost,
            together
        );
    }
}
