//! Compares decisions in Redis with what the same client and server do without this crate.
//!
//! Starts a server on a free port of the loopback interface. In every round each side uses the
//! server alone for a while, one after the other, so that other load on the machine affects all
//! sides alike.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use limitador::AsyncRateLimiter;
use limitador::limit::{Limit, Namespace};
use limitador::storage::redis::AsyncRedisStorage;
use tower_throttle::algorithm::Algorithm;
use tower_throttle::store::{cas::Cas, redis::Redis};
use tower_throttle::{FixedWindow, LeakyBucket, Quota, SlidingWindow, TokenBucket, store::Backend};

use crate::row::Effort;
use crate::row::{ends, median};

use test_support::redis_server::RedisServer;

/// A typical script for the generic cell rate algorithm: the server's clock, one value, and an
/// expiry in the same write.
const GCRA: &str = r"
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local arrival = tonumber(redis.call('GET', KEYS[1]) or now)
if arrival < now then arrival = now end
local after = arrival + interval
local wait = after - burst * interval - now
if wait > 0 then
    return { 0, math.floor((burst * interval - (arrival - now)) / interval), wait, arrival - now }
end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
return { 1, math.floor(-wait / interval), 0, after - now }
";

const KEYS: u64 = 10_000;
/// So high that every request is admitted and written.
const LIMIT: u64 = 1_000_000;

pub(crate) fn run(effort: &Effort) {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let peers = Peers::connect(server).await;
        alone(effort, &peers).await;
        for in_flight in [64, 256] {
            speed(effort, &peers, in_flight).await;
        }
        algorithms(effort, &peers).await;
        hammer(effort, &peers.server).await;
    });
}

/// Connections and limiters of all sides.
struct Peers {
    server: RedisServer,
    connection: MultiplexedConnection,
    /// For the script. The limiter has a connection of its own too, so the row before leaves neither
    /// warm.
    of_script: MultiplexedConnection,
    sha: String,
    redis: Redis,
    limitador: Arc<AsyncRateLimiter>,
    keys: Arc<[String]>,
}

impl Peers {
    async fn connect(server: RedisServer) -> Self {
        let client = redis::Client::open(server.url()).expect("a url");
        let connection = client
            .get_multiplexed_async_connection()
            .await
            .expect("a server");
        let of_script = client
            .get_multiplexed_async_connection()
            .await
            .expect("a server");
        let sha = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(GCRA)
            .query_async(&mut connection.clone())
            .await
            .expect("the script compiles");
        Self {
            connection,
            of_script,
            sha,
            limitador: Arc::new(limitador(&server).await),
            redis: Redis::open(&server.url())
                .expect("a url")
                // Long, so that no call gives up.
                .deadline(Duration::from_secs(10)),
            keys: (0..KEYS).map(|key| format!("key{key}")).collect(),
            server,
        }
    }

    /// The time that the server has spent on commands so far, in microseconds. Commands called by a
    /// script are counted again under their own names, which are not summed here.
    fn served(&self) -> f64 {
        ["evalsha", "incr", "pexpire", "ping"]
            .iter()
            .map(|command| statistic(&self.server, command, "usec"))
            .sum()
    }

    fn limiter(&self) -> Cas<Redis, TokenBucket> {
        let bucket = TokenBucket::new(Quota::per_second(LIMIT));
        self.redis.limiter("bucket", bucket)
    }

    fn ping(&self) -> impl AsyncSide {
        let connection = self.connection.clone();
        move |_| {
            let mut connection = connection.clone();
            async move {
                let ping = redis::cmd("PING");
                let _: String = ping.query_async(&mut connection).await.expect("a reply");
            }
        }
    }

    fn gcra(&self) -> impl AsyncSide {
        let (connection, sha) = (self.of_script.clone(), self.sha.clone());
        let keys = Arc::clone(&self.keys);
        move |key| {
            let mut connection = connection.clone();
            let mut call = redis::cmd("EVALSHA");
            call.arg(&sha)
                .arg(1)
                .arg(format!("gcra:{}", keys[key]))
                .arg(1)
                .arg(LIMIT);
            async move {
                let told: (i64, i64, i64, i64) =
                    call.query_async(&mut connection).await.expect("a reply");
                assert_eq!(told.0, 1);
            }
        }
    }

    fn incr(&self) -> impl AsyncSide {
        let (connection, keys) = (self.connection.clone(), Arc::clone(&self.keys));
        move |key| {
            let mut connection = connection.clone();
            let name = format!("incr:{}", keys[key]);
            async move {
                let mut pipeline = redis::pipe();
                pipeline.incr_and_expire(&name);
                let told: (i64, i64) = pipeline
                    .query_async(&mut connection)
                    .await
                    .expect("a reply");
                assert!(told.0 > 0);
            }
        }
    }

    fn limitador(&self) -> impl AsyncSide {
        let (limiter, keys) = (Arc::clone(&self.limitador), Arc::clone(&self.keys));
        let namespace = Arc::new(Namespace::from("peers"));
        move |key| {
            let (limiter, namespace) = (Arc::clone(&limiter), Arc::clone(&namespace));
            let variables = HashMap::from([("key".to_owned(), keys[key].clone())]);
            async move {
                let told = limiter
                    .check_rate_limited_and_update(&namespace, &variables, 1, false)
                    .await
                    .expect("a decision");
                assert!(!told.limited);
            }
        }
    }

    fn ours<A: Algorithm>(&self, limiter: &Cas<Redis, A>) -> impl AsyncSide + use<A> {
        let (limiter, keys) = (limiter.clone(), Arc::clone(&self.keys));
        move |key| {
            let asked = limiter.decide(keys[key].as_str(), 1);
            async move {
                assert!(asked.await.expect("a decision").is_admitted());
            }
        }
    }
}

/// limitador's fixed window in its Redis storage: a read, then a script that counts.
async fn limitador(server: &RedisServer) -> AsyncRateLimiter {
    let storage = AsyncRedisStorage::new(&server.url()).await;
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage.expect("a server")));
    let conditions = Vec::<String>::new();
    limiter.add_limit(Limit::new(
        "peers",
        LIMIT.cast_signed(),
        60,
        conditions,
        ["key"],
    ));
    limiter
}

trait Expiring {
    fn incr_and_expire(&mut self, name: &str);
}

impl Expiring for redis::Pipeline {
    fn incr_and_expire(&mut self, name: &str) {
        self.cmd("INCR").arg(name);
        self.cmd("PEXPIRE").arg(name).arg(1_000).arg("NX");
    }
}

/// One call for the key of a given number.
trait AsyncSide: Fn(usize) -> Self::Call + Clone + Send + Sync + 'static {
    type Call: Future<Output = ()> + Send;
}

impl<F, C> AsyncSide for F
where
    F: Fn(usize) -> C + Clone + Send + Sync + 'static,
    C: Future<Output = ()> + Send,
{
    type Call = C;
}

/// The measurements of one side in all rounds.
#[derive(Default)]
struct Side {
    per_second: Vec<f64>,
    /// In microseconds.
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// The server's own time per decision, in microseconds.
    served: Vec<f64>,
}

impl Side {
    /// Runs `in_flight` tasks, each of which makes one call after the other.
    async fn round(
        &mut self,
        peers: &Peers,
        side: impl AsyncSide,
        (in_flight, length): (usize, Duration),
        seed: u64,
    ) {
        let served = peers.served();
        let begun = Instant::now();
        let tasks: Vec<_> = (0..in_flight as u64)
            .map(|task| {
                let side = side.clone();
                tokio::spawn(async move {
                    let mut random = (seed * 1_000 + task).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                    let mut took = Vec::with_capacity(1 << 12);
                    let mut at = Instant::now();
                    while at.duration_since(begun) < length {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        side(usize::try_from(random % KEYS).unwrap_or(0)).await;
                        let now = Instant::now();
                        took.push(u32::try_from((now - at).as_nanos()).unwrap_or(u32::MAX));
                        at = now;
                    }
                    took
                })
            })
            .collect();
        let mut took = Vec::new();
        for task in tasks {
            took.extend(task.await.expect("no panic"));
        }
        let calls = took.len() as f64;
        self.took(took, begun.elapsed().as_secs_f64());
        let served = peers.served() - served;
        self.served.push(served / calls);
    }

    fn took(&mut self, mut took: Vec<u32>, seconds: f64) {
        took.sort_unstable();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        self.per_second.push(took.len() as f64 / seconds);
        self.p50.push(f64::from(at(0.5)) / 1e3);
        self.p99.push(f64::from(at(0.99)) / 1e3);
    }

    /// How fast it is beside another in each round: by the rate, or for one call in flight by the median
    /// time, because the scheduler slows down about one call in a hundred.
    fn beside(&self, in_flight: usize, other: &Self) -> Vec<f64> {
        let (ours, theirs) = match in_flight {
            1 => (&other.p50, &self.p50),
            _ => (&self.per_second, &other.per_second),
        };
        let pairs = ours.iter().zip(theirs);
        pairs.map(|(ours, theirs)| ours / theirs).collect()
    }

    /// Compares with the raw script, and with a peer that it must not be behind.
    fn print(
        &self,
        effort: &Effort,
        (in_flight, name): (usize, &str),
        raw: &Self,
        peer: Option<&Self>,
    ) {
        let work = format!("{in_flight} in flight: {name}");
        let ratios = self.beside(in_flight, raw);
        let (ratio, (least, most)) = (median(&ratios), ends(&ratios));
        let to_peer = peer.map(|peer| median(&self.beside(in_flight, peer)));
        let rate = median(&self.per_second);
        let (p50, p99) = (median(&self.p50), median(&self.p99));
        let served = match &*self.served {
            [] => String::new(),
            served => format!("  server {:.2} us", median(served)),
        };
        if effort.json {
            let goal = to_peer.map_or(String::new(), |ratio| {
                format!(
                    ",\"to_limitador\":{ratio:.3},\"goal\":1,\"met\":{}",
                    ratio >= 1.0
                )
            });
            println!(
                "{{\"work\":\"{work}\",\"per_second\":{rate:.0},\"p50_us\":{p50:.1},\"p99_us\":{p99:.1},\
                 \"to_raw\":{ratio:.3},\"min\":{least:.3},\"max\":{most:.3}{goal}}}"
            );
            return;
        }
        let goal = to_peer.map_or(String::new(), |ratio| {
            let met = if ratio >= 1.0 { "met" } else { "NOT MET" };
            format!("  of limitador {ratio:.2}  goal >= 1 {met}")
        });
        println!(
            "{work:<44} {rate:>8.0}/s  p50 {p50:>7.1} us  p99 {p99:>7.1} us{served}  of raw {ratio:.2} \
             ({least:.2}-{most:.2}){goal}"
        );
    }
}

/// The number of rounds, and the time of each side in a round.
fn plan(effort: &Effort) -> (u64, Duration) {
    if effort.quick {
        (5, Duration::from_millis(150))
    } else {
        (15, Duration::from_millis(400))
    }
}

/// One call in flight: PING, the script, this crate, `INCR`, limitador. Algorithms: the script, and four.
const SIDES: usize = 5;

/// One call in flight. Its speed depends on the cores on which the scheduler runs client and server
/// at the moment, so the sides take turns call by call.
async fn alone(effort: &Effort, peers: &Peers) {
    if !effort.wants("1 in flight") {
        return;
    }
    let limiter = peers.limiter();
    let (ping, gcra) = (peers.ping(), peers.gcra());
    let (ours, incr) = (peers.ours(&limiter), peers.incr());
    let limitador = peers.limitador();
    let mut sides = <[Side; SIDES]>::default();
    let (rounds, calls) = if effort.quick {
        (10, 1_000)
    } else {
        (50, 4_000)
    };
    for round in 0..rounds {
        let keys = Arc::clone(&peers.keys);
        let (ping, gcra) = (ping.clone(), gcra.clone());
        let (ours, incr) = (ours.clone(), incr.clone());
        let limitador = limitador.clone();
        // In a task, like a server's handlers.
        let turns = tokio::spawn(async move {
            let mut took = [const { Vec::new() }; SIDES];
            let mut at = Instant::now();
            let mut lap = |took: &mut Vec<u32>| {
                let now = Instant::now();
                took.push(u32::try_from((now - at).as_nanos()).unwrap_or(u32::MAX));
                at = now;
            };
            for call in 0..calls {
                let key = (round * 7 + call * 13) % keys.len();
                // What runs before a side matters, so every side follows each of the others equally
                // often: the number of sides is a prime.
                let stride = 1 + call % (SIDES - 1);
                for turn in 0..SIDES {
                    let side = (call + turn * stride) % SIDES;
                    match side {
                        0 => ping(key).await,
                        1 => gcra(key).await,
                        2 => ours(key).await,
                        3 => incr(key).await,
                        _ => limitador(key).await,
                    }
                    lap(&mut took[side]);
                }
            }
            took
        });
        let took = turns.await.expect("no panic");
        for (side, took) in sides.iter_mut().zip(took) {
            let spent: f64 = took.iter().map(|took| f64::from(*took)).sum();
            side.took(took, spent / 1e9);
        }
    }
    let [ping, gcra, ours, incr, limitador] = &sides;
    ping.print(effort, (1, "PING"), gcra, None);
    gcra.print(effort, (1, "raw GCRA EVALSHA"), gcra, None);
    incr.print(effort, (1, "INCR + PEXPIRE"), gcra, None);
    limitador.print(effort, (1, "limitador"), gcra, None);
    ours.print(effort, (1, "ours, token bucket"), gcra, Some(limitador));
}

async fn speed(effort: &Effort, peers: &Peers, in_flight: usize) {
    let work = format!("{in_flight} in flight");
    if !effort.wants(&work) {
        return;
    }
    let limiter = peers.limiter();
    let (mut ping, mut gcra, mut incr, mut ours) = <(Side, Side, Side, Side)>::default();
    let mut limitador = Side::default();
    let (rounds, length) = plan(effort);
    for round in 0..rounds {
        ping.round(peers, peers.ping(), (in_flight, length), round)
            .await;
        gcra.round(peers, peers.gcra(), (in_flight, length), round)
            .await;
        ours.round(peers, peers.ours(&limiter), (in_flight, length), round)
            .await;
        incr.round(peers, peers.incr(), (in_flight, length), round)
            .await;
        limitador
            .round(peers, peers.limitador(), (in_flight, length), round)
            .await;
    }
    let raw = &gcra;
    ping.print(effort, (in_flight, "PING"), raw, None);
    gcra.print(effort, (in_flight, "raw GCRA EVALSHA"), raw, None);
    incr.print(effort, (in_flight, "INCR + PEXPIRE"), raw, None);
    limitador.print(effort, (in_flight, "limitador"), raw, None);
    let peer = Some(&limitador);
    ours.print(effort, (in_flight, "ours, token bucket"), raw, peer);
}

/// Compares other algorithms with the raw script.
async fn algorithms(effort: &Effort, peers: &Peers) {
    const IN_FLIGHT: usize = 64;
    if !effort.wants("algorithms") {
        return;
    }
    let quota = Quota::per_second(LIMIT);
    let fixed = peers.redis.limiter("fixed", FixedWindow::new(quota));
    let sliding = peers.redis.limiter("sliding", SlidingWindow::new(quota));
    let leaky = peers.redis.limiter("leaky", LeakyBucket::new(quota));
    let both = (TokenBucket::new(quota), FixedWindow::new(quota));
    let pair = peers.redis.limiter("pair", both);
    let (mut raw, mut sides) = (Side::default(), <[Side; 4]>::default());
    let ((rounds, length), count) = (plan(effort), SIDES as u64);
    for round in 0..rounds {
        let [a, b, c, d] = &mut sides;
        let (load, script) = ((IN_FLIGHT, length), peers.gcra());
        // As with one call in flight: the server removes the expired keys of a side while the next runs.
        let stride = 1 + round % (count - 1);
        for turn in 0..count {
            match (round + turn * stride) % count {
                0 => raw.round(peers, script.clone(), load, round).await,
                1 => a.round(peers, peers.ours(&fixed), load, round).await,
                2 => b.round(peers, peers.ours(&sliding), load, round).await,
                3 => c.round(peers, peers.ours(&leaky), load, round).await,
                _ => d.round(peers, peers.ours(&pair), load, round).await,
            }
        }
    }
    let names = [
        "ours, fixed window",
        "ours, sliding window",
        "ours, leaky bucket",
        "ours, a pair of two",
    ];
    for (side, name) in sides.iter().zip(names) {
        side.print(effort, (IN_FLIGHT, name), &raw, None);
    }
}

/// The share of requests that reaches the server from a client at a hundred times its limit.
async fn hammer(effort: &Effort, server: &RedisServer) {
    const LIMIT: u32 = 100;
    let work = "a client at 100 times its limit";
    if !effort.wants(work) {
        return;
    }
    let redis = Redis::open(&server.url())
        .expect("a url")
        .deadline(Duration::from_secs(10));
    let limiter = redis.limiter("hammer", TokenBucket::new(Quota::per_second(100)));
    let before = statistic(server, "evalsha", "calls");
    let seconds = if effort.quick { 2 } else { 5 };
    let every = Duration::from_secs(1) / (100 * LIMIT);
    let begun = Instant::now();
    let (mut calls, mut admitted) = (0_u32, 0_u32);
    while calls < 100 * LIMIT * seconds {
        if begun.elapsed() < every * calls {
            tokio::task::yield_now().await;
            continue;
        }
        let decision = limiter.decide("hammer", 1).await.expect("a decision");
        calls += 1;
        admitted += u32::from(decision.is_admitted());
    }
    let asked = statistic(server, "evalsha", "calls") - before;
    let share = asked / f64::from(calls);
    if effort.json {
        println!(
            "{{\"work\":\"{work}\",\"calls\":{calls},\"admitted\":{admitted},\"asked\":{asked},\
             \"share\":{share:.4},\"goal\":0.02,\"met\":{}}}",
            share < 0.02
        );
    } else {
        println!(
            "{work}: {calls} calls, {admitted} admitted, {asked} reached Redis: {:.2} %  goal < 2 % {}",
            share * 100.0,
            if share < 0.02 { "met" } else { "NOT MET" }
        );
    }
}

/// A value from the server's statistics of `command`.
fn statistic(server: &RedisServer, command: &str, name: &str) -> f64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection())
        .expect("statistics");
    let start = format!("cmdstat_{command}:");
    info.lines()
        .find_map(|line| line.strip_prefix(&start))
        .and_then(|figures| {
            figures
                .split(',')
                .find_map(|figure| figure.strip_prefix(name)?.strip_prefix('='))
        })
        .map_or(0.0, |figure| figure.parse().expect("a number"))
}
