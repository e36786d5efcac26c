//! What a user meets when a program names the types of its limits.

use tower_throttle::algorithm::Algorithm;
use tower_throttle::key::{Extracted, KeyExtractor};
use tower_throttle::layer::{Handle, LimitLayer, Rate};
use tower_throttle::{
    All, AsError, Global, Limiter, Local, Quota, RateLimitLayer, TokenBucket, respond::Responder,
};

fn bucket() -> TokenBucket {
    TokenBucket::new(Quota::per_second(10))
}

#[test]
fn a_layer_of_an_algorithm_has_the_type_of_a_layer_of_its_table() {
    let layers: [RateLimitLayer<Global, Local<TokenBucket>>; 2] = [
        RateLimitLayer::new(Global, bucket()),
        RateLimitLayer::new(Global, Local::new(bucket())),
    ];
    let handles: [Handle<(), Local<TokenBucket>>; 2] = layers.map(|layer| layer.handle());
    assert!(handles.iter().all(|handle| handle.counts().admitted == 0));
}

#[test]
fn code_over_algorithms_needs_no_other_bound() {
    /// What such code makes of an algorithm, by its types.
    struct Made<A: Algorithm> {
        _layer: RateLimitLayer<Global, Local<A>>,
        _of_table: RateLimitLayer<Global, Local<A>, Responder<AsError>>,
        _handle: Handle<(), Local<A>>,
        limiter: Limiter<A>,
    }
    fn made<A: Algorithm>(algorithm: A) -> Made<A> {
        let layer = RateLimitLayer::new(Global, algorithm.clone());
        let table = RateLimitLayer::new(Global, Local::new(algorithm.clone()).capacity(10));
        Made {
            _handle: layer.handle(),
            _layer: layer,
            _of_table: table.respond(AsError),
            limiter: Limiter::new(algorithm),
        }
    }
    let Made { limiter, .. } = made(All::new([bucket(), bucket()]));
    assert!(limiter.check(1).is_admitted());
}

#[test]
fn an_option_becomes_free_without_a_key_by_one_word() {
    let by_tenant = |tenant: &Option<u64>| Extracted::or_skip(*tenant);
    assert_eq!(by_tenant.extract(&Some(7)), Extracted::Key(7));
    assert_eq!(by_tenant.extract(&None), Extracted::Skip);
}

#[test]
fn the_debug_text_of_a_layer_names_it() {
    let rate = RateLimitLayer::new(Global, bucket());
    assert!(
        format!("{rate:?}").starts_with("RateLimitLayer {"),
        "{rate:?}"
    );
    let _: &LimitLayer<Global, Rate<Local<TokenBucket>>> = &rate;
}
