//~ has one quota for all keys: give `Quotas` an algorithm, a `Local`, a limiter of Redis or a `Cas`
use tower_throttle::store::{Plan, Quotas, cas::MemoryStore, fleet::Synced};
use tower_throttle::{Quota, TokenBucket};
fn main() {
    let fleet = Synced::new(MemoryStore::new(), "api", TokenBucket::new(Quota::per_second(1))).unwrap();
    let _ = Quotas::new(fleet, |_: &u64| Plan::Default);
}
