//! A quota per key from a source that is slow, fails or changes.

use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use http::{Request, Response};
use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, advance, sleep, timeout},
};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::store::{
    Backend, Cached, Fallback, IntoBackend, Lookup, Op, Plan, Quotas, Receipt, local::Local,
};
use tower_throttle::{
    Decision, FixedWindow, Headers, Quota, RateLimitLayer, StoreError, TokenBucket,
};

type Asked = Result<Plan, StoreError>;

/// A source that takes a second, and counts.
#[derive(Clone, Default)]
struct Source(Arc<Plans>);

#[derive(Default)]
struct Plans {
    limit: AtomicU64,
    fails: AtomicUsize,
    asked: AtomicUsize,
    running: Mutex<HashMap<u64, usize>>,
    most_of_one_key: AtomicUsize,
}

/// The limits that stand for plans without a quota.
const BLOCKED: u64 = 0;
const UNLIMITED: u64 = u64::MAX;

const WORKS: usize = 0;
const FAILS: usize = 1;
const PANICS: usize = 2;
const NEVER: usize = 3;

impl Source {
    /// Every key has this many per day, or is [`BLOCKED`] or [`UNLIMITED`].
    fn of(limit: u64) -> Self {
        let source = Self::default();
        source.set(limit);
        source
    }

    fn set(&self, limit: u64) {
        self.0.limit.store(limit, SeqCst);
    }

    async fn ask(self, key: u64) -> Asked {
        let plans = &*self.0;
        plans.asked.fetch_add(1, SeqCst);
        let limit = plans.limit.load(SeqCst);
        let count = |step: isize| {
            let mut running = plans.running.lock().unwrap();
            let running = running.entry(key).or_default();
            *running = running.checked_add_signed(step).unwrap();
            plans.most_of_one_key.fetch_max(*running, SeqCst);
        };
        count(1);
        sleep(Duration::from_secs(1)).await;
        count(-1);
        match plans.fails.load(SeqCst) {
            FAILS => Err(StoreError::new("the database is down", true)),
            PANICS => panic!("a bug of the source"),
            NEVER => pending().await,
            _ => Ok(match limit {
                BLOCKED => Plan::Blocked,
                UNLIMITED => Plan::Unlimited,
                _ => Plan::Quota(Quota::per_day(limit)),
            }),
        }
    }
}

const LIFE: Duration = Duration::from_secs(60);
const CAPACITY: usize = 100;

/// A limit of 2 per day unless the source says otherwise: in this process, or over a store.
#[derive(Clone)]
struct Limit(Quotas<u64>, Cached<u64>);

fn cached(source: &Source) -> Cached<u64> {
    let source = source.clone();
    Cached::new(move |key| source.clone().ask(key))
        .capacity(CAPACITY)
        .life(LIFE)
}

/// Two per day by default.
const fn window() -> FixedWindow {
    FixedWindow::new(Quota::per_day(2)).anchored()
}

#[cfg(feature = "cas")]
fn in_store_of(plans: &Cached<u64>) -> Quotas<u64> {
    use tower_throttle::store::cas::{Cas, MemoryStore};

    let limit = Cas::new(MemoryStore::new(), "api", window()).expect("a limit");
    Quotas::new(limit, plans.clone())
}

impl Limit {
    fn over(source: &Source, in_store: bool) -> Self {
        let plans = cached(source);
        #[cfg(feature = "cas")]
        if in_store {
            return Self(in_store_of(&plans), plans);
        }
        let _ = in_store;
        Self(Quotas::new(window(), plans.clone()), plans)
    }

    async fn ask(&self, key: u64) -> Decision {
        self.0.decide(&key, 1).await.unwrap()
    }
}

/// Lets tasks run that are ready.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Shows promise 350.
#[tokio::test(start_paused = true)]
async fn one_lookup_per_key_is_in_flight() {
    for in_store in [false, true] {
        let source = Source::of(10);
        let limit = Limit::over(&source, in_store);
        for round in 0..3 {
            let asks: Vec<_> = (0..20)
                .map(|at| {
                    let limit = limit.clone();
                    tokio::spawn(async move { limit.ask(at % 2).await })
                })
                .collect();
            for ask in asks {
                let _ = ask.await.unwrap();
            }
            sleep(Duration::from_secs(1)).await;
            settle().await;
            let asked = source.0.asked.load(SeqCst);
            assert!(asked == 2 * (round + 1), "a key was looked up again");
            advance(LIFE).await;
        }
        let most = source.0.most_of_one_key.load(SeqCst);
        assert!(most == 1, "two lookups of one key were in flight");
    }
}

/// Shows promise 350.
#[tokio::test(start_paused = true)]
async fn as_many_quotas_are_kept_as_the_table_has_slots() {
    for in_store in [false, true] {
        let limit = Limit::over(&Source::of(10), in_store);
        for keys in 0..50_u64 {
            let asks = (0..40).map(|at| {
                let limit = limit.clone();
                tokio::spawn(async move { limit.ask(keys * 40 + at).await })
            });
            for ask in asks.collect::<Vec<_>>() {
                let _ = ask.await.unwrap();
            }
        }
        let newest_first = (0..2_000).rev();
        let kept = newest_first.filter(|key| limit.1.plan(key).is_some());
        let kept = kept.count();
        assert!(kept <= 5 * CAPACITY, "more keys than the capacity");
        assert!(kept >= CAPACITY / 2, "it keeps too little: {kept}");
    }
}

/// Shows promise 350.
#[tokio::test(start_paused = true)]
async fn requests_go_on_under_a_stale_quota() {
    for in_store in [false, true] {
        let source = Source::of(10);
        let limit = Limit::over(&source, in_store);
        let _ = limit.ask(1).await;
        source.set(50);
        advance(LIFE).await;
        let began = Instant::now();
        let stale = limit.ask(1).await;
        // A request waited for the refresh.
        assert!(began.elapsed().is_zero());
        assert!(stale.limit == 10, "not the old quota");
        sleep(Duration::from_secs(1)).await;
        settle().await;
        assert!(limit.ask(1).await.limit == 50, "the change has not arrived");
    }
}

/// Shows promise 350.
#[tokio::test(start_paused = true)]
async fn a_quota_that_was_not_used_for_ten_lives_is_looked_up_first() {
    let source = Source::of(10);
    let Limit(limit, _) = Limit::over(&source, false);
    let _ = limit.decide(&1, 1).await;
    source.set(20);
    advance(11 * LIFE).await;
    assert_eq!(limit.decide(&1, 1).await.unwrap().limit, 20);
}

/// Shows promise 352.
#[tokio::test(start_paused = true)]
async fn a_change_of_plan_keeps_what_was_used() {
    for in_store in [false, true] {
        let source = Source::of(10);
        let limit = Limit::over(&source, in_store);
        for _ in 0..7 {
            assert!(limit.ask(1).await.is_admitted(), "within the quota");
        }
        for (limit_now, used) in [(20, 8), (5, 10)] {
            source.set(limit_now);
            advance(LIFE).await;
            let _ = limit.ask(1).await; // begins the refresh
            sleep(Duration::from_secs(1)).await;
            settle().await;
            let decision = limit.ask(1).await;
            assert!(decision.limit == limit_now, "the change has not arrived");
            let left = limit_now.saturating_sub(used + 1);
            assert!(decision.remaining() == left, "use was lost");
            // More than the plan.
            assert!(decision.is_admitted() == (limit_now > used));
        }
    }
}

/// Shows promise 352.
#[tokio::test(start_paused = true)]
async fn a_source_that_fails_admits_no_more_than_the_default() {
    for in_store in [false, true] {
        for (fails, waits) in [(FAILS, 1), (NEVER, 2)] {
            let source = Source::of(10);
            source.0.fails.store(fails, SeqCst);
            let limit = Limit::over(&source, in_store);
            let began = Instant::now();
            for admitted in [true, true, false] {
                let decision = limit.ask(1).await;
                assert!(decision.is_admitted() == admitted, "not the default");
                assert!(decision.limit == 2, "not the default");
            }
            assert!(began.elapsed().as_secs() == waits, "it waited for long");
            // What was used counts when the quota is known at last.
            source.0.fails.store(WORKS, SeqCst);
            advance(LIFE).await;
            let _ = limit.ask(1).await;
            sleep(Duration::from_secs(1)).await;
            settle().await;
            let decision = limit.ask(1).await;
            // Use was lost.
            assert!((decision.limit, decision.remaining()) == (10, 7));
        }
    }
}

/// A runtime that nothing drives. Its time is that of the system.
struct Idle(Option<Runtime>);

impl Idle {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build();
        Self(Some(runtime.unwrap()))
    }

    /// A request comes there, and leaves if it has to wait.
    fn serve(&self, request: impl Future) {
        let _entered = self.0.as_ref().unwrap().enter();
        let mut cx = Context::from_waker(Waker::noop());
        let _ = std::pin::pin!(request).poll(&mut cx);
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}

/// Runs `test` where time is paused, and still that of the system.
fn paused<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

/// The first request of a key comes on a runtime that is not driven after it, and leaves.
async fn a_lookup_ends_without_its_runtime(in_store: bool) {
    let limit = Limit::over(&Source::of(10), in_store);
    let idle = Idle::new();
    idle.serve(limit.ask(1));
    let asks = [(); 2].map(|()| {
        let limit = limit.clone();
        tokio::spawn(timeout(LIFE, async move { limit.ask(1).await }))
    });
    let began = Instant::now();
    for ask in asks {
        let decision = ask.await.unwrap().expect("a decision");
        assert!(decision.limit == 2, "not the default");
    }
    assert!(began.elapsed().as_secs() <= 2, "it waited for long");
}

/// Shows promise 350.
#[test]
fn a_lookup_whose_runtime_is_not_driven_ends_by_its_deadline() {
    paused(a_lookup_ends_without_its_runtime(false));
    paused(a_lookup_ends_without_its_runtime(true));
}

/// So many lookups are in flight at most.
const LOOKUPS: u64 = 1_024;

struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

/// Shows promise 350.
#[tokio::test]
async fn a_request_that_leaves_leaves_no_waker() {
    let Limit(limit, _) = Limit::over(&Source::of(10), false);
    let counted = Arc::new(Counted);
    let waker = Waker::from(Arc::clone(&counted));
    let before = Arc::strong_count(&counted);
    for _ in 0..100 {
        let mut asked = limit.decide(&1, 1);
        let mut cx = Context::from_waker(&waker);
        assert!(std::pin::Pin::new(&mut asked).poll(&mut cx).is_pending());
    }
    assert_eq!(Arc::strong_count(&counted), before);
}

/// Shows promise 352.
#[tokio::test(start_paused = true)]
async fn a_failure_leaves_the_quota_that_a_key_has() {
    for fails in [FAILS, PANICS, NEVER] {
        let source = Source::of(10);
        let Limit(limit, plans) = Limit::over(&source, false);
        assert_eq!(limit.decide(&1, 1).await.unwrap().limit, 10);
        source.0.fails.store(fails, SeqCst);
        for failures in 1..4 {
            advance(LIFE).await;
            assert_eq!(limit.decide(&1, 1).await.unwrap().limit, 10);
            sleep(Duration::from_secs(3)).await;
            assert_eq!(source.0.asked.load(SeqCst), 1 + failures);
            assert!(plans.last_error().is_some());
        }
    }
}

/// Shows promise 352.
#[tokio::test(start_paused = true)]
async fn a_key_whose_quota_the_algorithm_cannot_have_gets_the_default_and_the_limit_says_so() {
    let plan = |key: &u64| match key {
        0 => Plan::Quota(Quota::per_day(10)),
        _ => Plan::Quota(Quota::per_day(10).burst(20)),
    };
    let limit = Quotas::new(window(), plan);
    assert_eq!(limit.decide(&0, 1).await.unwrap().limit, 10);
    assert_eq!(limit.last_error(), None);
    for admitted in [true, true, false] {
        let decision = limit.decide(&1, 1).await.unwrap();
        assert_eq!((decision.limit, decision.is_admitted()), (2, admitted));
    }
    let error = limit.last_error().expect("the reason").to_string();
    assert!(error.contains("burst"), "{error}");
}

/// Shows promise 350.
#[tokio::test(start_paused = true)]
async fn lookups_in_flight_are_bounded() {
    let Limit(limit, plans) = Limit::over(&Source::of(10), false);
    let asked: Vec<_> = (0..LOOKUPS).map(|key| limit.decide(&key, 1)).collect();
    let further = limit.decide(&LOOKUPS, 1).await.unwrap();
    assert_eq!(further.limit, 2, "the default, at once");
    for first in asked {
        assert_eq!(first.await.unwrap().limit, 10);
    }
    let error = plans.last_error().expect("the reason");
    assert_eq!(error, "too many lookups are in flight");
}

/// Shows promise 352.
#[tokio::test(start_paused = true)]
async fn a_refresh_arrives_although_a_lookup_has_begun_before_it() {
    let source = Source::of(10);
    let Limit(limit, plans) = Limit::over(&source, false);
    let asked = tokio::spawn(limit.decide(&1, 1));
    settle().await;
    source.set(50);
    plans.refresh(&1);
    // It has begun before.
    assert_eq!(asked.await.unwrap().unwrap().limit, 10);
    assert_eq!(limit.decide(&1, 1).await.unwrap().limit, 50);
}

/// Shows promise 601.
#[tokio::test(start_paused = true)]
async fn a_key_may_be_blocked_or_have_no_limit() {
    for in_store in [false, true] {
        for (plan, expected) in [(BLOCKED, 0), (UNLIMITED, 50)] {
            let source = Source::of(plan);
            let limit = Limit::over(&source, in_store);
            let change_to = async |plan| {
                source.set(plan);
                advance(LIFE).await;
                let _ = limit.ask(1).await; // begins the refresh
                sleep(Duration::from_secs(1)).await;
                settle().await;
            };
            for left in [9, 7] {
                let mut admitted = 0;
                for _ in 0..50 {
                    let decision = limit.ask(1).await;
                    admitted += u64::from(decision.is_admitted());
                    assert!(decision.retry_after.is_none(), "not to be retried");
                }
                assert!(admitted == expected, "not the plan");
                // Only what is done under a quota is counted.
                change_to(10).await;
                assert!(limit.ask(1).await.remaining() == left, "counted");
                change_to(plan).await;
            }
            change_to(10).await;
            assert!(limit.ask(1).await.remaining() == 5, "use was lost");
        }
    }
}

async fn nothing_is_given_back_that_was_not_taken(in_store: bool) {
    let source = Source::default();
    let Limit(limit, plans) = Limit::over(&source, in_store);
    source.set(UNLIMITED);
    let free = limit.decide(&1, 1).await.unwrap();
    let _ = limit.apply(&1, Op::Charge(5)).await.unwrap();
    source.set(10);
    plans.refresh(&1);
    let _ = limit.decide(&1, 1).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    settle().await;
    for left in [9, 8] {
        assert_eq!(limit.decide(&1, 1).await.unwrap().remaining(), left);
    }
    for (receipt, left) in [(free.receipt(), 8), (Receipt::NOW, 9)] {
        let _ = limit.apply(&1, Op::Refund(1, receipt)).await.unwrap();
        let found = limit.apply(&1, Op::Peek(0)).await.unwrap().remaining();
        assert_eq!(found, left);
    }
}

/// Shows promise 601.
#[tokio::test(start_paused = true)]
async fn what_passed_without_a_limit_is_not_given_back() {
    nothing_is_given_back_that_was_not_taken(false).await;
    nothing_is_given_back_that_was_not_taken(true).await;
}

fn in_tiers() -> Quotas<u64> {
    let both = (window(), TokenBucket::new(Quota::per_hour(30)));
    let limit = Quotas::new(
        TokenBucket::new(Quota::per_minute(2)),
        |key: &u64| match *key {
            1 => Plan::Default,
            BLOCKED => Plan::Blocked,
            UNLIMITED => Plan::Unlimited,
            20 => Plan::Tier("both"),
            30 => Plan::Tier("pro"),
            40 => Plan::Tier("none of these"),
            key => Plan::Quota(Quota::per_hour(key)),
        },
    );
    let pro = TokenBucket::new(Quota::per_hour(40));
    let limit = limit.tier("pro", window()).tier("both", both);
    limit.tier("pro", pro)
}

/// Shows promise 352.
#[tokio::test(start_paused = true)]
async fn headers_state_the_quota_of_the_key() {
    headers_state_quotas(in_tiers()).await;
    headers_state_quotas(Fallback::new(in_tiers(), Local::new(window()))).await;
}

async fn headers_state_quotas<L: Backend<u64> + IntoBackend<Backend = L>>(limit: L) {
    let key = |req: &Request<String>| req.body().parse::<u64>().unwrap_or(1);
    let layer = RateLimitLayer::new(key, limit)
        .name("api")
        .headers(Headers::Draft11);
    let service = layer.layer(service_fn(async |_: Request<String>| {
        Ok::<_, BoxError>(Response::new(String::new()))
    }));
    let told = async |key: u64| {
        let request = Request::new(key.to_string());
        let response = service.clone().oneshot(request).await.unwrap();
        let text = |name| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let [policy, rest, retry] = ["ratelimit-policy", "ratelimit", "retry-after"].map(text);
        assert_eq!(retry.is_some(), response.status() == 429 && key != BLOCKED);
        (
            response.status().as_u16(),
            policy.unwrap_or_default(),
            rest.unwrap_or_default(),
        )
    };
    for _ in 0..5 {
        let nothing = (200, String::new(), String::new());
        assert_eq!(told(UNLIMITED).await, nothing);
        let (status, policy, rest) = told(BLOCKED).await;
        assert_eq!(
            (status, &*policy, &*rest),
            (429, "\"api\";q=0", "\"api\";r=0")
        );
    }
    for (key, policy, limit) in [
        (1, "\"api\";q=2;w=60", 2),
        (40, "\"api\";q=2;w=60", 2),
        (500, "\"api\";q=500;w=3600", 500),
        (3, "\"api\";q=3;w=3600", 3),
        (30, "\"pro\";q=40;w=3600", 40),
        (20, "\"both-1\";q=2;w=86400, \"both-2\";q=30;w=3600", 2),
    ] {
        for left in (0..limit).rev().take(5) {
            let (status, stated, rest) = told(key).await;
            assert_eq!((status, &*stated), (200, policy));
            let name = policy.split(';').next().unwrap_or_default();
            assert!(rest.starts_with(&format!("{name};r={left};")), "{rest}");
        }
        if limit < 5 {
            let (status, stated, _) = told(key).await;
            assert_eq!((status, &*stated), (429, policy));
        }
    }
}

/// Shows promise 352.
#[cfg(feature = "cas")]
#[tokio::test(start_paused = true)]
async fn a_charge_over_a_store_is_made_although_the_quota_is_not_known_yet() {
    let source = Source::of(10);
    let plans = cached(&source);
    let layer = RateLimitLayer::new(|key: &u64| *key, in_store_of(&plans));
    let handle = layer.handle();
    handle.charge(&1, 4).await.unwrap();
    assert_eq!(handle.peek(&1, 0).await.unwrap().remaining(), 6);
    handle.refund(&1, 1).await.unwrap();
    assert_eq!(handle.peek(&1, 0).await.unwrap().remaining(), 7);
    handle.reset(&1).await.unwrap();
    assert_eq!(handle.peek(&1, 0).await.unwrap().remaining(), 10);
    // A source that fails leaves the quota, and a key without one gets the default.
    let limit = in_store_of(&plans);
    assert_eq!(limit.decide(&1, 1).await.unwrap().limit, 10);
    for fails in [FAILS, PANICS, NEVER] {
        source.0.fails.store(fails, SeqCst);
        advance(LIFE).await;
        assert_eq!(limit.decide(&1, 1).await.unwrap().limit, 10);
        sleep(Duration::from_secs(3)).await;
        assert_eq!(limit.apply(&2, Op::Peek(0)).await.unwrap().limit, 2);
        assert!(plans.last_error().is_some());
    }
}

/// Shows promises 352, 601.
#[tokio::test(start_paused = true)]
async fn a_plan_without_a_limit_lets_those_that_wait_go_on() {
    let plan = Arc::new(Mutex::new(Plan::Default));
    let known = Arc::clone(&plan);
    let limit = TokenBucket::new(Quota::per_day(1));
    let limits = Quotas::new(limit, move |_: &u8| *known.lock().unwrap());
    let layer = RateLimitLayer::new(|key: &u8| *key, limits)
        .queue(5)
        .respond(tower_throttle::AsError);
    let service = layer.layer(service_fn(async |_: u8| Ok::<_, BoxError>(())));
    let mut calls = [(); 3].map(|()| tokio_test::task::spawn(service.clone().oneshot(1)));
    let ready = calls.each_mut().map(|call| call.poll().is_ready());
    assert_eq!(ready, [true, false, false]);
    *plan.lock().unwrap() = Plan::Unlimited;
    assert!(service.oneshot(1).await.is_ok());
    let [_, second, third] = calls;
    assert!(second.await.is_ok() && third.await.is_ok());
}
