//! Settings that are refused: where they are set, by a message that names the field, the value and what is allowed.
#![cfg(all(feature = "cas", feature = "redis", feature = "tokio"))]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::time::Duration;

use tower_throttle::key::Missing;
use tower_throttle::store::cas::{Cas, MemoryStore};
use tower_throttle::store::fleet::{Leased, Synced};
use tower_throttle::store::local::Overflow;
use tower_throttle::store::{Cached, Fallback, IntoBackend, Plan, Quotas, redis::Redis};
use tower_throttle::{
    All, AnyAlgorithm, ClientIp, ConcurrencyLimitLayer, FixedWindow, Global, HeaderKey,
    LeakyBucket, Limiter, Local, Lockout, Quota, RateLimitLayer, SlidingGrid, SlidingLog,
    SlidingWindow, StoreError, TokenBucket, WarmUp,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const DAY: Quota = Quota::per_day(1);

thread_local! {
    /// The file of the last expected panic of this thread. `None` if no panic is expected.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The message and the file of the panic of `build`.
fn refusal(build: impl FnOnce()) -> (String, String) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |info| {
            let file = info.location().expect("a location").file().to_owned();
            let expected = PANIC.with_borrow_mut(|panic| panic.as_mut().map(|panic| *panic = file));
            if expected.is_none() {
                print(info);
            }
        }));
    });
    PANIC.set(Some(String::new()));
    let panic = catch_unwind(AssertUnwindSafe(build)).expect_err("a panic");
    let file = PANIC.take().expect("a location");
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref().cloned());
    (text.expect("a text"), file)
}

macro_rules! panics {
    ($($build:expr => $expected:literal;)+) => {$(
        let (text, file) = refusal(|| _ = $build);
        assert!(text.contains($expected), "{}: {text}", stringify!($build));
        assert!(file.ends_with("refused.rs"), "{}: {file}", stringify!($build));
    )+};
}

macro_rules! errors {
    ($($build:expr => $expected:literal;)+) => {$(
        let text = $build.map(drop).expect_err(stringify!($build)).to_string();
        assert!(text.contains($expected), "{}: {text}", stringify!($build));
    )+};
}

fn bucket() -> TokenBucket {
    TokenBucket::new(Quota::per_second(10))
}

fn window() -> FixedWindow {
    FixedWindow::new(DAY)
}

fn line() -> LeakyBucket {
    LeakyBucket::new(DAY.burst(1))
}

/// Shows promise 11.
#[test]
fn a_setting_of_an_algorithm_or_a_table_that_is_out_of_range_or_has_no_effect_panics() {
    let burst = Quota::per_minute(5).burst(50);
    let lockout = Lockout::new(Quota::per(5, 900 * SECOND));
    let of = |lockout: Lockout| Limiter::new(lockout);
    let table = || Local::new(bucket());
    let used = || {
        let table = table().capacity(100);
        let _ = table.check("alice", 1);
        table
    };
    panics! {
        Quota::per_second(0) => "limit: this number is not allowed; give a";
        Quota::per_hour(1 << 53) => "limit: this number is";
        Quota::per(1, Duration::ZERO) => "period: 0ns is";
        Quota::per(1, Duration::MAX) => "period: 18446744073709551615.999999999s is";
        Quota::per_second(1).burst(0) => "burst: this number is";
        DAY.burst(1_000_000) => "burst: this number is";
        Limiter::new(FixedWindow::new(burst)) => "burst: 50 is not allowed; give a quota without burst: only buckets";
        Limiter::new(SlidingLog::new(burst)) => "burst: 50 is";
        Limiter::new(SlidingWindow::new(burst)) => "burst: 50 is";
        Limiter::new(SlidingGrid::new(burst)) => "burst: 50 is";
        Limiter::new(WarmUp::new(burst, SECOND)) => "burst: 50 is";
        Limiter::new((TokenBucket::new(burst), SlidingLog::new(burst))) => "burst: 50 is";
        Local::new(SlidingLog::new(burst)) => "burst: 50 is";
        Local::new(All::new([FixedWindow::new(burst)])) => "burst: 50 is";
        Local::new(AnyAlgorithm::new(FixedWindow::new(burst))) => "burst: 50 is";
        RateLimitLayer::new(Global, FixedWindow::new(burst)) => "burst: 50 is";
        RateLimitLayer::new(|(): &()| 7_u64, FixedWindow::new(burst)) => "burst: 50 is";
        Limiter::new(bucket().debt(u64::MAX)) => "debt: 18446744073709551615 is not allowed; give a number from 1 that";
        Limiter::new(bucket().refill_every(Duration::MAX)) => "refill_every: ";
        Limiter::new(window().anchored().offset(SECOND)) => "offset: 1s is not allowed; give offset or anchored";
        of(lockout.block(Duration::ZERO)) => "block: 0ns is not allowed; give a time from 1ns to 10 years";
        of(lockout.forget(Duration::ZERO)) => "forget: 0ns is";
        Limiter::new(lockout.forget(Duration::ZERO).after_denials_of(bucket())) => "forget: 0ns is";
        Limiter::new(lockout.after_denials_of(FixedWindow::new(burst))) => "burst: 50 is";
        table().capacity(0) => "capacity: 0 is not allowed; give a";
        table().capacity(usize::MAX) => "capacity: 18446744073709551615 is";
        used().capacity(10) => "another capacity for a table that was used or cloned is not possible; set it before";
        used().overflow(Overflow::Deny) => "another overflow policy for a table";
        used().with_clock(tower_throttle::clock::MonotonicClock) => "another clock for a table";
    }
    let cloned = table();
    let clone = cloned.clone();
    panics! { cloned.capacity(10) => "another capacity for a table that was used or cloned"; }
    assert_eq!(clone.capacity(10).stats().capacity, 10, "it is alone now");
    let limits = (Limiter::new(window()), Local::new(window()));
    let layer = ConcurrencyLimitLayer::new(Global, 7);
    errors! {
        limits.0.set_quota(burst) => "burst: 50 is not allowed";
        limits.1.set_quota(burst) => "burst: 50 is not allowed";
        layer.handle().set_limit(0) => "limit: 0 is not allowed";
    }
    let [of_one, of_key] = [limits.0.peek(1), limits.1.peek(&1, 1)];
    assert_eq!([of_one.limit, of_key.limit], [DAY.limit(); 2]);
    assert_eq!(layer.handle().limit(), 7);
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as a lookup is called")]
fn plan_of((): &()) -> Plan {
    Plan::Default
}

/// Shows promises 11, 79.
#[test]
fn a_setting_of_a_layer_or_a_key_that_is_out_of_range_or_has_no_effect_panics() {
    let layer = || RateLimitLayer::new(Global, window());
    let in_flight = || ConcurrencyLimitLayer::new(Global, 1);
    let key = || HeaderKey::new("a").if_missing(Missing::Skip);
    let peer = ClientIp::peer;
    panics! {
        layer().queue(1).seats(0) => "seats: 0 is not allowed; give a number from 1 to 4294967295";
        layer().seats(1) => "`seats` without a queue is not possible; give the limit a queue first, or leave this out";
        layer().newest_first() => "`newest_first` without a queue is not possible";
        in_flight().newest_first() => "`newest_first` without a queue is not possible";
        in_flight().max_wait(Duration::ZERO) => "`max_wait` without a queue is not possible";
        layer().name("") => "name: \"\" is not allowed; give printable ASCII";
        layer().name("caf\u{e9}") => "name: \"caf\u{e9}\" is not allowed; give printable ASCII";
        HeaderKey::new("x api") => "HeaderKey::new: \"x api\" is not allowed; give the name of a header: letters";
        ClientIp::header("") => "ClientIp::header: \"\" is not allowed; give the name of a header";
        ClientIp::header("X-Forwarded-For") => "\"x-forwarded-for\" is not allowed; it holds a list";
        peer().v6_prefix(129) => "v6_prefix: 129 is not allowed; give a number from 1 to 128";
        ClientIp::x_forwarded_for().trusting(["::/0"]) => "trusting: ::/0 is not allowed; give the networks";
        ClientIp::x_forwarded_for().hops(0) => "hops: 0 is not allowed";
        key().or(peer()) => "if_missing: has no effect before `.or(..)`";
    }
}

/// Shows promise 11.
#[test]
fn settings_of_a_queue_are_refused_in_every_backend_without_one() {
    let local = || IntoBackend::into_backend(window());
    let plans = || Cached::new(|()| async { Ok::<_, StoreError>(Plan::Default) });
    let cas = || Cas::new(MemoryStore::new(), "name", window()).expect("a limit");
    let redis = || Redis::open("redis://127.0.0.1:1").expect("a URL");
    macro_rules! without_a_queue {
        ($($limit:expr;)+) => { panics! { $(
            RateLimitLayer::new(Global, $limit).seats(1) => "`seats` without a queue";
            RateLimitLayer::new(Global, $limit).newest_first() => "`newest_first` without a queue";
        )+ } };
    }
    without_a_queue! {
        Quotas::new(window(), plan_of).tier("a", window());
        Quotas::new(window(), plans());
        Quotas::new(cas(), plan_of);
        Fallback::new(local(), local());
        cas();
        Synced::new(MemoryStore::new(), "name", window()).expect("a limit");
        redis().limiter("name", window());
    }
    panics! {
        RateLimitLayer::new(Global, cas()).queue(1) => "`queue` for a limit without turns";
        RateLimitLayer::new(Global, Quotas::new(window(), plans())).queue(1) => "`queue` for a limit without turns";
    }
    let queue = |limit| RateLimitLayer::new(Global, limit);
    let turns = Cas::new(MemoryStore::new(), "name", line());
    drop(queue(turns.expect("a limit")).queue(1).seats(1));
    drop(
        RateLimitLayer::new(Global, redis().limiter("name", line()))
            .queue(1)
            .seats(1),
    );
    let tiers = Quotas::new(window(), plan_of).tier("a", line());
    drop(RateLimitLayer::new(Global, tiers).queue(1).seats(1));
    let fallback = Fallback::new(local(), line().into_backend());
    drop(RateLimitLayer::new(Global, fallback).queue(1).seats(1));
}

/// Shows promise 200.
#[test]
fn what_a_fleet_cannot_have_is_refused() {
    let store = MemoryStore::new;
    let synced = || Synced::new(store(), "api", window()).expect("a limit");
    panics! {
        synced().interval(Duration::ZERO) => "interval";
        synced().interval(3_600_001 * MS) => "interval";
        synced().deadline(Duration::ZERO) => "deadline";
        synced().life(25 * 3_600_000 * MS) => "life";
        synced().capacity(0) => "capacity";
        { let one = synced(); let _other = one.clone(); one.capacity(10) } => "used or cloned";
        { let one = synced(); let _other = one.clone(); one.life(SECOND) } => "used or cloned";
        { let one = Cas::new(store(), "api", window()).expect("a limit"); let _other = one.clone(); one.cached_keys(0) }
            => "used or cloned";
    }
    let lockout = Lockout::new(DAY);
    errors! {
        Synced::new(store(), "a b", window()) => "name";
        Synced::new(store(), "api", lockout) => "use the exact limiter of Redis, or `Cas`";
        Synced::new(store(), "api", lockout.after_denials_of(window())) => "use the exact limiter of Redis, or `Cas`";
        Leased::new(store(), "api", WarmUp::new(DAY, SECOND)) => "use the exact limiter of Redis, or `Cas`";
        Leased::new(store(), "api", AnyAlgorithm::new(lockout)) => "use the exact limiter of Redis, or `Cas`";
    }
}
