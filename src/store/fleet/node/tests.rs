use super::*;
use crate::algorithm::TokenBucket;
use crate::quota::Quota;
use crate::store::cas::MemoryStore;

fn node(store: MemoryStore) -> Node<MemoryStore, TokenBucket> {
    let settings = Settings {
        interval: Duration::from_millis(100),
        deadline: None,
        life: None,
        machines: None,
        capacity: 1,
    };
    let bucket = TokenBucket::new(Quota::per_second(1));
    Node::new(store, ["throttle", "api"], &bucket, (settings, false)).expect("a limit")
}

#[tokio::test(start_paused = true)]
async fn budgets_follow_the_number_of_machines_at_once() {
    let task = Task(Arc::new(node(MemoryStore::new())));
    task.count().await.expect("a count");
    assert_eq!(task.0.machines(), 1);
    assert_eq!(task.0.keys.common().rules.machines, 1);
}

#[test]
fn a_batch_has_no_keys_without_a_report() {
    let task = Task(Arc::new(node(MemoryStore::new())));
    let keys = &task.0.keys;
    let hash = keys.hash("key");
    let now = MonotonicClock.now();
    let _ = keys.change(hash, || "key".into(), now, |_, _| {});
    task.collect(&[hash], false);
    assert!(lock(&task.0.progress).flight.is_none());
    let _ = keys.change(hash, || "key".into(), now, |budget, _| budget.reset());
    task.collect(&[hash], false);
    assert!(lock(&task.0.progress).flight.is_some());
}

#[test]
fn the_last_error_is_that_of_an_outage_that_goes_on() {
    let task = Task(Arc::new(node(MemoryStore::new())));
    let error = StoreError::new("no reply", true);
    task.failed(&error);
    assert_eq!(task.0.last_error(), Some(error));
    task.succeeded();
    assert_eq!(task.0.last_error(), None);
}

#[test]
fn keys_are_spread_over_the_groups() {
    let node = node(MemoryStore::new());
    let mut keys = [0; GROUPS as usize];
    for key in 0..6_400_u64 {
        let name = node.name_of(&key);
        let group = name.strip_prefix("{throttle:api:1000:").unwrap();
        let (group, rest) = group.split_once('}').unwrap();
        assert_eq!(rest, key.to_string());
        keys[group.parse::<usize>().unwrap()] += 1;
    }
    assert!(
        keys.iter().all(|keys| (50..=150).contains(keys)),
        "{keys:?}"
    );
}
