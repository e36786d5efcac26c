//! Lines of every algorithm against a plain list of those that wait, with requests of all priorities and
//! costs that come, leave and run out of time, beside a limit of another key, requests in shadow mode and panics. Whatever
//! decides is the algorithm itself: those before a request take their turns on a copy of the state.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, CalendarWindow, FixedWindow, Gcra, Handle, LeakyBucket, Local, Lockout, Quota,
    RateLimitLayer, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
    algorithm::{Algorithm, Cost, GiveBack, IntoAlgorithm, reserve},
    clock::{Clock, MonotonicClock, Tick},
};

use crate::lines::Faulty;
use crate::random::Random;
use crate::support::{Boxed, pass, settle};

const PRIORITIES: [u8; 3] = [50, 80, 100];

/// A request: its name, its cost and its priority.
type Job = (u32, u64, u8);

#[derive(Clone, Copy, Debug)]
struct Settings {
    most: u32,
    longest: u64,
    newest_first: bool,
    least: u8,
    /// How many of each two names another limit lets pass.
    others: u32,
}

impl Settings {
    /// Some settings, and the highest cost.
    fn random(random: &mut Random, exact: u64) -> (Self, u64) {
        let dearest = if exact == 1 { 1 + random.below(2) } else { 2 };
        let longest = *random.pick(&[3, 20, 1_000]) * MS;
        let settings = Self {
            most: u32::try_from(1 + random.below(5)).unwrap(),
            longest: if dearest > exact {
                10_000 * MS
            } else {
                longest
            },
            newest_first: random.below(2) == 1,
            least: *random.pick(&PRIORITIES),
            others: *random.pick(&[1, 2]),
        };
        (settings, dearest)
    }
}

/// What is wrong with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// A request that the limit would admit overtakes those that wait.
    Overtakes,
    /// Priorities are not read.
    NoPriority,
    /// The place in a full line is not given away.
    KeepsPlaces,
    /// A request that must not wait does.
    AllWait,
    /// Those that have waited for too long go on.
    Patient,
    /// Who leaves takes its turn along.
    LeavesAGap,
    /// What another limit denies is not given back.
    KeepsCost,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    job: Job,
    until: u64,
}

/// What became of each request, and in which millisecond.
type Outcome = BTreeMap<u32, (bool, u64)>;

struct Model<A: Algorithm> {
    algorithm: A,
    state: A::State,
    settings: Settings,
    mistake: Mistake,
    waiting: Vec<Waiter>,
    /// When the first one has asked, in nanoseconds.
    asked: u64,
    start: u64,
    now: u64,
    ended: Outcome,
    /// How many have passed of each two names.
    passed: BTreeMap<u32, u32>,
    /// Each call of the limit panics.
    is_broken: bool,
}

const MS: u64 = 1_000_000;

impl<A: Algorithm> Model<A> {
    fn new(algorithm: A, settings: Settings, mistake: Mistake, start: u64) -> Self {
        Self {
            state: algorithm.fresh(Tick::from_nanos(start)),
            algorithm,
            settings,
            mistake,
            waiting: Vec::new(),
            start,
            asked: start,
            now: start,
            ended: Outcome::new(),
            passed: BTreeMap::new(),
            is_broken: false,
        }
    }

    fn end(&mut self, (name, ..): Job, passed: bool, at: u64) {
        let end = (passed, (at - self.start).div_ceil(MS));
        // A request that asks a broken limit ends by a panic.
        let _ = (!self.is_broken).then(|| self.ended.insert(name, end));
    }

    /// Whether the other limit lets a request pass.
    fn has_other(&self, (name, ..): Job) -> bool {
        self.passed.get(&(name / 2)).copied() < Some(self.settings.others)
    }

    /// A request has taken its cost as of `at`, and goes on to the other limit.
    fn pass(&mut self, job: Job, at: u64, now: u64) {
        let passes = self.has_other(job);
        self.end(job, passes, at);
        if passes {
            *self.passed.entry(job.0 / 2).or_default() += 1;
        } else if self.mistake != Mistake::KeepsCost {
            self.give_back(job.1, at, now);
        }
    }

    /// Ends all waits that end by `now`, in each millisecond.
    fn advance(&mut self, now: u64) {
        loop {
            let mut released = VecDeque::new();
            self.release(self.now, &mut released);
            while let Some((job, at)) = released.pop_front() {
                self.pass(job, at, self.now);
                self.release(self.now, &mut released);
            }
            if self.now >= now {
                return;
            }
            self.now += MS;
        }
    }

    /// Ends all waits that end by `now`. Those that have taken their cost go on when all of them have.
    fn release(&mut self, now: u64, released: &mut VecDeque<(Job, u64)>) {
        while let Some(first) = self.waiting.first().copied() {
            let (mut at, mut state) = (self.asked, self.state.clone());
            let taken = loop {
                let (turn, cost) = (Tick::from_nanos(at), first.job.1);
                let decision = self.algorithm.take_turn(&mut state, turn, cost);
                match decision.retry_after {
                    _ if decision.is_admitted() => break Some(true),
                    None => break Some(false),
                    Some(wait) => at += u64::try_from(wait.as_nanos()).unwrap(),
                }
                if at > now {
                    break None;
                }
            };
            // One that has waited for too long leaves before the first has its turn.
            let over = |waiter: &Waiter| waiter.until < at.min(now);
            let late = self.waiting.iter().position(over);
            let late = late.filter(|_| self.mistake != Mistake::Patient);
            match (late, taken) {
                (Some(late), _) => {
                    let waiter = self.waiting.remove(late);
                    self.end(waiter.job, false, waiter.until + 1);
                    if late == 0 {
                        self.asked = self.asked.max(waiter.until + 1);
                    }
                }
                (None, None) => return,
                // Those behind it ask as well, and it denies them all.
                (None, Some(_)) if self.is_broken => self.waiting.clear(),
                (None, Some(passed)) => {
                    self.waiting.remove(0);
                    (self.asked, self.state) = (at, state);
                    if passed {
                        released.push_back((first.job, at));
                    } else {
                        self.end(first.job, false, at);
                    }
                }
            }
        }
    }

    fn enter(&mut self, job: Job, now: u64) {
        let (_, cost, priority) = job;
        let Settings {
            most,
            longest,
            newest_first,
            least,
            ..
        } = self.settings;
        if !self.has_other(job) {
            return self.end(job, false, now);
        }
        let level = |of: u8| match self.mistake {
            Mistake::NoPriority => 100,
            _ => of,
        };
        let goes_before = |one: &Waiter| {
            let (own, other) = (level(priority), level(one.job.2));
            own > other || (own == other && newest_first)
        };
        let place = self.waiting.iter().position(goes_before);
        let place = place.unwrap_or(self.waiting.len());
        let ahead: u64 = self.waiting[..place].iter().map(|one| one.job.1).sum();
        let at = Tick::from_nanos(now);
        let wait = if ahead == 0 || self.mistake == Mistake::Overtakes {
            let decision = self.algorithm.take_turn(&mut self.state, at, cost);
            if decision.is_admitted() {
                return self.pass(job, now, now);
            }
            decision.retry_after
        } else {
            self.turn(place, cost, at)
        };
        let may_wait = priority >= least || self.mistake == Mistake::AllWait;
        let waits = wait.is_some_and(|wait| wait.as_nanos() <= u128::from(longest));
        if !may_wait || !waits {
            return self.end(job, false, now);
        }
        if self.waiting.len() >= most as usize {
            let gives = place < self.waiting.len() && self.mistake != Mistake::KeepsPlaces;
            let last = if gives { self.waiting.pop() } else { None };
            let Some(last) = last else {
                return self.end(job, false, now);
            };
            self.end(last.job, false, now);
        }
        let until = now + longest;
        self.waiting.insert(place, Waiter { job, until });
        if place == 0 {
            self.asked = now;
        }
    }

    /// How long after `now` a request takes its turn at this place, if none leaves.
    fn turn(&self, place: usize, cost: u64, now: Tick) -> Option<Duration> {
        let (mut state, mut turn) = (self.state.clone(), now);
        let ahead = self.waiting[..place].iter().map(|one| one.job.1);
        for cost in ahead.chain([cost]) {
            loop {
                let decision = self.algorithm.take_turn(&mut state, turn, cost);
                if decision.is_admitted() {
                    break;
                }
                turn = turn.plus(decision.retry_after?);
            }
        }
        Some(turn.since(now))
    }

    fn leave(&mut self, name: u32, now: u64) {
        if let Some(at) = self.waiting.iter().position(|one| one.job.0 == name) {
            let left = self.waiting.remove(at);
            if self.mistake == Mistake::LeavesAGap {
                self.algorithm
                    .charge(&mut self.state, Tick::from_nanos(now), left.job.1);
            }
            if at == 0 {
                self.asked = now;
            }
        }
    }

    fn retune(&mut self, quota: Quota, now: u64) {
        let old = self.algorithm.clone();
        if let Ok(new) = old.with_quota(quota) {
            new.rescale(&mut self.state, &old, Tick::from_nanos(now));
            (self.algorithm, self.asked) = (new, now);
        }
    }

    fn give_back(&mut self, units: u64, at: u64, now: u64) {
        let [at, tick] = [at, now].map(Tick::from_nanos);
        let cost = Cost { units, at };
        self.algorithm
            .refund(&mut self.state, tick, cost, GiveBack::Refund);
        self.asked = now;
    }

    /// A request in shadow mode passes at once, and takes what it can, or its turn if that is one of the next `most`.
    fn shadow(&mut self, job: Job, now: u64) {
        let (_, cost, priority) = job;
        let (state, at) = (&mut self.state, Tick::from_nanos(now));
        let _ = if priority >= self.settings.least {
            let turns = |quota: &Quota| {
                let units = (quota.period() * self.settings.most).as_nanos();
                units.div_ceil(quota.limit().into())
            };
            let turns = self.algorithm.quotas().iter().map(turns).max().unwrap();
            let longest = turns.min(self.settings.longest.into());
            let longest = Duration::from_nanos(longest.try_into().unwrap());
            reserve(&self.algorithm, state, at, cost, longest)
        } else {
            self.algorithm.decide(state, at, cost)
        };
        self.end(job, true, now);
    }
}

fn tick() -> u64 {
    MonotonicClock.now().as_nanos()
}

/// Whether the line of a layer and that of a model do the same. With costs of up to `exact` a wait is known exactly;
/// with others no wait is too long.
async fn agree<A: Algorithm>(algorithm: A, exact: u64, seed: u64, mistake: Mistake) -> bool {
    let random = &mut Random::new(seed);
    let (settings, dearest) = Settings::random(random, exact);
    let (panics, clock) = (random.below(2) == 1, Faulty::default());
    let local = Local::new(algorithm.clone())
        .capacity(1)
        .with_clock(clock.clone());
    let layer = RateLimitLayer::new(|_: &Job| (), local)
        .queue(settings.most)
        .max_wait(Duration::from_nanos(settings.longest))
        .queue_for(settings.least);
    let layer = if settings.newest_first {
        layer.newest_first()
    } else {
        layer
    };
    let layer = layer.cost(|job: &Job| job.1).priority(|job: &Job| job.2);
    let shadow = layer.clone().shadow().respond(AsError);
    let other = FixedWindow::new(Quota::per_day(settings.others.into()));
    let layer = layer.and(RateLimitLayer::new(|job: &Job| job.0 / 2, other));
    let layer = layer.respond(AsError);
    let handle: Handle<(), Local<A, Faulty>> = layer.handle().first();
    let (start, ended) = (Instant::now(), Arc::<Mutex<Outcome>>::default());
    let (mut model, mut calls) = (
        Model::new(algorithm, settings, mistake, tick()),
        BTreeMap::new(),
    );
    let inner = service_fn(async |_: Job| Ok::<(), Boxed>(()));
    let (service, shadow) = (layer.layer(inner), shadow.layer(inner));
    for name in 0..40 {
        let now = tick();
        model.advance(now);
        match random.below(10) {
            2 => {
                let quota = per_5_ms(1 + random.below(3)).burst(2);
                if handle.set_quota(quota).is_ok() {
                    model.retune(quota, now);
                }
            }
            0 if !calls.is_empty() => {
                let left = name - 1 - u32::try_from(random.below(4)).unwrap().min(name - 1);
                let call: Option<JoinHandle<()>> = calls.remove(&left);
                if let Some(call) = call {
                    call.abort();
                }
                model.leave(left, now);
            }
            1 => {
                let units = 1 + random.below(2);
                handle.refund(&(), units).await.unwrap();
                model.give_back(units, now, now);
            }
            3 if panics => {
                clock.0.store(true, Ordering::Relaxed);
                pass(random.below(3)).await;
                model.is_broken = true;
                model.advance(tick());
                model.is_broken = false;
                clock.0.store(false, Ordering::Relaxed);
            }
            3 => {
                let job = (name, 1 + random.below(dearest), *random.pick(&PRIORITIES));
                assert!(shadow.clone().oneshot(job).await.is_ok());
                ended
                    .lock()
                    .unwrap()
                    .insert(name, (true, (now - model.start) / MS));
                model.shadow(job, now);
            }
            _ => {
                let job = (name, 1 + random.below(dearest), *random.pick(&PRIORITIES));
                let (service, ended) = (service.clone(), Arc::clone(&ended));
                let call = tokio::spawn(async move {
                    let passed = service.oneshot(job).await.is_ok();
                    let ms = u64::try_from(start.elapsed().as_millis()).unwrap();
                    ended.lock().unwrap().insert(job.0, (passed, ms));
                });
                calls.insert(name, call);
                model.enter(job, now);
            }
        }
        settle().await;
        model.advance(tick());
        if *ended.lock().unwrap() != model.ended || handle.waiting() != model.waiting.len() as u64 {
            return false;
        }
        pass(random.below(4)).await;
    }
    true
}

/// Whether they agree for so many seeds.
async fn all_agree(algorithm: impl IntoAlgorithm, exact: u64, mistake: Mistake) -> Result<(), u64> {
    let algorithm = algorithm.into_algorithm();
    for seed in 0..30 {
        if !agree(algorithm.clone(), exact, seed, mistake).await {
            return Err(seed);
        }
    }
    Ok(())
}

fn per_5_ms(limit: u64) -> Quota {
    Quota::per(limit, Duration::from_millis(5))
}

/// Shows promises 17, 59, 61, 62, 70, 189.
#[tokio::test(start_paused = true)]
async fn the_line_of_every_algorithm_is_that_of_a_plain_list() {
    macro_rules! agrees {
        ($($exact:literal: $algorithm:expr),+ $(,)?) => {$(
            let found = all_agree($algorithm, $exact, Mistake::None).await;
            assert_eq!(found, Ok(()), "{}", stringify!($algorithm));
        )+};
    }
    let grid = SlidingGrid::new(per_5_ms(3)).cells(5);
    let ms = Duration::from_millis;
    agrees!(
        2: TokenBucket::new(per_5_ms(3).burst(2)),
        2: TokenBucket::new(per_5_ms(1)).debt(2),
        2: LeakyBucket::new(per_5_ms(2)),
        2: LeakyBucket::new(per_5_ms(2).burst(1)),
        2: Gcra::new(per_5_ms(3).burst(2)),
        2: WarmUp::new(per_5_ms(2), ms(40)),
        1: FixedWindow::new(per_5_ms(3)),
        1: FixedWindow::new(per_5_ms(3)).anchored(),
        1: CalendarWindow::new(Quota::per_day(3), "Asia/Tokyo").unwrap(),
        1: SlidingLog::new(per_5_ms(3)),
        1: grid,
        1: grid.strict(),
        1: Lockout::new(per_5_ms(3)).block(ms(7)).max_block(ms(50)),
        0: SlidingWindow::new(per_5_ms(3)),
        0: (
            TokenBucket::new(per_5_ms(3).burst(2)),
            SlidingLog::new(per_5_ms(3))
        ),
    );
}

#[tokio::test(start_paused = true)]
async fn each_mistake_of_a_line_is_found() {
    for mistake in [
        Mistake::Overtakes,
        Mistake::NoPriority,
        Mistake::KeepsPlaces,
        Mistake::AllWait,
        Mistake::Patient,
        Mistake::LeavesAGap,
        Mistake::KeepsCost,
    ] {
        let found = all_agree(TokenBucket::new(per_5_ms(3).burst(2)), 2, mistake).await;
        assert!(found.is_err(), "{mistake:?}");
    }
}

/// A waiter that leaves one of them gives nothing back that the other has not.
///
/// Shows promise 25.
#[tokio::test(start_paused = true)]
async fn two_layers_over_one_limit_keep_its_distance() {
    let local = Local::new(LeakyBucket::new(
        Quota::per(1, Duration::from_millis(100)).burst(1),
    ));
    let (start, served) = (Instant::now(), Arc::<Mutex<Vec<u128>>>::default());
    let layer = || {
        RateLimitLayer::new(|_: &u8| (), local.clone())
            .queue(10)
            .respond(AsError)
    };
    let (first, second) = (layer(), layer());
    let record = Arc::clone(&served);
    let service = service_fn(move |_: u8| {
        record.lock().unwrap().push(start.elapsed().as_millis());
        async { Ok::<(), Boxed>(()) }
    });
    let mut calls = Vec::new();
    for n in 0..6 {
        let layer = [&first, &second][usize::from(n % 2)];
        calls.push(tokio::spawn(layer.layer(service.clone()).oneshot(n)));
        settle().await;
    }
    calls.remove(1).abort();
    pass(1_000).await;
    assert_eq!(*served.lock().unwrap(), [0, 100, 200, 300, 400]);
}
