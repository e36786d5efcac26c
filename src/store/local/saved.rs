//! Tables as bytes, for the next process.

use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::net::Ipv6Addr;

use super::inner::InUse;
use super::table::Table;
use super::{Local, Seeded};
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::saved::{Reading, SaveState, SavedKind, Writing, read_checked, refused};
use crate::sync::lock;

/// The hash of this differs with each seed, and with another function.
const PROBE: (&str, u64, Ipv6Addr) = ("tower-throttle", 7, Ipv6Addr::LOCALHOST);

impl<A: Algorithm, C: Clock> SaveState for Local<A, C> {
    fn save(&self, writer: &mut dyn Write) -> io::Result<()> {
        let inner = &*self.shared;
        let InUse { table, hasher } = inner.in_use();
        // Until all is written there is one algorithm.
        let change = lock(&inner.change);
        let mut out = Writing::limit(SavedKind::Table, &*inner.algorithm(), &inner.clock)?;
        out.number(inner.capacity as u64);
        for number in [hasher.seeds[0], hasher.seeds[1], hasher.hash_one(PROBE)] {
            out.number(number);
        }
        table.save(inner.clock.now(), &mut out)?;
        drop(change);
        out.finish(writer)
    }

    fn load(&self, reader: &mut dyn Read) -> io::Result<()> {
        let bytes = read_checked(SavedKind::Table, reader)?;
        let mut reading = Reading(&bytes);
        let inner = &*self.shared;
        let is_unused = inner.load(|algorithm| {
            let saved = reading.limit(&**algorithm, &inner.clock)?;
            let (capacity, own) = (reading.number()?, inner.capacity);
            if capacity != own as u64 {
                let reason = format!("its capacity is {capacity}, and that of the limit is {own}");
                return Err(refused(reason));
            }
            let hasher = Seeded::from_seeds([reading.number()?, reading.number()?]);
            if hasher.hash_one(PROBE) != reading.number()? {
                return Err(refused("the keys of the limit have another hash"));
            }
            let mut table = Table::new(algorithm, own);
            table.load(&saved, &mut reading)?;
            reading.end()?;
            Ok(InUse { table, hasher })
        })?;
        if is_unused {
            return Ok(());
        }
        let reason = "the limit is in use; load it before the first request";
        Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))
    }
}
