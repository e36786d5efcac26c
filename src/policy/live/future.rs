//! The response future of a service behind the limits of a file.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::backend::PolicyBackend;
use super::body::PolicyBody;
use super::keys::PolicyKeys;
use super::respond::PolicyResponder;
use super::stack::{Answer, Plain, PlainFuture};
use crate::layer::{Rate, ResponseFuture};

type Answered<B, E> = Result<Response<PolicyBody<B>>, E>;
type One<S, A> =
    ResponseFuture<Plain<S>, PolicyKeys, Rate<PolicyBackend>, PolicyResponder, Request<A>>;

pin_project! {
    /// The response of a [`PolicyService`](super::PolicyService).
    ///
    /// # Cancel safety
    /// As that of [`ResponseFuture`] for each limit.
    #[must_use = "futures do nothing unless polled"]
    pub struct PolicyFuture<S, A, B>
    where
        S: Service<Request<A>, Response = Response<B>>,
    {
        #[pin]
        step: Step<PlainFuture<S::Future>, One<S, A>, Answer<B, S::Error>, Answered<B, S::Error>>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<P, O, M, T> {
        /// No limit applies.
        Passed {
            #[pin]
            future: P,
        },
        One {
            #[pin]
            future: O,
        },
        Several {
            future: M,
        },
        Done {
            result: Option<T>,
        },
    }
}

impl<S, A, B> PolicyFuture<S, A, B>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    pub(super) const fn passed(future: PlainFuture<S::Future>) -> Self {
        Self {
            step: Step::Passed { future },
        }
    }

    pub(super) const fn one(future: One<S, A>) -> Self {
        Self {
            step: Step::One { future },
        }
    }

    pub(super) const fn several(future: Answer<B, S::Error>) -> Self {
        Self {
            step: Step::Several { future },
        }
    }

    pub(super) const fn done(result: Answered<B, S::Error>) -> Self {
        Self {
            step: Step::Done {
                result: Some(result),
            },
        }
    }
}

impl<S, A, B> Future for PolicyFuture<S, A, B>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Default + 'static,
{
    type Output = Answered<B, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().step.project() {
            StepProjection::Passed { future } => future.poll(cx),
            StepProjection::One { future } => future.poll(cx),
            StepProjection::Several { future } => future.as_mut().poll(cx),
            StepProjection::Done { result } => Poll::Ready(
                result
                    .take()
                    .expect("the future was polled after it was ready"),
            ),
        }
    }
}

/// Manual impl: futures of a service need not be `Debug`.
impl<S, A, B> fmt::Debug for PolicyFuture<S, A, B>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Passed { .. } => "in the service",
            Step::One { .. } => "behind one limit",
            Step::Several { .. } => "behind several limits",
            Step::Done { .. } => "done",
        };
        f.debug_struct("PolicyFuture")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}
