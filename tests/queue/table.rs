//! What is sent to a layer with a queue, and when each request is served. One row per case.

use std::{ops::Range, time::Duration};

use tower::{Layer, ServiceExt};
use tower_throttle::{
    AsError, FixedWindow, LeakyBucket, Local, Lockout, Quota, RateLimitLayer, RateLimited,
    algorithm::{AnyAlgorithm, IntoAlgorithm},
    key::{Costs, With},
    respond::Responder,
};

use crate::support::{Call, Job, Record, Served, cancel, key, pass, settle};
use Step::{Charge, Denied, Leave, Pass, Quotas, Refund, Send, SendOf, Waiting};

type Keys = With<fn(&Job) -> u32, Costs<fn(&Job) -> u64>>;
type Queued = RateLimitLayer<Keys, Local<AnyAlgorithm>, Responder<AsError>>;
/// What is shown, the layer, what is sent, and what is served when.
type Row = (&'static str, Queued, Vec<Step>, Vec<(u32, u64)>);

/// What happens, to the key of the first thousand names.
#[derive(Clone, Debug)]
enum Step {
    /// Requests that cost 1, one after the other.
    Send(Range<u32>),
    /// A request, and what it costs.
    SendOf(u32, u64),
    /// Requests that leave the queue.
    Leave(Range<u32>),
    /// A request is denied by now, with this `retry_after` in milliseconds if it is given.
    Denied(u32, Option<u64>),
    /// How many requests wait.
    Waiting(u64),
    /// Milliseconds pass.
    Pass(u64),
    Charge(u64),
    Refund(u64),
    /// Another quota: so many per so many milliseconds.
    Quotas(u64, u64),
}

fn queued(algorithm: impl IntoAlgorithm, queue: u32) -> Queued {
    RateLimitLayer::new(key as fn(&Job) -> u32, AnyAlgorithm::new(algorithm))
        .queue(queue)
        .cost((|job: &Job| job.cost) as fn(&Job) -> u64)
        .respond(AsError)
}

/// A bucket that releases so many per second.
fn leaky(rate: u64) -> LeakyBucket {
    LeakyBucket::new(Quota::per_second(rate).burst(1))
}

fn each_second(queue: u32) -> Queued {
    queued(leaky(1), queue)
}

/// Runs the steps, and ten minutes. Returns the requests that were served, and when, in milliseconds.
async fn served(layer: &Queued, steps: &[Step]) -> Served {
    let (record, handle) = (Record::idle(), layer.handle());
    let service = layer.layer(record.clone());
    let mut calls = Vec::<(u32, Call)>::new();
    let mut denied = 0;
    for step in steps {
        let mut send = async |name, cost| {
            let call = tokio::spawn(service.clone().oneshot(Job { name, cost }));
            calls.push((name, call));
            settle().await;
        };
        match step.clone() {
            Send(names) => {
                for name in names {
                    send(name, 1).await;
                }
            }
            SendOf(name, cost) => send(name, cost).await,
            Leave(names) => {
                for name in names {
                    let at = calls.iter().position(|call| call.0 == name).unwrap();
                    cancel(calls.remove(at).1).await;
                }
            }
            Denied(name, retry_after) => {
                let at = calls.iter().position(|call| call.0 == name).unwrap();
                let call = calls.remove(at).1;
                assert!(call.is_finished(), "{name} is denied by now");
                let error = call.await.unwrap().unwrap_err();
                let found = error.downcast_ref::<RateLimited>().unwrap().retry_after();
                let expected = retry_after.map(Duration::from_millis);
                assert!(
                    retry_after.is_none() || found == expected,
                    "{name}: {found:?}"
                );
                denied += 1;
            }
            Waiting(count) => assert_eq!(handle.waiting(), count),
            Pass(ms) => pass(ms).await,
            Charge(units) => {
                handle.charge(&0, units).await.unwrap();
            }
            Refund(units) => {
                handle.refund(&0, units).await.unwrap();
            }
            Quotas(limit, ms) => {
                let quota = Quota::per(limit, Duration::from_millis(ms)).burst(1);
                handle.set_quota(quota).unwrap();
            }
        }
        settle().await;
    }
    pass(600_000).await;
    assert_eq!((handle.waiting(), handle.counts().denied), (0, denied));
    for (name, call) in calls {
        assert_eq!(call.await.unwrap().unwrap(), name);
    }
    let mut served = record.served();
    served.sort_unstable_by_key(|(name, time)| (*time, *name));
    served
}

/// Shows promises 17, 25, 59, 61, 62, 68, 224.
#[expect(clippy::too_many_lines, reason = "a table")]
#[tokio::test(start_paused = true)]
async fn requests_are_served_when_the_table_says() {
    let millis = Duration::from_millis;
    let lockout = Lockout::new(Quota::per_minute(2)).after_denials_of(leaky(1));
    let bucket_and_day = AnyAlgorithm::new((leaky(1), FixedWindow::new(Quota::per_day(5))));
    let thirds = LeakyBucket::new(Quota::per_second(3).burst(2));
    let seats = |seats| each_second(100).seats(seats).deny_when_full();
    let rows: Vec<Row> = vec![
        (
            "thirds of a nanosecond are not lost by requests that leave; timers fire at whole milliseconds",
            queued(thirds, 1_000),
            vec![SendOf(0, 2), Send(1..301), Send(999..1_000), Leave(1..301)],
            vec![(0, 0), (999, 334)],
        ),
        (
            "each key has its own queue",
            each_second(20),
            vec![Send(0..3), Send(1_000..1_003), Leave(1_001..1_002)],
            vec![(0, 0), (1_000, 0), (1, 1_000), (1_002, 1_000), (2, 2_000)],
        ),
        (
            "a request that would wait too long is denied, until its turn is near",
            each_second(50).max_wait(millis(2_500)),
            vec![
                Send(0..3),
                Pass(100),
                Send(3..4),
                Denied(3, Some(400)),
                Pass(399),
                Send(4..5),
                Denied(4, Some(1)),
                Pass(1),
                Send(5..6),
            ],
            vec![(0, 0), (1, 1_000), (2, 2_000), (5, 3_000)],
        ),
        (
            "a lockout counts the denials of a full queue",
            queued(lockout, 1),
            vec![
                Send(0..4),
                Denied(2, None),
                Denied(3, None),
                Pass(20_000),
                Send(4..5),
                Denied(4, Some(40_000)),
            ],
            vec![(0, 0), (1, 1_000)],
        ),
        (
            "no place is given away for a request that another limit denies",
            queued(bucket_and_day, 2)
                .max_wait(millis(30_000))
                .newest_first(),
            vec![
                Send(0..3),
                Charge(9),
                Send(3..4),
                Denied(3, None),
                Waiting(2),
                Refund(9),
            ],
            vec![(0, 0), (2, 1_000), (1, 2_000)],
        ),
        (
            "a request without a seat is denied until the one with the seat has passed and it would",
            seats(1),
            vec![Send(0..2), Pass(300), Send(2..3), Denied(2, Some(1_700))],
            vec![(0, 0), (1, 1_000)],
        ),
        (
            "a denied request without a seat leaves no gap",
            seats(2),
            vec![Send(0..4), Denied(3, Some(3_000)), Pass(1_500), Send(4..5)],
            vec![(0, 0), (1, 1_000), (2, 2_000), (4, 3_000)],
        ),
        (
            "a faster quota: half an interval was left, then one interval per request",
            each_second(20),
            vec![Send(0..4), Pass(500), Quotas(10, 1_000), Send(9..10)],
            vec![(0, 0), (1, 550), (2, 650), (3, 750), (9, 850)],
        ),
        (
            "a slower quota",
            each_second(20),
            vec![Send(0..4), Pass(500), Quotas(1, 2_000), Send(9..10)],
            vec![(0, 0), (1, 1_500), (2, 3_500), (3, 5_500), (9, 7_500)],
        ),
        (
            "a refund gives back at most what is taken: those that wait hold nothing",
            each_second(50),
            vec![Send(0..4), Pass(500), Refund(2), Send(9..10)],
            vec![(0, 0), (1, 500), (2, 1_500), (3, 2_500), (9, 3_500)],
        ),
        (
            "a penalty delays all that wait",
            each_second(50),
            vec![Send(0..3), Charge(2), Send(9..10)],
            vec![(0, 0), (1, 3_000), (2, 4_000), (9, 5_000)],
        ),
    ];
    for (name, layer, steps, expected) in rows {
        assert_eq!(served(&layer, &steps).await, expected, "{name}: {steps:?}");
    }
}
