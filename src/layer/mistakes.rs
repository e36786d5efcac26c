//! A trait that says something about a mistake.

/// A service behind a limit: `Clone`, because a request that waits for its turn goes on to a clone.
#[diagnostic::on_unimplemented(
    message = "a limit needs a service that is `Clone`: derive it for `{Self}`, or put `tower::buffer::BufferLayer` between the two",
    label = "not `Clone`"
)]
pub(crate) trait CloneService: Clone {}

#[diagnostic::do_not_recommend]
impl<S: Clone> CloneService for S {}
