//! Random batches, for tests of stores that execute them.

use std::sync::Arc;

pub(in crate::store) use test_support::random::Random;

use crate::algorithm::{Cells, Division, FixedWindow, Kernel, Level};
use crate::clock::Tick;
use crate::quota::Quota;
use crate::store::fleet::{
    batch::{Batch, Replies},
    exchange::{Limit, Reply, Report},
    shape::{NEVER, Shape, ShapePart},
};

const KEYS: usize = 3;

/// Batches of several machines that share a limit whose configuration changes.
pub(in crate::store) struct Trace {
    pub(in crate::store) random: Random,
    /// The store's time.
    pub(in crate::store) now: u64,
    /// Of one machine's settings.
    limits: Vec<Limit>,
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
        let (life, ahead) = (interval * (2 + random.below(20)), random.below(2) == 0);
        let now = 1_700_000_000_000_000 + random.log_uniform(50);
        Self {
            now,
            limits: (0..3)
                .map(|_| Limit {
                    shape: shape(&mut random, now),
                    interval,
                    life,
                    ahead,
                })
                .collect(),
            last: vec![None; 4],
            replies: Default::default(),
            random,
        }
    }

    /// Lets time pass. Returns the next batch.
    pub(in crate::store) fn step(&mut self) -> Arc<Batch> {
        let random = &mut self.random;
        let Limit { interval, life, .. } = self.limits[0];
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
            None => *random.pick(&[1, 8, 1 << 50]),
            Some(last) => last.sequence + 1 + random.below(3),
        };
        let layout = if random.below(6) == 0 {
            random.below(3)
        } else {
            0
        };
        let mut limit = self.limits[usize::try_from(layout).unwrap()].clone();
        if random.below(5) == 0 {
            limit.ahead = !limit.ahead;
            limit.interval = 1 + interval / (1 + random.below(9));
            limit.life = limit.interval * (2 + random.below(20));
        }
        let tag = "{throttle:test:7}";
        let mut keys = Vec::new();
        for key in 0..KEYS {
            if self.random.below(3) > 0 {
                let name = format!("{tag}{layout} key {key}");
                keys.push((name.into(), self.report(&limit.shape, key)));
            }
        }
        let batch = Arc::new(Batch {
            machine,
            sequence,
            limit: Arc::new(limit),
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
            self.replies[usize::from(key)] = reply.unwrap_or_default();
        }
    }

    fn report(&mut self, shape: &Shape, key: usize) -> Report {
        let (random, now, grant) = (&mut self.random, self.now, self.replies[key].grant);
        let capacity = shape.capacity;
        let units = |random: &mut Random| match random.below(6) {
            0 | 1 => 0,
            2 => random.below(grant.units + 1),
            3 => random.below(2 * capacity + 2),
            4 => random.log_uniform(33),
            _ => 1 + random.below(3),
        };
        let interval = self.limits[0].interval;
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
    let shape = Shape::new(vec![part(random, now)]);
    match random.below(3) {
        0 => shape.and(Shape::new(vec![part(random, now)])),
        _ => shape,
    }
}

/// A part of any kind and size.
fn part(random: &mut Random, now: u64) -> ShapePart {
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
        let length = 1_000 * micros;
        let level = |period, rate| {
            Kernel::Level(Level {
                rate,
                period,
                capacity: limit,
                initial: 0,
            })
        };
        let cells = Cells {
            limit,
            length,
            offset: 1_000 * random.log_uniform(40),
            count: 1,
            division: Division::Even,
        };
        let count = 2 + random.below(60);
        let kernel = match random.below(7) {
            0 => level(length, limit),
            1 => level(1 + random.log_uniform(62), 1 + random.log_uniform(32)),
            2 => Kernel::Cells(cells),
            3 => {
                // Around the time at which the trace begins, or beside it.
                let start = now / 1_000_000 + random.log_uniform(22) - random.log_uniform(22);
                let end = start + 1 + random.log_uniform(22);
                let division = Division::Calendar {
                    name: String::new(),
                    starts: [0, start, end, 0],
                };
                Kernel::Cells(Cells { division, ..cells })
            }
            4 => Kernel::Cells(Cells {
                division: Division::Weighted,
                count: 2,
                ..cells
            }),
            5 => Kernel::Cells(Cells {
                length: length.div_ceil(count),
                count,
                ..cells
            }),
            _ => Kernel::Log {
                limit,
                period: length,
            },
        };
        if let Some(part) = ShapePart::of(kernel) {
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
    let window = FixedWindow::new(Quota::per_day(1_000));
    Arc::new(Batch {
        machine,
        sequence,
        limit: Arc::new(Limit {
            shape: Shape::of(&window, Tick::ZERO).unwrap(),
            interval: 100_000,
            life: 1_000_000,
            ahead: false,
        }),
        sequence_key: format!("{tag}~{machine}").into(),
        keys: names.map(|name| (name.into(), report)).collect(),
    })
}

impl Replies {
    /// The units that are used of keys that have 1,000; all of one whose value is damaged.
    pub(in crate::store) fn used(&self) -> Vec<u64> {
        let free = |reply: &Option<Reply>| reply.map_or(0, |reply| reply.figures.free);
        let used = self.keys.iter().map(|reply| 1_000 - free(reply));
        used.map(|used| used.try_into().unwrap()).collect()
    }
}
