//! Lists of networks, lockouts, and limits on concurrency.

use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::task::{Context, Waker};

use ipnet::{Ipv4Net, Ipv6Net};
use prefix_trie::PrefixSet;
use tower::util::ServiceFn;
use tower::{BoxError, Layer, Service, service_fn};
use tower_throttle::algorithm::Algorithm;
use tower_throttle::concurrency::{ConcurrencyLimitLayer, Gradient2, UntilResponse};
use tower_throttle::key::Networks;
use tower_throttle::respond::Responder;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{AsError, Local, Lockout, Quota, SlidingLog};

use crate::keys::{Access, Key, mix, run as run_keys};
use crate::peers;
use crate::row::{Effort, Row, Side, median};

/// The most that an address among 100,000 networks may take, in nanoseconds.
const LIST_NS: f64 = 100.0;
/// The most that a lockout may take, as a multiple of a log with as many places.
const LOCKOUT: f64 = 1.3;
/// The most that a permit may take, in nanoseconds, of a fixed and of an adaptive limit.
const PERMIT_NS: f64 = 30.0;
const ADAPTIVE_NS: f64 = 60.0;

const NETWORKS: u64 = 100_000;

/// Addresses among 100,000 networks, half of which are listed.
pub(crate) fn lists(effort: &Effort) {
    v4(effort);
    v6(effort);
}

/// An address for each of `ops` numbers, each of which depends on the result before.
fn addresses(ops: u64, seed: u64, is_listed: impl Fn(u64) -> bool) -> u64 {
    let mut state = mix(seed + 77);
    let mut listed = 0;
    for _ in 0..ops {
        let result = black_box(u64::from(is_listed(black_box(state))));
        listed += result;
        state = mix(state.wrapping_add(result + 1));
    }
    listed
}

/// The network of a number. Half of all numbers have one that is listed.
fn network(number: u64) -> u64 {
    mix((number >> 32) % (2 * NETWORKS))
}

/// Without the time of the loop around the search.
fn list_row(effort: &Effort, work: &str, sides: [Side<'_>; 2], nothing: Side<'_>) {
    let [ours, theirs] = sides;
    let timed = |sides| Row::timed(effort, work.into(), "prefix-trie", 1, sides, LIST_NS);
    let around = median(&timed((nothing, nothing)).ours);
    let mut row = timed((ours, theirs));
    for took in row.ours.iter_mut().chain(&mut row.theirs) {
        *took -= around;
    }
    row.absolute = true;
    row.print(effort);
}

fn v4(effort: &Effort) {
    let work = "an IPv4 address in 100,000 networks";
    if !effort.wants(work) {
        return;
    }
    let bits = |network: u64| (network as u32) & !0xff;
    let listed = || (0..NETWORKS).map(|n| Ipv4Addr::from_bits(bits(mix(n))));
    let ours = Networks::new(listed().map(|first| format!("{first}/24")));
    let theirs: PrefixSet<Ipv4Net> = listed()
        .map(|first| Ipv4Net::new_assert(first, 24))
        .collect();
    let address = |n: u64| Ipv4Addr::from_bits(bits(network(n)) | (n as u32 & 0xff));
    list_row(
        effort,
        work,
        [
            &|ops, seed| addresses(ops, seed, |n| ours.contains(IpAddr::V4(address(n)))),
            &|ops, seed| {
                addresses(ops, seed, |n| {
                    let single = Ipv4Net::new_assert(address(n), 32);
                    theirs.get_lpm(&single).is_some()
                })
            },
        ],
        &|ops, seed| addresses(ops, seed, |n| black_box(address(n)).octets()[3] % 2 == 0),
    );
}

fn v6(effort: &Effort) {
    let work = "an IPv6 address in 100,000 networks";
    if !effort.wants(work) {
        return;
    }
    // In 2001::/16, as real ones have the first bits in common.
    let bits = |network: u64| 0x2001 << 112 | u128::from(network as u32) << 80;
    let listed = || (0..NETWORKS).map(|n| Ipv6Addr::from_bits(bits(mix(n))));
    let ours = Networks::new(listed().map(|first| format!("{first}/48")));
    let theirs: PrefixSet<Ipv6Net> = listed()
        .map(|first| Ipv6Net::new_assert(first, 48))
        .collect();
    let address = |n: u64| Ipv6Addr::from_bits(bits(network(n)) | u128::from(n));
    list_row(
        effort,
        work,
        [
            &|ops, seed| addresses(ops, seed, |n| ours.contains(IpAddr::V6(address(n)))),
            &|ops, seed| {
                addresses(ops, seed, |n| {
                    let single = Ipv6Net::new_assert(address(n), 128);
                    theirs.get_lpm(&single).is_some()
                })
            },
        ],
        &|ops, seed| addresses(ops, seed, |n| black_box(address(n)).octets()[3] % 2 == 0),
    );
}

/// A lockout beside a log with as many places.
pub(crate) fn lockout(effort: &Effort) {
    peers::settle_clock();
    let quota = Quota::per_hour(5);
    for keys in [1, 1_000, 100_000] {
        for admits in [true, false] {
            let path = if admits { "successes" } else { "blocked" };
            let work = format!("lockout, {keys} keys, {path}");
            if !effort.wants(&work) {
                continue;
            }
            let capacity = usize::try_from(keys).unwrap_or(usize::MAX).max(10_000);
            let lockout = Local::new(Lockout::new(quota)).capacity(capacity);
            let log = Local::new(SlidingLog::new(quota)).capacity(capacity);
            let mut key = u64::blank();
            for number in 0..keys {
                key.set(number);
                if !admits {
                    let _ = lockout.check(&key, 5);
                    let _ = log.check(&key, 5);
                }
            }
            let ours = |ops, seed| attempts(&lockout, keys, ops, seed);
            let theirs = |ops, seed| attempts(&log, keys, ops, seed);
            let row = Row::timed(effort, work, "sliding log", 1, (&ours, &theirs), LOCKOUT);
            row.print(effort);
        }
    }
}

/// Attempts, each of which succeeds if it is admitted, and is given back then.
fn attempts<A: Algorithm>(local: &Local<A>, keys: u64, ops: u64, seed: u64) -> u64 {
    run_keys::<u64>(keys, Access::Uniform, ops, seed, |key| {
        let decided = local.check(key, 1);
        if !decided.is_admitted() {
            return false;
        }
        let undo = pin!(Backend::apply(local, key, Op::Refund(1, decided.receipt())));
        let mut cx = Context::from_waker(Waker::noop());
        let _ = black_box(undo.poll(&mut cx));
        true
    })
}

type Inner = ServiceFn<fn(u64) -> Ready<Result<u64, BoxError>>>;
type Layered<K> = ConcurrencyLimitLayer<K, Responder<AsError>, UntilResponse>;

/// What a permit adds to a request, from its call to its response.
pub(crate) fn concurrency(effort: &Effort) {
    peers::settle_clock();
    let fixed = || ConcurrencyLimitLayer::new(|key: &u64| *key, 10);
    permit(effort, "permit of a key", PERMIT_NS, &|cost| {
        fixed()
            .cost(move |_: &u64| cost)
            .release_at_response()
            .respond(AsError)
    });
    let none = f64::INFINITY;
    permit(effort, "permit of a key, with a priority", none, &|cost| {
        let layer = fixed().priority(|key: &u64| match key % 2 {
            0 => 50,
            _ => 100,
        });
        layer
            .cost(move |_: &u64| cost)
            .release_at_response()
            .respond(AsError)
    });
    permit(
        effort,
        "permit of an adaptive limit",
        ADAPTIVE_NS,
        &|cost| {
            let layer = ConcurrencyLimitLayer::adaptive(Gradient2::new());
            layer
                .cost(move |_: &u64| cost)
                .release_at_response()
                .respond(AsError)
        },
    );
}

/// The time of a request with a permit, less that of one of cost 0, which takes none.
fn permit<K>(effort: &Effort, work: &str, goal: f64, make: &dyn Fn(u64) -> Layered<K>)
where
    Layered<K>: Layer<Inner, Service: Service<u64, Response = u64, Error = BoxError>> + Sync,
{
    if !effort.wants(work) {
        return;
    }
    let [with, without] = [1, 0].map(|cost| {
        let layer = make(cost);
        move |ops, seed| requests(&layer, ops, seed)
    });
    let mut row = Row::timed(effort, work.into(), "no permit", 1, (&with, &without), goal);
    row.ours = row
        .ours
        .iter()
        .zip(&row.theirs)
        .map(|(with, without)| with - without)
        .collect();
    row.absolute = true;
    row.print(effort);
}

fn requests<L>(layer: &L, ops: u64, seed: u64) -> u64
where
    L: Layer<Inner, Service: Service<u64, Response = u64, Error = BoxError>>,
{
    fn respond(key: u64) -> Ready<Result<u64, BoxError>> {
        ready(Ok(key))
    }
    let mut service = layer.layer(service_fn(respond as fn(u64) -> _));
    let mut cx = Context::from_waker(Waker::noop());
    let mut sum = seed;
    for n in 0..ops {
        let is_ready = service.poll_ready(&mut cx).is_ready();
        let response = pin!(service.call(black_box(n % 256)));
        sum += u64::from(is_ready && black_box(response.poll(&mut cx)).is_ready());
    }
    sum
}
