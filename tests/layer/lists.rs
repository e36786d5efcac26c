//! Clients that are not limited, and clients that are blocked.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::key::{Missing, Networks, PeerAddr, Watched};
use tower_throttle::{AsError, ClientIp, FixedWindow, Global, Quota, RateLimitLayer, RateLimited};

fn request(address: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    let address: IpAddr = address.parse().unwrap();
    let peer = PeerAddr(SocketAddr::from((address, 4711)));
    request.extensions_mut().insert(peer);
    request
}

async fn ok(_: Request<String>) -> Result<Response<String>, BoxError> {
    Ok(Response::new(String::new()))
}

/// Whether the list contains the request: then it is skipped.
macro_rules! lists {
    ($list:expr, $request:expr) => {{
        let layer = RateLimitLayer::new(Global, once()).skip($list);
        let handle = layer.handle();
        let service = layer.respond(AsError).layer(service_fn(ok));
        let response = service.oneshot($request.clone()).now_or_never();
        let response = response.expect("no I/O");
        response.map(|_| handle.counts().skipped == 1)
    }};
}

/// The status of each of three requests from `address` through a layer with a limit of one.
macro_rules! statuses {
    ($layer:expr, $address:expr) => {{
        let service = $layer.clone().layer(service_fn(ok));
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let response = service.clone().oneshot(request($address)).await;
            statuses.push(response.unwrap().status().as_u16());
        }
        statuses
    }};
}

fn once() -> FixedWindow {
    FixedWindow::new(Quota::per_day(1))
}

/// Shows promise 193.
#[tokio::test]
async fn listed_clients_are_skipped_or_blocked_and_others_limited() {
    let clients = ClientIp::peer();
    let skipped = Networks::new(["192.0.2.0/24", "2001:db8::/32"]);
    let blocked = Networks::new(["203.0.113.0/24", "192.0.2.66"]);
    let layer = RateLimitLayer::new(clients.clone(), once())
        .skip(clients.within(skipped))
        .block(clients.within(blocked));
    for (address, expected) in [
        ("198.51.100.1", [200, 429, 429]),
        ("192.0.2.1", [200, 200, 200]),
        ("::ffff:192.0.2.2", [200, 200, 200]),
        ("2001:db8::7", [200, 200, 200]),
        ("203.0.113.9", [403, 403, 403]),
        ("::ffff:203.0.113.10", [403, 403, 403]),
        // In both lists: `block` was added later, so it is asked first.
        ("192.0.2.66", [403, 403, 403]),
    ] {
        assert_eq!(statuses!(layer, address), expected, "{address}");
    }
    let counts = layer.handle().counts();
    assert_eq!((counts.skipped, counts.rejected), (9, 9));
}

/// Shows promise 193.
#[tokio::test]
async fn keys_can_be_listed() {
    let user = |request: &Request<String>| request.body().clone();
    let blocked = Watched::new(HashSet::from(["mallory".to_owned()]));
    let list = blocked.clone();
    let layer = RateLimitLayer::new(user, once())
        .block(move |request: &Request<String>| list.get().contains(&user(request)));
    let service = layer.layer(service_fn(ok));
    let status = async |name: &str| {
        let named = request("192.0.2.1").map(|_| name.to_owned());
        service.clone().oneshot(named).await.unwrap().status()
    };
    assert_eq!(status("mallory").await, StatusCode::FORBIDDEN);
    assert_eq!(status("ann").await, StatusCode::OK);
    blocked.set(["ann".to_owned()].into());
    assert_eq!(status("mallory").await, StatusCode::OK);
    assert_eq!(status("ann").await, StatusCode::FORBIDDEN);
}

/// If the layer did not ask the list, every request would pass, and no error would say so.
///
/// Shows promises 52, 193.
#[tokio::test]
async fn a_request_without_an_address_is_rejected_by_a_list_unless_it_may_pass() {
    let all = || Networks::new(["0.0.0.0/1", "128.0.0.0/1"]);
    let within = ClientIp::peer().within(all());
    let nameless = Request::new(String::new());
    let blocks = RateLimitLayer::new(Global, once()).block(within.clone());
    let blocked = blocks.layer(service_fn(ok)).oneshot(nameless.clone());
    assert_eq!(blocked.await.unwrap().status(), 500);
    assert!(lists!(within.clone(), request("203.0.113.9")).unwrap());
    let rejection = lists!(within, nameless).unwrap_err();
    let rejection = rejection.downcast_ref::<RateLimited>().unwrap();
    assert_eq!(rejection.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let is_right = rejection.to_string().contains("with_connect_info");
    assert!(is_right, "{rejection}");
    for missing in [Missing::Shared, Missing::Skip] {
        let within = ClientIp::peer().if_missing(missing).within(all());
        assert!(!lists!(within, nameless).unwrap(), "{missing:?}");
    }
}

/// A list is replaced as a whole: no request sees an empty one, or half of one.
///
/// Shows promise 193.
#[test]
fn a_client_in_the_old_and_in_the_new_list_is_listed_at_every_moment() {
    let lists = [
        ["192.0.2.0/24", "203.0.113.0/24"],
        ["192.0.2.0/24", "2001:db8::/32"],
    ];
    let watched = Watched::new(Networks::new(lists[0]));
    let listed = ClientIp::peer().within(&watched);
    let client = request("192.0.2.1");
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(lists!(listed.clone(), client).unwrap(), "after {reads:?}");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        for (n, list) in lists.iter().cycle().enumerate() {
            let is_enough = n >= 20_000 && reads.load(Ordering::Relaxed) > 1_000;
            if is_enough || reader.is_finished() {
                break;
            }
            watched.set(Networks::new(list));
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}
