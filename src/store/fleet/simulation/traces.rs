//! Random batches, for tests of stores that execute them.

use std::sync::Arc;

pub(in crate::store) use test_support::random::Random;

use crate::quota::Quota;
use crate::store::fleet::{
    batch::{Batch, Replies},
    record::{Reply, Report, Terms},
    shape::{Cells, Level, NEVER, Part, Shape},
};

const KEYS: usize = 3;

/// Batches of several machines that share a limit whose configuration changes.
#[derive(Debug)]
pub(in crate::store) struct Trace {
    pub(in crate::store) random: Random,
    /// The store's time.
    pub(in crate::store) now: u64,
    shapes: Vec<Arc<Shape>>,
    terms: Terms,
    /// The last batch of each machine.
    last: Vec<Option<Arc<Batch>>>,
    /// The last reply for each key.
    replies: [Reply; KEYS],
}

impl Trace {
    pub(in crate::store) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let interval = match random.below(3) {
            0 => 100_000,
            _ => 1_000 + random.log_uniform(26),
        };
        let terms = Terms {
            interval,
            life: interval * (2 + random.below(20)),
            ahead: random.below(2) == 0,
        };
        let now = 1_700_000_000_000_000 + random.log_uniform(50);
        Self {
            now,
            shapes: (0..3).map(|_| Arc::new(shape(&mut random, now))).collect(),
            terms,
            last: vec![None; 4],
            replies: Default::default(),
            random,
        }
    }

    /// Lets time pass. Returns the next batch.
    pub(in crate::store) fn step(&mut self) -> Arc<Batch> {
        let random = &mut self.random;
        let Terms { interval, life, .. } = self.terms;
        self.now += match random.below(12) {
            0..=1 => 0,
            2..=8 => random.below(2 * interval) / (1 + random.below(8)),
            9 => random.below(3 * life),
            10 => life - random.below(2),
            _ => random.log_uniform(44),
        };
        if random.below(8) == 0 {
            self.now -= random.below(3 * interval);
        } else if random.below(20) == 0 {
            self.now -= random.log_uniform(44);
        }
        let machine = random.below(self.last.len() as u64);
        let place = usize::try_from(machine).unwrap();
        let sequence = match self.last[place].clone() {
            Some(last) if random.below(6) == 0 => return last,
            // Above 2^53, below it, and from below to above a power of ten.
            None => *random.pick(&[1, 8, 1 << 60, 9_007_199_254_740_990]),
            Some(last) => last.sequence + 1 + random.below(3),
        };
        let mut terms = self.terms;
        if random.below(5) == 0 {
            terms.ahead = !terms.ahead;
            terms.interval = 1 + terms.interval / (1 + random.below(9));
            terms.life = terms.interval * (2 + random.below(20));
        }
        let layout = if random.below(6) == 0 {
            random.below(3)
        } else {
            0
        };
        let shape = Arc::clone(&self.shapes[usize::try_from(layout).unwrap()]);
        let tag = "{throttle:test:7}";
        let mut keys = Vec::new();
        for key in 0..KEYS {
            if self.random.below(3) > 0 {
                let name = format!("{tag}{layout} key {key}");
                keys.push((name.into(), self.report(&shape, key)));
            }
        }
        let batch = Arc::new(Batch {
            machine,
            sequence,
            terms,
            shape,
            sequence_key: format!("{tag}~{machine}").into(),
            keys,
        });
        self.last[place] = Some(Arc::clone(&batch));
        batch
    }

    /// Takes in the replies to a batch: the next reports refer to them.
    pub(in crate::store) fn adopt(&mut self, batch: &Batch, replies: &Replies) {
        for ((name, _), reply) in batch.keys.iter().zip(&replies.keys) {
            let key = name.as_bytes()[name.len() - 1] - b'0';
            self.replies[usize::from(key)] = *reply;
        }
    }

    fn report(&mut self, shape: &Shape, key: usize) -> Report {
        let (random, now, grant) = (&mut self.random, self.now, self.replies[key].grant);
        let capacity = shape.capacity();
        let units = |random: &mut Random| match random.below(6) {
            0 | 1 => 0,
            2 => random.below(grant.units + 1),
            3 => random.below(2 * capacity + 2),
            4 => random.log_uniform(33),
            _ => 1 + random.below(3),
        };
        let interval = self.terms.interval;
        let moment = |random: &mut Random| match random.below(5) {
            0 => NEVER,
            1 => now - random.log_uniform(44),
            2 => now + random.below(interval),
            _ => now - random.below(2 * interval),
        };
        let sometimes = |random: &mut Random, of| {
            if random.below(of) == 0 {
                units(random)
            } else {
                0
            }
        };
        Report {
            epoch: match random.below(8) {
                0 => 0,
                1 => grant.epoch.saturating_sub(random.below(4)),
                2 => now,
                _ => grant.epoch,
            },
            used: units(random),
            kept: sometimes(random, 2),
            returned: sometimes(random, 2),
            charged: sometimes(random, 4),
            at: moment(random),
            demand: match random.below(8) {
                0 => random.log_uniform(50),
                _ => units(random),
            },
            waiting: sometimes(random, 3),
            given_back: sometimes(random, 4),
            given_back_at: moment(random),
            resets: random.below(20) == 0,
        }
    }
}

fn shape(random: &mut Random, now: u64) -> Shape {
    let shape = Shape::of(part(random, now));
    match random.below(3) {
        0 => shape.and(Shape::of(part(random, now))),
        _ => shape,
    }
}

/// A part of any kind and size.
fn part(random: &mut Random, now: u64) -> Part {
    loop {
        let limit = match random.below(3) {
            0 => 1 + random.below(10),
            1 => 1 + random.below(1_000),
            _ => 1 + random.log_uniform(31),
        };
        let micros = match random.below(3) {
            0 => 1_000_000 * (1 + random.below(60)),
            1 => *random.pick(&[7, 100, 7_000_013, 333_333_333, 1_000_001, 86_400_000_000]),
            _ => 1 + random.log_uniform(43),
        };
        let quota = Quota::per(limit, std::time::Duration::from_micros(micros));
        let offset = 1_000 * random.log_uniform(40);
        let cells = 2 + random.below(60);
        let part = match random.below(7) {
            0 => Level::new(limit, quota.period_ns(), limit).map(Part::Level),
            1 => Level::new(
                limit,
                1 + random.log_uniform(62),
                1 + random.log_uniform(32),
            )
            .map(Part::Level),
            2 => Cells::exact(&quota, offset).map(Part::Cells),
            3 => {
                // Around the time at which the trace begins, or beside it.
                let start = now / 1_000_000 + random.log_uniform(22) - random.log_uniform(22);
                let end = start + 1 + random.log_uniform(22);
                Cells::calendar(&quota, (start, end)).map(Part::Cells)
            }
            4 | 5 => Cells::new(&quota, quota.period_ns().div_ceil(cells), offset, cells)
                .map(Part::Cells),
            _ => Cells::log(&quota, quota.period_ns()).map(Part::Cells),
        };
        if let Ok(part) = part {
            return part;
        }
    }
}

/// A batch that reports 3 units for each key, of 1,000 per day, and asks for none.
pub(in crate::store) fn fixed_batch(
    machine: u64,
    sequence: u64,
    tag: &str,
    names: impl Iterator<Item = String>,
) -> Arc<Batch> {
    let report = Report {
        charged: 3,
        at: NEVER,
        ..Report::default()
    };
    let window = Cells::exact(&Quota::per_day(1_000), 0).unwrap();
    Arc::new(Batch {
        machine,
        sequence,
        terms: Terms {
            interval: 100_000,
            life: 1_000_000,
            ahead: false,
        },
        shape: Arc::new(Shape::of(Part::Cells(window))),
        sequence_key: format!("{tag}~{machine}").into(),
        keys: names.map(|name| (name.into(), report.clone())).collect(),
    })
}

impl Replies {
    /// The units that are used of keys that have 1,000.
    pub(in crate::store) fn used(&self) -> Vec<u64> {
        let used = self.keys.iter().map(|reply| 1_000 - reply.figures.free);
        used.map(|used| used.try_into().unwrap()).collect()
    }
}
