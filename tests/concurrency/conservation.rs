//! Random events, against a model: permits are neither lost nor made.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use tower::{Layer, Service};
use tower_throttle::{
    Handle,
    concurrency::{ConcurrencyLimitLayer, Permits},
};

use crate::random::Random;

const KEYS: usize = 12;
const QUEUE: usize = 3;

type Id = u64;

/// The priorities of requests.
const PRIORITIES: [u8; 3] = [30, 60, 100];

/// A request: its key, its cost, its priority, and its number.
#[derive(Clone, Copy, Debug)]
struct Job {
    key: usize,
    cost: u64,
    priority: u8,
    id: Id,
}

/// What a service or a body does when it is polled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending,
    /// A response with this body.
    Respond(Next),
    Fail,
    Panic,
}

/// What a body does when it is polled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Data,
    /// Data, and `is_end_stream` from then on.
    LastData,
    Nothing,
    Error,
    End,
    Panic,
}

/// The fates of all requests that have reached the service.
#[derive(Clone, Default)]
struct Script(Rc<RefCell<HashMap<Id, Fate>>>);

struct Call(Script, Id);

struct Stream {
    next: Next,
    ended: bool,
}

impl Service<Request<Job>> for Script {
    type Response = Response<Stream>;
    type Error = ();
    type Future = Call;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Job>) -> Call {
        let id = request.body().id;
        self.0.borrow_mut().insert(id, Fate::Pending);
        Call(self.clone(), id)
    }
}

impl Future for Call {
    type Output = Result<Response<Stream>, ()>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let fate = self.0.0.borrow()[&self.1];
        match fate {
            Fate::Pending => Poll::Pending,
            Fate::Respond(next) => Poll::Ready(Ok(Response::new(Stream {
                next,
                ended: next == Next::Nothing,
            }))),
            Fate::Fail => Poll::Ready(Err(())),
            // Without a message in the log.
            Fate::Panic => resume_unwind(Box::new("the handler panics")),
        }
    }
}

/// The body of a denial.
impl Default for Stream {
    fn default() -> Self {
        Self {
            next: Next::End,
            ended: true,
        }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = ();

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        let data = Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data")))));
        match self.next {
            Next::Data => {
                self.next = Next::End;
                data
            }
            Next::LastData => {
                self.ended = true;
                data
            }
            Next::Nothing | Next::End => Poll::Ready(None),
            Next::Error => Poll::Ready(Some(Err(()))),
            Next::Panic => resume_unwind(Box::new("the body panics")),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// Whether it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One request, as far as it is.
struct Live<F, B> {
    job: Job,
    flag: Arc<Flag>,
    at: At<F, B>,
}

enum At<F, B> {
    Waiting(Pin<Box<F>>),
    Serving(Pin<Box<F>>),
    /// It has a permit as long as the flag says so.
    Body(Pin<Box<B>>, bool),
}

/// What should be true of one key.
#[derive(Default)]
struct Model {
    in_flight: u64,
    /// By falling priority, then in the order of arrival.
    waiting: Vec<Job>,
    /// Waiters that lost their places, and were not polled since.
    displaced: HashSet<Id>,
}

struct Driver<F, B> {
    live: Vec<Live<F, B>>,
    keys: [Model; KEYS],
    limit: u64,
    script: Script,
    random: Random,
    handle: Handle<usize, Permits>,
    denied: u64,
    displaced: u64,
}

impl<F, B> Driver<F, B>
where
    F: Future<Output = Result<Response<B>, ()>>,
    B: Body,
{
    /// The part of the limit for a priority: two permits are reserved for the highest.
    fn part(&self, priority: u8) -> u64 {
        let reserved = if priority < 100 { 2 } else { 0 };
        self.limit.saturating_sub(reserved).max(1)
    }

    fn has_room(&self, job: Job) -> bool {
        let in_flight = self.keys[job.key].in_flight;
        in_flight == 0 || in_flight + job.cost <= self.part(job.priority)
    }

    /// A new request goes on, waits or is denied as the model says.
    fn arrive(&mut self, id: Id, call: impl FnOnce(Request<Job>) -> F) {
        let job = Job {
            key: self.random.index(KEYS),
            cost: *self.random.pick(&[1, 1, 1, 2, 3]),
            priority: *self.random.pick(&PRIORITIES),
            id,
        };
        let flag = Arc::<Flag>::default();
        let mut future = Box::pin(call(Request::new(job)));
        let waker = Waker::from(Arc::clone(&flag));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let may_pass = job.cost <= self.part(job.priority);
        let has_room = may_pass && self.has_room(job);
        let model = &mut self.keys[job.key];
        let behind = model
            .waiting
            .partition_point(|other| other.priority >= job.priority);
        let is_full = model.waiting.len() == QUEUE;
        let is_served = self.script.0.borrow().contains_key(&id);
        if has_room && behind == 0 {
            model.in_flight += job.cost;
            assert!(is_served && polled.is_pending(), "{job:?} goes on");
            let at = At::Serving(future);
            self.live.push(Live { job, flag, at });
        } else if may_pass && (!is_full || behind < QUEUE) {
            if is_full {
                let last = model.waiting.pop().unwrap();
                model.displaced.insert(last.id);
                let live = self.live.iter().find(|live| live.job.id == last.id);
                let was_woken = live.unwrap().flag.0.load(Ordering::Relaxed);
                assert!(was_woken, "{last:?} was not woken");
                self.displaced += 1;
            }
            model.waiting.insert(behind, job);
            assert!(!is_served && polled.is_pending(), "{job:?} waits");
            let at = At::Waiting(future);
            self.live.push(Live { job, flag, at });
        } else {
            let Poll::Ready(Ok(response)) = polled else {
                panic!("{job:?} is denied");
            };
            assert_eq!((response.status().as_u16(), is_served), (429, false));
            self.denied += 1;
        }
    }

    /// The model of a release: the first waiters are granted permits, and were woken.
    fn release(&mut self, key: usize, units: u64) {
        self.keys[key].in_flight -= units;
        self.grant(key);
    }

    fn grant(&mut self, key: usize) {
        while let Some(first) = self.keys[key].waiting.first().copied() {
            if !self.has_room(first) {
                return;
            }
            self.keys[key].waiting.remove(0);
            self.keys[key].in_flight += first.cost;
            let live = self.live.iter().find(|live| live.job.id == first.id);
            assert!(
                live.unwrap().flag.0.load(Ordering::Relaxed),
                "was not woken"
            );
        }
    }

    /// Something happens to one request.
    fn happen(&mut self, at: usize) {
        let Live { job, flag, at } = self.live.swap_remove(at);
        let waker = Waker::from(Arc::clone(&flag));
        let mut cx = Context::from_waker(&waker);
        match at {
            At::Waiting(mut future) => {
                let place = self.keys[job.key]
                    .waiting
                    .iter()
                    .position(|other| other.id == job.id);
                let is_displaced = self.keys[job.key].displaced.remove(&job.id);
                if self.random.below(4) == 0 {
                    // The client hangs up, perhaps when the permit is already its own.
                    drop(future);
                    match place {
                        Some(place) => {
                            self.keys[job.key].waiting.remove(place);
                            self.grant(job.key);
                        }
                        None if is_displaced => {}
                        None => self.release(job.key, job.cost),
                    }
                    return;
                }
                if is_displaced {
                    let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut cx) else {
                        panic!("{job:?} is denied");
                    };
                    assert_eq!(response.status().as_u16(), 429);
                    self.denied += 1;
                    return;
                }
                assert!(future.as_mut().poll(&mut cx).is_pending());
                let is_served = self.script.0.borrow().contains_key(&job.id);
                assert_eq!(is_served, place.is_none(), "{job:?} goes on in its turn");
                let at = match place {
                    Some(_) => At::Waiting(future),
                    None => At::Serving(future),
                };
                self.live.push(Live { job, flag, at });
            }
            At::Serving(mut future) => {
                let nexts = [Next::Data, Next::LastData, Next::Nothing, Next::Error];
                let next = *self.random.pick(&nexts);
                let fate = match self.random.below(8) {
                    0 => Fate::Pending,
                    1 => Fate::Fail,
                    2 => Fate::Panic,
                    3 => Fate::Respond(Next::Panic),
                    _ => Fate::Respond(next),
                };
                self.script.0.borrow_mut().insert(job.id, fate);
                let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx)));
                if let Ok(Poll::Ready(Ok(response))) = polled {
                    let holds = fate != Fate::Respond(Next::Nothing);
                    let at = At::Body(Box::pin(response.into_body()), holds);
                    self.live.push(Live { job, flag, at });
                    if !holds {
                        self.release(job.key, job.cost);
                    }
                } else {
                    // It has failed or panicked, or it is reset while it is served.
                    drop(future);
                    self.release(job.key, job.cost);
                }
            }
            At::Body(mut body, mut holds) => {
                if self.random.below(4) == 0 {
                    drop(body);
                    if holds {
                        self.release(job.key, job.cost);
                    }
                    return;
                }
                let polled = catch_unwind(AssertUnwindSafe(|| body.as_mut().poll_frame(&mut cx)));
                let Ok(polled) = polled else {
                    drop(body);
                    self.release(job.key, job.cost);
                    return;
                };
                let goes_on = matches!(polled, Poll::Ready(Some(Ok(_)))) && !body.is_end_stream();
                if holds && !goes_on {
                    holds = false;
                    self.release(job.key, job.cost);
                }
                let at = At::Body(body, holds);
                self.live.push(Live { job, flag, at });
            }
        }
    }

    fn change_limit(&mut self) {
        self.limit = *self.random.pick(&[1, 2, 3, 4, 5, 8]);
        self.handle
            .set_limit(u32::try_from(self.limit).unwrap())
            .unwrap();
        for key in 0..KEYS {
            self.grant(key);
        }
    }

    fn check(&self) {
        let waiting = self.keys.iter().map(|key| key.waiting.len() as u64);
        assert_eq!(self.handle.waiting(), waiting.sum::<u64>());
        let has_entry = |model: &&Model| model.in_flight > 0;
        let entries = self.keys.iter().filter(has_entry).count();
        assert_eq!(self.handle.keys(), entries);
        for (key, model) in self.keys.iter().enumerate() {
            assert_eq!(self.handle.in_flight(&key), model.in_flight);
        }
    }
}

/// Shows promises 180, 181, 189, 641.
#[test]
fn permits_are_conserved_over_cancels_panics_and_resets() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let events = std::env::var("PERMIT_EVENTS");
    drive(events.map_or(300_000, |events| events.parse().unwrap()));
}

fn drive(events: u64) {
    let layer = ConcurrencyLimitLayer::new(|job: &Request<Job>| job.body().key, 3)
        .queue(QUEUE.try_into().unwrap())
        .max_wait(Duration::from_secs(3_600))
        .cost(|job: &Request<Job>| job.body().cost)
        .priority(|job: &Request<Job>| job.body().priority)
        .reserve(100, 2);
    let script = Script::default();
    let mut service = layer.layer(script.clone());
    let mut driver = Driver {
        live: Vec::new(),
        keys: Default::default(),
        limit: 3,
        script,
        random: Random::new(1),
        handle: layer.handle(),
        denied: 0,
        displaced: 0,
    };
    for event in 0..events {
        let live = driver.live.len();
        match driver.random.below(100) {
            0 => driver.change_limit(),
            1..=50 if live < 40 => driver.arrive(event, |request| {
                assert!(
                    service
                        .poll_ready(&mut Context::from_waker(Waker::noop()))
                        .is_ready()
                );
                service.call(request)
            }),
            _ if live > 0 => {
                let at = driver.random.index(live);
                driver.happen(at);
            }
            _ => {}
        }
        driver.check();
    }
    let counts = driver.handle.counts();
    assert!(
        counts.admitted > events / 20 && counts.waited > events / 100,
        "{counts:?}"
    );
    assert_eq!(counts.denied, driver.denied);
    assert!(driver.denied > events / 1_000);
    assert!(driver.displaced > events / 1_000);
    driver.live.clear();
    for key in 0..KEYS {
        assert_eq!(driver.handle.in_flight(&key), 0);
    }
    assert_eq!((driver.handle.keys(), driver.handle.waiting()), (0, 0));
}
