//! What a fallback says of its backends.

use tower_throttle::store::{Backend, Fallback};
use tower_throttle::{FixedWindow, LeakyBucket, Local, Quota};

#[test]
fn a_fallback_has_the_limits_of_its_primary_and_the_keys_of_both() {
    let window = || Local::new(FixedWindow::new(Quota::per_day(9)));
    let line = LeakyBucket::new(Quota::per_second(10));
    let primary = Local::new((FixedWindow::new(Quota::per_day(7)), line));
    let small = || window().capacity(64);
    let limit = Fallback::new(primary.clone(), window());
    assert_eq!(
        Backend::<u16>::quotas(&limit),
        Backend::<u16>::quotas(&primary)
    );
    assert_eq!(Backend::<u16>::limits(&limit), 2);
    let (first, second) = (small(), small());
    let limit = Fallback::new(first.clone(), second.clone());
    for key in 0..1_000_u16 {
        let _ = first.check(&key, 1);
        let _ = second.check(&key, 1);
        let _ = second.check(&key, 1);
    }
    let losses = |of: &Local<FixedWindow>| Backend::<u16>::stats(of).evicted;
    assert!(losses(&first) > 0 && losses(&second) > 0);
    let both = losses(&first) + losses(&second);
    assert_eq!(Backend::<u16>::stats(&limit).evicted, both);
    let fullness = Backend::<u16>::stats(&limit);
    let of = |one: &Local<FixedWindow>| Backend::<u16>::stats(one);
    assert_eq!(fullness, of(&first) + of(&second));
    assert!(fullness.live > 64 && fullness.largest_use_percent > 0);
}
