//! The body of a response behind the limits of a file.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::concurrency::PermitBody;

pin_project! {
    /// The body of a response behind a [`PolicyService`](super::PolicyService). It holds the permit of
    /// each limit on requests in flight until its end.
    pub struct PolicyBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Plain {
            #[pin]
            body: B,
        },
        Permit {
            body: Pin<Box<PermitBody<PolicyBody<B>>>>,
        },
    }
}

impl<B> PolicyBody<B> {
    pub(super) const fn plain(body: B) -> Self {
        Self {
            kind: Kind::Plain { body },
        }
    }

    pub(super) fn with_permit(body: PermitBody<Self>) -> Self {
        Self {
            kind: Kind::Permit {
                body: Box::pin(body),
            },
        }
    }
}

impl<B: Body> Body for PolicyBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Plain { body } => body.poll_frame(cx),
            KindProjection::Permit { body } => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Plain { body } => body.is_end_stream(),
            Kind::Permit { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Plain { body } => body.size_hint(),
            Kind::Permit { body } => body.size_hint(),
        }
    }
}

impl<B: Default> Default for PolicyBody<B> {
    fn default() -> Self {
        Self::plain(B::default())
    }
}

impl<B: From<String>> From<String> for PolicyBody<B> {
    fn from(text: String) -> Self {
        Self::plain(text.into())
    }
}

impl<B> fmt::Debug for PolicyBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds_permit = matches!(self.kind, Kind::Permit { .. });
        f.debug_struct("PolicyBody")
            .field("holds_permit", &holds_permit)
            .finish_non_exhaustive()
    }
}
