//! The laws in Redis, by the clock of a real server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::clock::Tick;
use tower_throttle::store::redis::{Redis, RedisLimiter};
use tower_throttle::store::{Backend, Op};

use crate::bounds::Subjected;
use crate::place::{Mistake, Mistaken, Outcome, Place, Step};
use crate::random::{Random, seeds};
use crate::redis_server::RedisServer;
use crate::subjects::{Promise, Subject, quota, subjects};

const KEY: &str = "key";
const DAY: u64 = 86_400_000_000_000;

/// A key in Redis. Time passes by itself.
struct InRedis {
    limiter: RedisLimiter<AnyAlgorithm>,
    runtime: tokio::runtime::Runtime,
    connection: redis::Connection,
    /// What the names of its keys contain. Keys of other places may expire at any time.
    pattern: String,
    moment: u64,
    /// Whether its values can be compared, because none of them expires.
    is_lasting: bool,
}

impl InRedis {
    fn new(server: &RedisServer, subject: &Subject) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("law-{}-", NUMBER.fetch_add(1, Ordering::Relaxed));
        let redis = Redis::open(&server.url()).expect("a url");
        let redis = redis.deadline(Duration::from_secs(10)).without_deny_cache();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let mut connection = server.connection();
        let (now, micros): (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("a time");
        Self {
            limiter: redis.limiter(&name, subject.algorithm.clone()),
            runtime,
            connection,
            pattern: format!("*{name}*"),
            moment: (now * 1_000_000 + micros) * 1_000,
            is_lasting: subject.period >= DAY,
        }
    }
}

impl Place<AnyAlgorithm> for InRedis {
    fn apply(&mut self, _: Tick, step: &Step<AnyAlgorithm>) -> Option<Outcome> {
        let op = match step {
            Step::Take(cost) => Op::Take(*cost),
            Step::Peek(cost) => Op::Peek(*cost),
            Step::Refund(cost, receipt) => Op::Refund(*cost, *receipt),
            Step::Charge(cost) => Op::Charge(*cost),
            Step::Reset => Op::Reset,
            _ => return None,
        };
        let Self {
            limiter, runtime, ..
        } = self;
        let decided = runtime.block_on(async { limiter.apply(KEY, op).await });
        let decision = decided.expect("a decision");
        self.moment = decision.receipt().moment() * 1_000;
        Some(match op {
            Op::Take(_) | Op::Peek(_) => Outcome::Decided(decision),
            _ => Outcome::Done,
        })
    }

    fn moment(&self) -> u64 {
        self.moment
    }

    fn bytes(&mut self) -> Option<String> {
        if !self.is_lasting {
            return None;
        }
        let names: Vec<String> = redis::cmd("KEYS")
            .arg(&self.pattern)
            .query(&mut self.connection)
            .expect("names");
        let mut values = Vec::new();
        for name in names {
            let value: Option<Vec<u8>> = redis::cmd("GET")
                .arg(&name)
                .query(&mut self.connection)
                .expect("a value");
            values.extend(value.map(|value| (name, value)));
        }
        Some(format!("{values:?}"))
    }
}

/// Short periods, of which a trace takes several, and days, in which nothing expires.
fn some(random: &mut Random) -> Vec<Subject> {
    let limit = 1 + random.below(12);
    let period = match random.below(3) {
        0 => DAY,
        _ => 1_000 * (500 + random.below(20_000)),
    };
    let burst = 1 + random.below(2 * limit);
    let all = subjects(quota(limit, period), burst, 2 + random.below(8));
    // A cell of a grid is a whole number of microseconds in Redis; what is admitted by a queue is
    // reported in microseconds, rounded up.
    let fits = |subject: &Subject| {
        !matches!(subject.promise, Promise::Paced(_)) && subject.name != "sliding grid"
    };
    all.into_iter().filter(fits).collect()
}

fn fault(place: &mut impl Place<AnyAlgorithm>, subject: &Subject, seed: u64) -> Option<String> {
    let law = Subjected {
        subjects: std::slice::from_ref(subject),
        exact_time: false,
        nanos_per_moment: 1_000,
    };
    law.fault(place, &mut Random::new(seed))
}

#[test]
fn every_algorithm_keeps_its_promise_in_redis() {
    let server = RedisServer::start();
    for seed in seeds(6) {
        for subject in some(&mut Random::new(seed)) {
            let mut place = InRedis::new(&server, &subject);
            let found = fault(&mut place, &subject, seed);
            assert_eq!(found, None, "seed {seed}: {:?}", subject.algorithm);
        }
    }
}

#[test]
fn a_mistake_in_redis_is_seen() {
    for mistake in [
        Mistake::RefundForgetsMoment,
        Mistake::DenialCharges,
        Mistake::PeekTakes,
    ] {
        let server = RedisServer::start();
        // A refund that forgets its moment is seen only if time has passed in between.
        let seen = (0..400).any(|seed| {
            some(&mut Random::new(seed)).iter().any(|subject| {
                let place = InRedis::new(&server, subject);
                let mut wrong = Mistaken { place, mistake };
                fault(&mut wrong, subject, seed).is_some()
            })
        });
        assert!(seen, "{mistake:?}");
    }
}
