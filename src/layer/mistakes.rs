//! Traits that say something about a mistake.

/// A service behind a limit: `Clone`, because a request that waits for its turn goes on to a clone.
#[diagnostic::on_unimplemented(
    message = "a limit needs a service that is `Clone`: derive it for `{Self}`, or put `tower::buffer::BufferLayer` between the two",
    label = "not `Clone`"
)]
pub trait CloneService: Clone {}

#[diagnostic::do_not_recommend]
impl<S: Clone> CloneService for S {}

/// Never implemented: it gives the compiler something to say about `RateLimitLayer::queue`.
#[diagnostic::on_unimplemented(
    message = "a queue is a setting of the algorithm, not of the layer: write `LeakyBucket::new(quota).queue(n)`",
    label = "not a setting of a rate limit"
)]
#[expect(unnameable_types, reason = "never implemented")]
pub trait QueueOfAlgorithm {}
