//! Differential tests: the same traces give equal decisions by the scripts, on a real server, and by
//! the algorithms in Rust.
//!
//! `TRACES=100000 cargo test --release --all-features --lib redis::differential` is the long run.

use std::time::Duration;

use super::calendar::tests::MACHINE;
use super::call::Call;
use super::reply::parse_reply;
use super::script::{Program, Scripted, call_args, ceil_to_micros, decode_reply};
use super::send::Text;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::Quota;

mod agreement;
mod batched;
#[cfg(feature = "calendar")]
mod calendar;
mod clock;
mod configurations;
mod declared;
#[cfg(feature = "cas")]
mod fleet;
#[cfg(feature = "cas")]
mod fleet_servers;
#[cfg(feature = "cas")]
#[path = "../../../../tests/redis/hashing_proxy.rs"]
mod hashing_proxy;
mod key_quotas;
mod mutants;
mod oracle;
mod policies;
#[cfg(feature = "cas")]
#[path = "../../../../tests/common/proxy.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod proxy;
#[path = "../../../../tests/algorithms/random.rs"]
mod random;
#[cfg(all(feature = "cas", feature = "redis-cluster"))]
#[path = "../../../../tests/common/redis_cluster.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod redis_cluster;
#[path = "../../../../tests/common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod redis_server;

use self::oracle::{Oracle, Step, Stored, header_of};
use self::random::Random;
use self::redis_server::RedisServer;

/// Replaces the server's clock, for the time and for expiry.
const FAKE_CLOCK: &str = include_str!("../../../../examples/replay/clock.lua");

/// Fails a script that touches a key that is not declared, as some servers do.
const ONLY_DECLARED_KEYS: &str = "\
    local redis = (function()
        local inner, declared = redis, {}
        for _, key in ipairs(KEYS) do
            declared[key] = true
        end
        local function checked(call)
            return function(name, ...)
                assert(name == 'TIME' or declared[...], 'a key that is not declared')
                return call(name, ...)
            end
        end
        return { call = checked(inner.call), pcall = checked(inner.pcall) }
    end)()
    ";

/// A script for what the server holds before a step.
const STORED_LUA: &str = "\
    local value = redis.call('GET', KEYS[1]) or ''
    if string.sub(value, 1, 2) ~= '~&' then
        return { string.match(value, '^~%a[%d.]*;') or '', 0 }
    end
    local at, newest, has_own = 3, '', 0
    while at <= #value do
        local _, length = struct.unpack('<dd', value, at)
        local part = string.sub(value, at + 16, at + 15 + length)
        local header = string.match(part, '^~%a[%d.]*;')
        at = at + 16 + length
        newest = #part > #header and header or ''
        if header == ARGV[1] and at <= #value then
            has_own = 1
        end
    end
    return { newest, has_own }";

/// Runs the steps on the server, on an empty database. Returns what the server held before each
/// step, and the decision.
fn run_scripts<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
) -> Vec<(Stored, Result<Decision, StoreError>)> {
    run_calls(connection, variants, steps, sabotage, call_args)
}

/// The same, with the arguments that `args_of` makes.
fn run_calls<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
    args_of: fn(&A, Call) -> String,
) -> Vec<(Stored, Result<Decision, StoreError>)> {
    let mut programs = Vec::<Program>::new();
    for variant in variants {
        let prelude = [FAKE_CLOCK, ONLY_DECLARED_KEYS].concat();
        let mut program = Program::with_prelude(&prelude, variant);
        program.script = Text::new(sabotage(program.script.body));
        // Loading a script takes longer than running it.
        let hash = &program.script.hash;
        if programs.iter().all(|other| other.script.hash != *hash) {
            let mut load = redis::cmd("SCRIPT");
            let loaded = load.arg("LOAD").arg(&program.script.body).exec(connection);
            loaded.expect("the script compiles");
        }
        programs.push(program);
    }
    let stored_script = format!("{FAKE_CLOCK}{STORED_LUA}");
    let mut pipeline = redis::pipe();
    pipeline.cmd("FLUSHALL").ignore();
    for step in steps {
        let header = header_of(&variants[step.variant]);
        let command = pipeline.cmd("EVAL").arg(&stored_script);
        command.arg(1).arg("{k}:0").arg(header).arg(0).arg(step.now);
        let program = &programs[step.variant];
        // The clock of the machine is up to 20 hours away from that of the server.
        let skewed = step.now + step.now % 3 * 72_000_000_000 - 72_000_000_000;
        MACHINE.set(Some(skewed / 1_000_000));
        let args = args_of(&variants[step.variant], step.call);
        let command = pipeline
            .cmd("EVALSHA")
            .arg(&program.script.hash)
            .arg(program.keys_per_call);
        for part in 0..program.keys_per_call {
            command.arg(format!("{{k}}:{part}"));
        }
        command
            .arg(&program.settings)
            .arg(args)
            .arg(0)
            .arg(step.now);
    }
    let replies: Vec<redis::Value> = pipeline.query(connection).expect("no script fails");
    steps
        .iter()
        .zip(replies.chunks_exact(2))
        .map(|(step, replies)| {
            let (newest, is_displaced): (String, bool) =
                redis::from_redis_value(replies[0].clone()).expect("what is stored");
            let stored = Stored {
                newest: Some(newest).filter(|newest| !newest.is_empty()),
                is_displaced,
            };
            let decided = parse_reply(replies[1].clone(), 1).and_then(|(now, outcomes)| {
                assert_eq!(now, step.now, "the clock of the test");
                decode_reply(&variants[step.variant], step.call, now, &outcomes[0])
            });
            (stored, decided.map(|reply| reply.decision))
        })
        .collect()
}

/// Three variants of an algorithm: different ones, or those that changes of one quota lead to.
fn random_variants<A: Scripted>(random: &mut Random, policy: impl Fn(&mut Random) -> A) -> Vec<A> {
    let mut variants = vec![policy(random)];
    while variants.len() < 3 {
        let first = &variants[0];
        let changed = changed_quota(random, first.quota());
        let changed = match random.below(2) {
            0 => Some(policy(random)),
            _ => first.with_quota(changed).ok(),
        };
        variants.extend(changed.filter(|changed| changed.clone().prepared().is_ok()));
    }
    let variants = variants.into_iter();
    variants
        .map(|variant| variant.prepared().expect("figures that fit"))
        .collect()
}

/// Another number, period or burst.
fn changed_quota(random: &mut Random, quota: Quota) -> Quota {
    let number = |random: &mut Random, number: u64| match random.below(4) {
        0 => number,
        1 => number + 1,
        2 => (number / 2).max(1),
        _ => number.saturating_mul(1 + random.below(3)).min(1 << 22),
    };
    let micros = u64::try_from(quota.period().as_micros()).expect("small figures");
    let (limit, period) = (number(random, quota.limit()), number(random, micros));
    let changed = Quota::per(limit, Duration::from_micros(period));
    if quota.capacity() == quota.limit() {
        return changed;
    }
    changed.burst(number(random, quota.capacity()))
}

/// A random trace under variants of one algorithm. The variant changes once per
/// `changes` steps.
fn random_steps<A: Scripted>(
    random: &mut Random,
    variants: &[A],
    changes: Option<u64>,
) -> Vec<Step> {
    let mut now = 1_700_000_000_000_000 + random.below(1 << 50);
    let mut variant = 0;
    let mut steps = Vec::new();
    // How long the fastest one takes to fill.
    let filling = variants.iter().map(|variant| {
        let quota = variant.quota();
        let capacity = u128::from(quota.capacity());
        let nanos = quota.period().as_nanos() * capacity / u128::from(quota.limit());
        u64::try_from(nanos / 1_000).unwrap_or(u64::MAX)
    });
    let filling = filling.min().unwrap_or_default();
    for _ in 0..20 + random.below(60) {
        let quota = variants[variant].quota();
        let period = u64::try_from(quota.period().as_micros()).expect("small figures");
        let unit = period / quota.limit() + 1;
        now += match random.below(8) {
            0..=2 => 0,
            3 => random.below(3),
            4 => random.below(2 * unit),
            5 => random.below(2 * period + 2),
            6 => [unit, period, period - 1, unit - 1][usize::try_from(random.below(4)).unwrap()],
            // A bucket that is unused for as long as it takes to fill it many times.
            7 if random.below(8) == 0 => random.below(filling.saturating_mul(900).min(1 << 45) + 1),
            _ => random.below(period / 2 + 1),
        };
        let capacity = quota.capacity().max(quota.limit());
        let cost = match random.below(8) {
            0..=3 => 1,
            4 => random.below(4),
            5 => capacity - random.below(2).min(capacity),
            6 => random.below(capacity + 3),
            _ => random.below(capacity / 3 + 2),
        };
        let call = match random.below(20) {
            0..=10 => Call::Take(cost),
            11 | 12 => Call::Reserve(
                cost,
                random.below(3 * period + 1) * 1_000 + random.below(1_000),
            ),
            13 => Call::Peek(cost),
            14 => Call::PeekOf(cost, usize::try_from(cost % 3).expect("below 3")),
            15 | 16 => {
                let taken_at = match random.below(4) {
                    0 => u64::MAX,
                    1 => now,
                    2 => now - random.below(unit + 1),
                    _ => now - random.below(2 * period + 2),
                };
                match random.below(4) {
                    0 => Call::Cancel(cost, taken_at),
                    1 => Call::Forgive(cost, taken_at),
                    _ => Call::Refund(cost, taken_at),
                }
            }
            17 | 18 => Call::Charge(cost.min(2_000)),
            _ if random.below(4) == 0 => Call::Reset,
            _ if random.below(4) == 0 && header_of(&variants[variant]).starts_with("~k") => {
                Call::Ban(random.below(2 * period))
            }
            _ => Call::Take(1),
        };
        if changes.is_some_and(|rarely| random.below(rarely) == 0) {
            variant = usize::try_from(random.below(variants.len() as u64)).unwrap();
        }
        steps.push(Step { now, variant, call });
    }
    steps
}

/// The first step on which the server and the oracle differ, with both decisions.
fn find_difference<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    steps: &[Step],
    sabotage: impl Fn(String) -> String,
) -> Option<String> {
    let mut oracle = Oracle::<A>::new();
    let decisions = run_scripts(connection, variants, steps, sabotage);
    let one = steps.iter().all(|step| step.variant == steps[0].variant);
    for (at, (step, (stored, decided))) in steps.iter().zip(&decisions).enumerate() {
        if let Some(fault) = oracle.fault(variants, *step, stored).filter(|_| !one) {
            let steps = &steps[..=at];
            return Some(format!(
                "{variants:#?}\nsteps {steps:#?}\nstep {at}: {fault}"
            ));
        }
        let expected = ceil_to_micros(oracle.step(variants, *step, stored));
        // Script and algorithm saturate at different debts, both above a century.
        let saturated = |decision: &Decision| decision.reset_after > CENTURY;
        if saturated(&expected)
            || decided.as_ref().is_ok_and(saturated)
            || saturates(variants, steps, at)
        {
            return None;
        }
        if decided.as_ref() != Ok(&expected) {
            return Some(format!(
                "{variants:#?}\nsteps {:#?}\nstep {at}: the script\n{decided:?}\nthe algorithm\n{expected:?}",
                &steps[..=at]
            ));
        }
    }
    None
}

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Whether a change of quota up to this step makes a full bucket worth a century of the new quota.
fn saturates<A: Scripted>(variants: &[A], steps: &[Step], at: usize) -> bool {
    steps[..=at].windows(2).any(|pair| {
        let [from, to] = [0, 1].map(|step| variants[pair[step].variant].quota());
        let units = u128::from(from.capacity().max(from.limit()));
        units * to.period().as_nanos() / u128::from(to.limit()) > CENTURY.as_nanos()
    })
}
