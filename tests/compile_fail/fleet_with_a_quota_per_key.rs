//~ has one quota for all keys: give `PerKey::over` a limiter of Redis or a `Cas`
use tower_throttle::store::{PerKey, Plan, cas::MemoryStore, fleet::Synced};
use tower_throttle::{Quota, StoreError, TokenBucket};
fn main() {
    let fleet = Synced::new(MemoryStore::new(), "api", TokenBucket::new(Quota::per_second(1)));
    let plan = |_: u64| async { Ok::<_, StoreError>(Plan::Default) };
    let _ = PerKey::over(fleet, plan);
}
