use super::*;

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
