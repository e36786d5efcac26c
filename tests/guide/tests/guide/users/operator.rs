//! An operator of a fleet whose limits are in a file: reloads, metrics, and an outage of the store.

use std::{fs, path::Path, sync::mpsc};

use axum::{Router, extract::Request, routing::any};
use tower_throttle::algorithm::share_of;
use tower_throttle::policy::{Environment, PolicyFile, PolicyHandle, PolicyLayer, Reloaded};
use tower_throttle::store::{
    Fallback,
    cas::{Cas, Faulty, MemoryStore},
};
use tower_throttle::{ClientIp, Local};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// In production a `Redis`, a `PostgreSql` or a `Cassandra`.
type Store = Faulty<MemoryStore>;

const POLICIES: &str = r#"
version = 1

[[limit]]
name = "search"
limit = "token_bucket 2/min"
key = "client_ip"
match = { path = "/search" }
headers = "draft-11"

[[limit]]
name = "orders"
limit = "sliding_log 4/h"
key = "header:x-tenant"
missing = 400
match = { path = "/orders" }
store = "strict"
on_store_error = "deny"

[[limit]]
name = "export"
limit = "sliding_log 8/h"
key = "header:x-tenant"
match = { path = "/export" }
store = "shared"
"#;

/// One machine of two: its app, the handle of its limits, and what its reloads report.
struct Machine {
    app: Router,
    limits: PolicyHandle,
    reports: mpsc::Receiver<Result<Reloaded, Error>>,
}

fn machine(store: &Store, path: &Path) -> Result<Machine, Error> {
    let (strict, shared) = (store.clone(), store.clone());
    let environment = Environment::new()
        .client_ip(ClientIp::x_forwarded_for().trusting(["10.0.0.0/8"]))
        .store("strict", move |name, algorithm| {
            Cas::new(strict.clone(), name, algorithm)
        })
        // In an outage each machine admits half of the limit.
        .store("shared", move |name, algorithm| {
            let fleet = Cas::new(shared.clone(), name, algorithm.clone())?;
            let this_machine = Local::new(share_of(&algorithm, 2)?);
            Ok(Fallback::new(fleet, this_machine))
        });
    let file = PolicyFile::from_toml(&fs::read_to_string(path)?)?;
    let layer = PolicyLayer::new(file, environment)?;
    let limits = layer.handle();
    let (sender, reports) = mpsc::channel();
    limits.watch(path, move |report| drop(sender.send(report)))?;

    let app = Router::new()
        .route("/search", any(async || "found"))
        .route("/orders", any(async || "ordered"))
        .route("/export", any(async || "exported"))
        .layer(layer);
    Ok(Machine {
        app,
        limits,
        reports,
    })
}

// ---- What its users see.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use metrics_exporter_prometheus::PrometheusBuilder;
use tower::ServiceExt;
use tower_throttle::{key::PeerAddr, store::cas::Fault};

impl Machine {
    async fn get(&self, path: &str) -> (u16, String) {
        self.get_of("acme", path).await
    }

    async fn get_of(&self, tenant: &str, path: &str) -> (u16, String) {
        let request = Request::get(path)
            .header("x-forwarded-for", "192.0.2.1")
            .header("x-tenant", tenant)
            .extension(PeerAddr(([10, 0, 0, 1], 4711).into()));
        let request = request.body(Body::empty()).expect("a request");
        let Ok(response) = self.app.clone().oneshot(request).await;
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1_000).await.expect("a body");
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn admitted(&self, path: &str) -> usize {
        let mut admitted = 0;
        while self.get(path).await.0 == 200 {
            admitted += 1;
        }
        admitted
    }
}

#[tokio::test]
async fn limits_change_are_counted_and_outlast_an_outage() -> Result<(), Error> {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let folder = std::env::temp_dir().join(format!("users-operator-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let path = folder.join("policies.toml");
    fs::write(&path, POLICIES)?;
    let store = Faulty::new(MemoryStore::new());
    let (a, b) = (machine(&store, &path)?, machine(&store, &path)?);

    // Both machines together admit four orders, and each its own two searches.
    assert_eq!(a.get("/orders").await.0, 200);
    assert_eq!(b.admitted("/orders").await, 3);
    assert_eq!(a.admitted("/orders").await, 0);
    assert_eq!(
        (a.admitted("/search").await, b.admitted("/search").await),
        (2, 2)
    );

    // The file is wrong, and then right.
    fs::write(&path, POLICIES.replace("client_ip", "client_ipp"))?;
    let wrong = a.reports.recv_timeout(Duration::from_secs(10))?;
    let text = wrong.expect_err("a mistake").to_string();
    assert!(text.contains("line 7: limit[0].key"), "{text}");
    fs::write(&path, POLICIES.replace("2/min", "5/min"))?;
    let right = a.reports.recv_timeout(Duration::from_secs(10))??;
    assert_eq!(right.changed, ["search"]);
    // What was used stays used.
    assert_eq!(a.admitted("/search").await, 3);

    // What was counted.
    let counts = a.limits.counts_of("search").expect("in the file");
    assert_eq!((counts.admitted, counts.denied), (5, 2));
    a.limits
        .limit("search")
        .expect("in the file")
        .record_gauges();
    let text = metrics.render();
    let line = r#"tower_throttle_requests_total{limit="search",outcome="denied"} "#;
    assert!(text.contains(line), "{text}");
    let line = r#"tower_throttle_largest_use_percent{limit="search"} 100"#;
    assert!(text.contains(line), "{text}");

    // Two of eight exports are used when the store fails: half of eight for each machine then.
    assert_eq!(
        (a.get("/export").await.0, b.get("/export").await.0),
        (200, 200)
    );
    store.plan([Fault::LostRequest; 100]);
    // A tenant that was denied is denied, and no other one gets an order.
    assert_eq!(a.get("/orders").await.0, 429);
    assert_eq!(a.get_of("corp", "/orders").await.0, 503);
    assert_eq!(
        (a.admitted("/export").await, b.admitted("/export").await),
        (4, 4)
    );
    let text = metrics.render();
    let line = r#"tower_throttle_switches_total{of="fallback",to="on"} "#;
    assert!(text.contains(line), "{text}");
    // The store is back. A probe finds that, by itself.
    store.plan([]);
    while a.get_of("corp", "/orders").await.0 != 200 {
        tokio::task::yield_now().await;
    }
    // Six of eight exports are left, of which `a` has taken one to see that.
    while a.get("/export").await.0 != 200 {
        tokio::task::yield_now().await;
    }
    while b.get("/export").await.0 != 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(b.admitted("/export").await, 4);
    fs::remove_dir_all(&folder)?;
    Ok(())
}
