//! Bytes of a body.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    Decision, Global, Local, Quota, RateLimited, StoreError, TokenBucket,
    store::{Backend, Cached, IntoBackend, Op, Plan, Quotas},
    stream::{BodyLimitLayer, LimitedBody, StreamLimit},
};

const RATE: u64 = 10_000_000;
const CHUNK: usize = 65_536;

/// A body of these frames, which states this length.
struct Frames {
    frames: VecDeque<Result<Frame<Bytes>, &'static str>>,
    stated: u64,
}

impl Frames {
    fn new(frames: impl IntoIterator<Item = Result<Frame<Bytes>, &'static str>>) -> Self {
        let frames: VecDeque<_> = frames.into_iter().collect();
        let of = |frame: &Result<Frame<Bytes>, _>| {
            let data = frame.as_ref().ok().and_then(|frame| frame.data_ref());
            data.map_or(0, Bytes::len) as u64
        };
        let stated = frames.iter().map(of).sum();
        Self { frames, stated }
    }

    /// `n` frames of `size` bytes.
    fn of(n: usize, size: usize) -> Self {
        let data = Bytes::from(vec![7; size]);
        Self::new((0..n).map(|_| Ok(Frame::data(data.clone()))))
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.frames.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.stated)
    }
}

fn bucket(burst: u64) -> TokenBucket {
    bucket_of(RATE, burst)
}

fn bucket_of(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(Quota::per_second(rate).burst(burst))
}

/// Rates of 10 kB to 100 MB per second, and bursts that are worth 10 µs to a second. At no moment has more
/// passed than the limit admits until then.
///
/// Shows promise 344.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "random numbers of any size"
)]
#[tokio::test(start_paused = true)]
async fn the_rate_holds_for_any_burst() {
    let mut random = 54_u64;
    let mut part = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 40) as f64 / f64::from(1 << 24)
    };
    let mut slow = Vec::new();
    for case in 0..150 {
        let rate = 10_f64.powf(4.0 + 4.0 * part()) as u64;
        let burst = ((rate as f64 * 10_f64.powf(-5.0 * part())) as u64).max(16);
        let (size, bucket) = (
            1 + (100_000.0 * part() * part()) as usize,
            bucket_of(rate, burst),
        );
        let plan = Plan::Quota(Quota::per_second(rate).burst(burst));
        let limit = match case % 4 {
            0 => StreamLimit::new(bucket, ()),
            1 => StreamLimit::new(bucket, 7_u64),
            2 => StreamLimit::new(Quotas::new(bucket_of(1, 1), move |_: &u64| plan), 7_u64),
            _ => {
                let plans = Cached::new(move |_: u64| async move { Ok::<_, StoreError>(plan) });
                StreamLimit::new(Quotas::new(bucket_of(1, 1), plans), 7_u64)
            }
        };
        let frames = (burst + rate / 8) as usize / size + 1;
        let mut body = LimitedBody::bytes(Frames::of(frames, size), limit);
        let (start, mut passed) = (Instant::now(), 0);
        while let Some(frame) = body.frame().await {
            passed += frame.unwrap().into_data().unwrap().len() as u128;
            let due = u128::from(rate) * start.elapsed().as_nanos() / 1_000_000_000;
            assert!(passed <= u128::from(burst) + due, "case {case}: too fast");
        }
        let due = (passed - u128::from(burst)) * 1_000_000_000 / u128::from(rate);
        let error = (start.elapsed().as_nanos() - due) * 1_000 / due;
        if error > 20 {
            slow.push(format!(
                "{rate}/s, burst {burst}, frames of {size}: {error} per thousand"
            ));
        }
    }
    assert!(slow.is_empty(), "{} of 150: {slow:#?}", slow.len());
}

/// Shows promise 344.
#[tokio::test(start_paused = true)]
async fn bodies_of_one_key_share_its_limit_and_others_do_not() {
    let service = service_fn(async |_: Request<LimitedBody<Full<Bytes>>>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![0; 500_000]))))
    });
    let key = |request: &Request<Full<Bytes>>| request.uri().path().to_owned();
    let limit = bucket(CHUNK as u64);
    let service = BodyLimitLayer::responses(key, limit).layer(service);
    let start = Instant::now();
    let mut downloads = tokio::task::JoinSet::new();
    for path in ["/a", "/a", "/a", "/a", "/b"] {
        let request = Request::get(path).body(Full::default()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        downloads.spawn(async move {
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (path, body.len(), start.elapsed().as_millis())
        });
    }
    let ends = downloads.join_all().await;
    assert!(ends.iter().all(|end| end.1 == 500_000));
    let last = |path| {
        ends.iter()
            .filter(|end| end.0 == path)
            .map(|end| end.2)
            .max()
    };
    let (shared, alone) = (last("/a").unwrap(), last("/b").unwrap());
    assert!((190..=200).contains(&shared), "{shared} ms for 2 MB");
    assert!((42..=47).contains(&alone), "{alone} ms for 500 kB");
}

fn limited(frames: Frames, burst: u64) -> LimitedBody<Frames> {
    LimitedBody::bytes(frames, StreamLimit::new(bucket(burst), ()))
}

/// Shows promise 344.
#[tokio::test(start_paused = true)]
async fn trailers_errors_and_empty_frames_pass_uncounted_and_in_order() {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let frames = Frames::new([
        Ok(Frame::data(Bytes::new())),
        Ok(Frame::data(Bytes::from(vec![1; 3 * CHUNK]))),
        Err("lost"),
        Ok(Frame::trailers(trailers.clone())),
    ]);
    let mut body = limited(frames, CHUNK as u64);
    let found = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(found, "");
    let mut left = 3 * CHUNK;
    while left > 0 {
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!((1..=CHUNK).contains(&piece.len()));
        left -= piece.len();
        assert!(!body.is_end_stream());
    }
    assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "lost");
    let last = body.frame().await.unwrap().unwrap();
    assert_eq!(last.into_trailers().unwrap(), trailers);
    assert!(body.is_end_stream() && body.frame().await.is_none());
}

#[test]
fn pieces_of_no_byte_and_of_no_size_are_refused() {
    let layer = |sizes| BodyLimitLayer::requests(Global, bucket(9)).pieces(sizes);
    let is_refused = |(from, to)| {
        std::panic::catch_unwind(|| layer(std::ops::RangeInclusive::new(from, to))).is_err()
    };
    assert_eq!(
        [(0, 9), (9, 8), (1, 1)].map(is_refused),
        [true, true, false]
    );
}

/// Shows promise 344.
#[tokio::test(start_paused = true)]
async fn a_body_that_may_not_wait_fails_and_loses_nothing() {
    let limit = StreamLimit::new(bucket(60_000), ()).max_wait(Duration::ZERO);
    let mut body = LimitedBody::bytes(Frames::of(2, 60_000), limit);
    let mut len = 0;
    let denied = loop {
        match body.frame().await.unwrap() {
            Ok(frame) => len += frame.into_data().unwrap().len(),
            Err(denied) => break denied,
        }
    };
    assert_eq!(denied.to_string(), "rate limit exceeded, retry in 1 s");
    assert!(denied.is::<tower_throttle::RateLimited>());
    assert!((30_000..=60_000).contains(&len), "{len}");
    let mut rest = 0;
    for _ in 0..9 {
        tokio::time::advance(Duration::from_secs(1)).await;
        if let Some(Ok(frame)) = body.frame().await {
            rest += frame.into_data().unwrap().len();
        }
    }
    assert_eq!(len + rest, 120_000);
}

/// Shows promise 344.
#[tokio::test(start_paused = true)]
async fn frames_smaller_than_a_piece_are_counted_together() {
    let local = Local::new(bucket(100_000));
    let limit = BodyLimitLayer::responses(|_: &Request<Full<Bytes>>| 7_u64, local.clone());
    let layer = limit.pieces(10_000..=20_000);
    for (len, left) in [(1, 90_000), (1, 80_000), (25_000, 50_000)] {
        let service = layer.layer(service_fn(move |_: Request<LimitedBody<Full<Bytes>>>| {
            let body = Full::new(Bytes::from(vec![0; len]));
            ready(Ok::<_, Infallible>(Response::new(body)))
        }));
        let sent = service.oneshot(Request::new(Full::default()));
        let response = sent.await.unwrap();
        let passed = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            (passed.len(), local.peek(&7_u64, 0).remaining()),
            (len, left)
        );
    }
}

/// A store that is down.
#[derive(Debug)]
struct Down;

impl Backend<u64> for Down {
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, _: &u64, _: Op) -> Self::Future {
        ready(Err(StoreError::new("down", true)))
    }

    fn quotas(&self) -> Vec<Quota> {
        vec![Quota::per_second(RATE)]
    }
}

impl IntoBackend for Down {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// Shows promise 396.
#[tokio::test]
async fn a_body_passes_or_fails_without_its_store_as_it_is_set() {
    for passes in [true, false] {
        let file = service_fn(async |_: Request<LimitedBody<Full<Bytes>>>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("file"))))
        });
        let mut layer = BodyLimitLayer::responses(|_: &Request<Full<Bytes>>| 7_u64, Down);
        if !passes {
            layer = layer.deny_on_store_error();
        }
        let sent = layer.layer(file).oneshot(Request::new(Full::default()));
        let response = sent.await;
        let body = response.unwrap().into_body().collect().await;
        let failed = body.as_ref().err().and_then(|error| error.downcast_ref());
        assert_eq!(body.is_ok(), passes);
        assert_eq!(failed.and_then(RateLimited::store_error).is_none(), passes);
    }
}
