//! A library over tower without a web framework: a key extractor, an algorithm, and a layer made of them.

use http::Request;
use tower_throttle::algorithm::{Algorithm, Cost, GiveBack};
use tower_throttle::key::{Extracted, Key, KeyExtractor, Rejection};
use tower_throttle::{ConfigError, Decision, Quota, RateLimitLayer, Verdict, clock::Tick};

/// The tenant in the host name: `acme.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tenant(String);

impl Key for Tenant {}

/// Finds the tenant of a request, whatever its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantOfHost;

impl<B> KeyExtractor<Request<B>> for TenantOfHost {
    type Key = Tenant;

    fn extract(&self, request: &Request<B>) -> Extracted<Tenant> {
        let host = request.headers().get(http::header::HOST);
        let host = host.and_then(|host| host.to_str().ok());
        match host.and_then(|host| host.split_once('.')) {
            Some(("status", _)) => Extracted::Skip,
            Some((tenant, _)) => Extracted::Key(Tenant(tenant.to_ascii_lowercase())),
            None => Extracted::Reject(Rejection::new(
                http::StatusCode::MISDIRECTED_REQUEST,
                "the host names no tenant",
            )),
        }
    }
}

/// So many requests, and then none until the tenant has been quiet for the period.
#[derive(Clone, Debug)]
pub(crate) struct UntilQuiet(Quota);

/// What was used since the last quiet period, and when it was used last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    units: u64,
    last: Tick,
}

impl UntilQuiet {
    fn forget(&self, used: &mut Used, now: Tick) {
        if self.forgettable_at(used) <= now {
            used.units = 0;
        }
    }
}

impl Algorithm for UntilQuiet {
    type State = Used;

    fn quota(&self) -> Quota {
        self.0
    }

    fn fresh(&self, now: Tick) -> Used {
        Used {
            units: 0,
            last: now,
        }
    }

    fn decide(&self, used: &mut Used, now: Tick, cost: u64) -> Decision {
        self.forget(used, now);
        let limit = self.0.limit();
        let quiet = self.forgettable_at(used).as_nanos();
        let wait = quiet.saturating_sub(now.as_nanos());
        let left = limit.saturating_sub(used.units);
        if cost > left {
            let retry = (cost <= limit).then_some(wait);
            return Decision::new(Verdict::Deny, limit, left, retry, wait);
        }
        if cost > 0 {
            *used = Used {
                units: used.units + cost,
                last: used.last.max(now),
            };
        }
        let period = u64::try_from(self.0.period().as_nanos()).unwrap_or(u64::MAX);
        let reset = if used.units > 0 { period } else { 0 };
        Decision::new(Verdict::Admit, limit, left - cost, None, reset)
    }

    fn refund(&self, used: &mut Used, now: Tick, cost: Cost, _: GiveBack) {
        self.forget(used, now);
        used.units = used.units.saturating_sub(cost.units);
    }

    fn charge(&self, used: &mut Used, now: Tick, cost: u64) -> std::time::Duration {
        self.forget(used, now);
        *used = Used {
            units: used.units.saturating_add(cost),
            last: used.last.max(now),
        };
        std::time::Duration::ZERO
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self(quota))
    }

    fn forgettable_at(&self, used: &Used) -> Tick {
        used.last.plus(self.0.period())
    }
}

/// What users of the library add to their service.
pub(crate) fn per_tenant(quota: Quota) -> RateLimitLayer<TenantOfHost, Local<UntilQuiet>> {
    RateLimitLayer::new(TenantOfHost, UntilQuiet(quota)).name("tenant")
}

// ---- What its users see.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Limiter, Local, ManualClock};

type Body = Full<Bytes>;

async fn hello<B>(_: Request<B>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new("hello".into()))
}

/// Serves with hyper alone.
async fn serve(quota: Quota) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = per_tenant(quota).layer(service_fn(hello::<Incoming>));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let service = TowerToHyperService::new(service.clone());
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn get(address: SocketAddr, host: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/1.1");
    tokio::spawn(connection);
    let request = Request::get("/").header("host", host).body(Body::default());
    let response = sender.send_request(request.expect("a request")).await;
    let response = response.expect("a response");
    let error = response.headers().get("x-ratelimit-error");
    let error = error.map(|error| error.to_str().expect("ASCII").to_owned());
    let status = response.status().as_u16();
    let _ = response.into_body().collect().await;
    (status, error.unwrap_or_default())
}

#[tokio::test]
async fn tenants_are_counted_by_their_host_names() {
    let address = serve(Quota::per_hour(2)).await;
    for tenant in ["acme.example.com", "other.example.com"] {
        for status in [200, 200, 429] {
            assert_eq!(get(address, tenant).await.0, status, "{tenant}");
        }
    }
    assert_eq!(get(address, "ACME.example.com").await.0, 429);
    for _ in 0..5 {
        assert_eq!(get(address, "status.example.com").await.0, 200);
    }
    let rejected = get(address, "localhost").await;
    assert_eq!(rejected, (421, "the host names no tenant".to_owned()));
}

/// The clock of the limit moves only when the test moves it.
#[tokio::test]
async fn a_tenant_passes_again_when_it_was_quiet_for_the_period() {
    let clock = ManualClock::new();
    let table = Local::new(UntilQuiet(Quota::per_minute(2))).with_clock(clock.clone());
    let service = RateLimitLayer::new(TenantOfHost, table).layer(service_fn(hello::<Body>));
    let status = async || {
        let request = Request::get("/").header("host", "acme.example.com");
        let request = request.body(Body::default()).expect("a request");
        let Ok(response) = service.clone().oneshot(request).await;
        response.status().as_u16()
    };
    assert_eq!(
        [status().await, status().await, status().await],
        [200, 200, 429]
    );
    // A denied request does not prolong the pause.
    clock.advance(Duration::from_secs(59));
    assert_eq!(status().await, 429);
    clock.advance(Duration::from_secs(1));
    assert_eq!(status().await, 200);
    // One request is left. 59 s later the pause has not begun anew until it is taken.
    clock.advance(Duration::from_secs(59));
    assert_eq!([status().await, status().await], [200, 429]);
}

#[test]
fn what_is_given_back_and_charged_changes_what_is_left() {
    let limiter = Limiter::new(UntilQuiet(Quota::per_minute(5))).with_clock(ManualClock::new());
    assert_eq!(limiter.check_n(3).remaining(), 2);
    limiter.refund(1);
    assert_eq!(limiter.check_n(2).remaining(), 1);
    limiter.charge(9);
    let denied = limiter.check();
    assert!(denied.is_denied());
    assert_eq!(denied.retry_after, Some(Duration::from_mins(1)));
    assert_eq!(limiter.check_n(6).retry_after, None);
}
