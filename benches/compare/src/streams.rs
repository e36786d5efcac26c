//! The bytes of a body through a limit: the CPU time per gigabyte, and how exact the rate is.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use axum::body::{Bytes, HttpBody};
use http_body::Frame;
use tower_throttle::stream::{LimitedBody, StreamLimit};
use tower_throttle::{Quota, TokenBucket};

use crate::row::{Effort, Row};

const FRAME: usize = 65_536;
const RATE: u64 = 10_000_000;

/// A body of so many bytes, in frames of 64 KiB.
struct Frames {
    left: usize,
    frame: Bytes,
}

impl Frames {
    fn new(bytes: usize) -> Self {
        let frame = Bytes::from(vec![7; FRAME]);
        Self { left: bytes, frame }
    }
}

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let len = self.left.min(FRAME);
        self.left -= len;
        let data = self.frame.slice(..len);
        Poll::Ready((len > 0).then_some(Ok(Frame::data(data))))
    }
}

/// A body that never waits: the milliseconds of one gigabyte.
fn per_gigabyte<B: HttpBody<Data = Bytes> + Unpin>(mut body: B) -> f64 {
    let begun = Instant::now();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut context) {
        std::hint::black_box(frame.ok());
    }
    begun.elapsed().as_secs_f64() * 1_000.0
}

fn limited(bytes: usize, bucket: TokenBucket) -> LimitedBody<Frames> {
    let limit = StreamLimit::new(bucket, ());
    LimitedBody::bytes(Frames::new(bytes), limit)
}

/// By how many percent the rate of 20 MB at 10 MB/s differs from the limit.
fn pacing_error() -> f64 {
    let bytes = 20_000_000;
    let bucket = TokenBucket::new(Quota::per_second(RATE).burst(FRAME as u64));
    let body = axum::body::Body::new(limited(bytes, bucket));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let begun = Instant::now();
    let read = runtime.block_on(axum::body::to_bytes(body, usize::MAX));
    assert_eq!(read.expect("a body").len(), bytes);
    let due = (bytes - FRAME) as f64 / RATE as f64;
    (begun.elapsed().as_secs_f64() / due - 1.0).abs() * 100.0
}

pub(crate) fn run(effort: &Effort) {
    let mut rows = [
        (
            "a body through a limit: CPU time per GB",
            "ms",
            f64::INFINITY,
        ),
        ("64 KiB frames at 10 MB/s: pacing error", "%", 2.0),
    ]
    .map(|(work, unit, goal)| Row {
        work: work.into(),
        peer: "bare",
        unit,
        ours: Vec::new(),
        theirs: Vec::new(),
        goal,
        absolute: true,
        more: false,
    });
    let gigabyte = 1_000_000_000;
    for _ in 0..effort.rounds() {
        // Never empty: what refills in a microsecond is more than a frame.
        let bucket = TokenBucket::new(Quota::per_second(1 << 40).burst(1 << 40));
        rows[0].theirs.push(per_gigabyte(Frames::new(gigabyte)));
        rows[0].ours.push(per_gigabyte(limited(gigabyte, bucket)));
        if effort.wants(&rows[1].work) {
            rows[1].theirs.push(0.0);
            rows[1].ours.push(pacing_error());
        }
    }
    for row in rows.iter().filter(|row| effort.wants(&row.work)) {
        row.print(effort);
    }
}
