use super::*;

fn open() -> Redis {
    Redis::open("redis://127.0.0.1:1").expect("a url")
}

#[test]
fn each_setting_of_the_breaker_keeps_the_other_one() {
    let (min, max) = (Duration::from_millis(7), Duration::from_secs(9));
    let threshold = |redis: Redis| redis.failure_threshold(5).expect("a number");
    let interval = |redis: Redis| redis.probe_interval(min, max).expect("an interval");
    for redis in [interval(threshold(open())), threshold(interval(open()))] {
        let breaker = redis.breaker;
        assert_eq!(breaker.failure_threshold, 5);
        assert_eq!(breaker.min_probe_interval, min);
        assert_eq!(breaker.max_probe_interval, max);
    }
}

#[test]
fn settings_of_the_breaker_outside_of_their_bounds_are_refused() {
    let threshold = |failures| open().failure_threshold(failures).is_ok();
    assert!(threshold(1) && !threshold(0));
    let (least, day) = (Duration::from_nanos(1), Duration::from_secs(86_400));
    for (min, max, is_allowed) in [
        (least, least, true),
        (least, day, true),
        (Duration::ZERO, day, false),
        (2 * least, least, false),
        (least, day + least, false),
    ] {
        let is_ok = open().probe_interval(min, max).is_ok();
        assert_eq!(is_ok, is_allowed, "{min:?} to {max:?}");
    }
}

#[test]
fn a_client_of_sentinels_makes_several_connections() {
    use redis::sentinel::{SentinelClient, SentinelServerType};

    let client = SentinelClient::build(
        vec!["redis://127.0.0.1:1"],
        "primary",
        None,
        SentinelServerType::Master,
    );
    let redis = Redis::with_sentinel(client.expect("urls"));
    assert!(redis.connections(2).is_ok());
}
