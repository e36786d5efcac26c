//! Tables as bytes, for the next process.

use std::any::Any;
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::net::Ipv6Addr;

use super::inner::{InUse, Loaded};
use super::table::Table;
use super::user_code::Running;
use super::{Local, Seeded};
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::saved::{Kind, Reading, SaveState, Writing, read_checked, refused};
use crate::sync::lock;

/// The hash of this differs with each seed, and with another function.
const PROBE: (&str, u64, Ipv6Addr) = ("tower-throttle", 7, Ipv6Addr::LOCALHOST);

impl<A, C, S> SaveState for Local<A, C, S>
where
    A: Algorithm,
    C: Clock,
    S: BuildHasher + Send + Sync + 'static,
{
    fn save(&self, writer: &mut dyn Write) -> io::Result<()> {
        let inner = &*self.shared;
        let InUse { table, hasher } = inner.in_use().ok_or_else(in_use)?;
        let _running = Running::enter(inner.rules.is_user_code);
        // Until all is written there is one algorithm.
        let change = lock(&inner.change);
        let algorithm = inner.read_algorithm(A::clone);
        let mut out = Writing::limit(Kind::Table, &algorithm, &inner.clock)?;
        out.number(inner.size.capacity as u64);
        let seeds = as_seeded(hasher).map(|seeded| seeded.seeds);
        out.number(u64::from(seeds.is_some()));
        for seed in seeds.into_iter().flatten() {
            out.number(seed);
        }
        out.number(hasher.hash_one(PROBE));
        out.number(Table::<A>::slots_and_bytes(inner.size.capacity).0 as u64);
        table.save(inner.clock.now(), &mut out)?;
        let shared = inner.rules.shared();
        out.number(u64::from(shared.is_some()));
        if let Some(state) = shared {
            out.state(&algorithm, &state)?;
        }
        drop(change);
        out.finish(writer)
    }

    fn load(&self, reader: &mut dyn Read) -> io::Result<()> {
        let bytes = read_checked(Kind::Table, reader)?;
        let mut reading = Reading(&bytes);
        let inner = &*self.shared;
        let is_unused = inner.load(|algorithm, hasher| {
            let saved = reading.limit(&**algorithm, &inner.clock)?;
            let capacity = reading.number()?;
            if capacity != inner.size.capacity as u64 {
                let own = inner.size.capacity;
                let reason = format!("its capacity is {capacity}, and that of the limit is {own}");
                return Err(refused(reason));
            }
            let seeds = match reading.number()? {
                0 => None,
                _ => Some([reading.number()?, reading.number()?]),
            };
            let other_hash = || refused("the keys of the limit have another hash");
            // Only the default hash has seeds.
            let loaded = match (seeds, as_seeded(hasher)) {
                (None, None) => None,
                (Some(seeds), Some(_)) => Some(Seeded::from_seeds(seeds)),
                _ => return Err(other_hash()),
            };
            let probe = match &loaded {
                Some(loaded) => loaded.hash_one(PROBE),
                None => hasher.hash_one(PROBE),
            };
            if probe != reading.number()? {
                return Err(other_hash());
            }
            let slots = Table::<A>::slots_and_bytes(inner.size.capacity).0;
            if reading.number()? != slots as u64 {
                return Err(refused("its table has another form"));
            }
            let mut table = Table::new(algorithm, inner.size.capacity);
            table.load(&saved, &mut reading)?;
            let shared = match reading.number()? {
                0 => None,
                _ => saved.state(&**algorithm, &mut reading)?,
            };
            reading.end()?;
            Ok(Loaded {
                table,
                hasher: loaded,
                shared,
            })
        })?;
        if is_unused { Ok(()) } else { Err(in_use()) }
    }
}

/// The default hash, if it is the one.
fn as_seeded<S: 'static>(hasher: &S) -> Option<&Seeded> {
    (hasher as &dyn Any).downcast_ref()
}

fn in_use() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "the limit is in use; load it before the first request",
    )
}
