//! A client that wants an adaptive limit to fall, so that all others are denied.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::concurrency::{Adaptive, Aimd, ConcurrencyLimitLayer, Gradient2};
use tower_throttle::{AsError, Global};

use crate::random::Random;

const MS: Duration = Duration::from_millis(1);

/// What a request does at the service, which has no bottleneck.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// One of the others: so many milliseconds.
    Usual(u32),
    /// Its body never comes, and the timeout of the service ends it.
    Stuck,
    /// It is answered after 700 ms.
    Slow,
}

async fn serve(job: Job) -> Result<(), BoxError> {
    match job {
        Job::Usual(ms) => sleep(MS * ms).await,
        Job::Stuck => timeout(MS * 800, std::future::pending()).await?,
        Job::Slow => sleep(MS * 700).await,
    }
    Ok(())
}

/// Of others' requests, 200 per second of `ms` each, how many per thousand are served, from the tenth second to the
/// sixtieth, while a client adds `more` jobs per 100 of them.
async fn served(limit: ConcurrencyLimitLayer<Global>, ms: u32, (more, job): (u64, Job)) -> usize {
    let service = limit.release_at_response().respond(AsError);
    let service = service.layer(service_fn(serve));
    let (start, mut calls, mut random) = (Instant::now(), Vec::new(), Random::new(1));
    for at in 0..60_000 {
        let (is_usual, is_attack) = (random.below(5) == 0, random.below(500) < more);
        if is_usual || is_attack {
            sleep_until(start + MS * at).await;
        }
        if is_usual {
            let call = tokio::spawn(service.clone().oneshot(Job::Usual(ms)));
            calls.extend((at >= 10_000).then_some(call));
        }
        if is_attack {
            tokio::spawn(service.clone().oneshot(job));
        }
    }
    let (mut served, all) = (0, calls.len());
    for call in calls {
        served += usize::from(call.await.unwrap().is_ok());
    }
    served * 1_000 / all
}

/// A client adds so many jobs per 100 requests of the others.
const ATTACKS: [(u64, Job); 4] = [
    (4, Job::Stuck),
    (40, Job::Stuck),
    (12, Job::Slow),
    (40, Job::Slow),
];

/// Whether the others are served nearly as by a fixed limit of 200, with 2 and with 20 of them in flight.
async fn withstands<A: Adaptive>(algorithm: impl Fn() -> A, attack: (u64, Job)) -> bool {
    let mut withstands = true;
    for ms in [10, 100] {
        let fixed = served(ConcurrencyLimitLayer::new(Global, 200), ms, attack).await;
        let adaptive = ConcurrencyLimitLayer::adaptive(algorithm());
        let adaptive = served(adaptive, ms, attack).await;
        eprintln!("{ms} ms, {attack:?}: {adaptive} of {fixed}");
        assert!(fixed >= 990, "{fixed}");
        withstands &= adaptive >= 990;
    }
    withstands
}

/// Shows promise 610.
#[tokio::test(start_paused = true)]
async fn a_few_slow_or_stuck_requests_do_not_lower_the_limit_for_the_others() {
    for attack in ATTACKS {
        assert!(withstands(Gradient2::new, attack).await, "{attack:?}");
        // It rises by one per second.
        let aimd = || Aimd::new(MS * 150).start_at(100);
        assert!(withstands(aimd, attack).await, "{attack:?}");
    }
}

/// What promise 610 excepts.
///
/// Shows promise 610.
#[tokio::test(start_paused = true)]
async fn more_than_half_of_the_requests_lower_the_limit() {
    assert!(!withstands(Gradient2::new, (110, Job::Slow)).await);
}
