//! Eight replicas with one limit: a policy file that is reloaded, a fleet over Redis, metrics.

use std::{
    error::Error,
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, routing::get};
use metrics_exporter_prometheus::PrometheusHandle;
use tower_throttle::{
    AnyAlgorithm,
    policy::{Environment, PolicyFile, PolicyHandle, PolicyLayer},
    store::{
        fleet::{Leased, LeasedBuilder},
        redis::Redis,
    },
};

type Limits = Arc<Mutex<Vec<Leased<Redis, AnyAlgorithm>>>>;

struct Replica {
    app: Router,
    policies: PolicyHandle,
    fleet: Limits,
}

impl Replica {
    fn new(
        policies: &Path,
        redis: &Redis,
        metrics: PrometheusHandle,
    ) -> Result<Self, Box<dyn Error>> {
        let fleet = Limits::default();
        let (made, exchanging, exact) = (Arc::clone(&fleet), redis.clone(), redis.clone());
        let environment = Environment::new()
            .store("fleet", move |name, algorithm| {
                // A replica that stalls for a second loses neither its requests nor its units.
                let builder = LeasedBuilder::new(exchanging.clone())
                    .deadline(Duration::from_secs(30))
                    .life(Duration::from_mins(1));
                let limit = builder.build(name, algorithm)?;
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                made.push(limit.clone());
                Ok(limit)
            })
            .store("exact", move |name, algorithm| {
                exact.try_limiter(name, algorithm)
            });
        let file = PolicyFile::from_toml(&fs::read_to_string(policies)?)?;
        let layer = PolicyLayer::new(file, environment)?;
        let policies = layer.handle();
        let app = Router::new()
            .route("/items", get(async || "items"))
            .route("/export", get(async || "exported"))
            .layer(layer)
            .route("/metrics", get(async move || metrics.render()));
        Ok(Self {
            app,
            policies,
            fleet,
        })
    }

    /// Call it after the server has stopped.
    async fn close(&self) -> Result<(), Box<dyn Error>> {
        let limits = self
            .fleet
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for limit in limits {
            limit.close().await?;
        }
        Ok(())
    }
}

// ---- What its users see.

use std::sync::mpsc;

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::{task::JoinSet, time::Instant};

use crate::redis_server::RedisServer;
use crate::support::{Client, serve};

const POLICIES: &str = r#"
version = 1

[[limit]]
name = "items"
limit = "token_bucket 400/d"
key = "header:x-tenant"
match = { path = "/items" }
store = "fleet"
on_store_error = "deny"

[[limit]]
name = "export"
limit = "fixed_window 5/d"
key = "header:x-tenant"
match = { path = "/export" }
store = "exact"
on_store_error = "deny"
"#;

const ANN: Client = Client([127, 0, 0, 1]);

/// A value of a counter, of all replicas: they are in one process here.
fn metric(text: &str, name: &str, limit: &str, outcome: &str) -> u64 {
    let start = format!(r#"{name}{{limit="{limit}",outcome="{outcome}"}} "#);
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start} in\n{text}"))
        .parse()
        .expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_replicas_share_the_limits_of_a_file_that_is_reloaded() {
    let server = RedisServer::start();
    let metrics = PrometheusBuilder::new().install_recorder();
    let metrics = metrics.expect("the first recorder of this process");
    let folder = std::env::temp_dir().join(format!("users-policies-{}", server.port()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("policies.toml");
    fs::write(&path, POLICIES).expect("a file");

    let (mut replicas, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let redis = Redis::open(&server.url()).expect("a URL");
        let redis = redis.deadline(Duration::from_secs(10));
        redis.check().await.expect("a server as it should be");
        let replica = Replica::new(&path, &redis, metrics.clone()).expect("a right file");
        addresses.push(serve(replica.app.clone()).await);
        replicas.push(replica);
    }
    let (sender, reports) = mpsc::channel();
    for replica in &replicas {
        let sender = sender.clone();
        let watched = replica.policies.watch(&path, move |report| {
            let _ = sender.send(report.map(|reloaded| reloaded.changed));
        });
        watched.expect("a thread");
    }

    // The fleet: never above the limit, and nearly all of it. What one replica does not use, another one gets in the
    // next interval.
    let (mut admitted, mut sent) = (0, 0);
    let begun = Instant::now();
    while admitted < 380 {
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "{admitted} of 400"
        );
        let mut rounds = JoinSet::new();
        for address in addresses.clone() {
            rounds.spawn(async move {
                ANN.statuses(address, "GET /items", "x-tenant: acme\r\n", 60)
                    .await
            });
        }
        let statuses: Vec<_> = rounds.join_all().await.into_iter().flatten().collect();
        assert!(statuses.iter().all(|status| [200, 429].contains(status)));
        sent += statuses.len() as u64;
        admitted += statuses.iter().filter(|status| **status == 200).count() as u64;
        // One comes back every 216 s.
        assert!(admitted <= 401, "{admitted} of 400");
    }

    // The exact limit, and its reload: what was used stays used.
    let export = async |requests: usize| {
        let mut admitted = 0;
        for n in 0..requests {
            let address = addresses[n % 8];
            let response = ANN.send(address, "GET /export", "x-tenant: acme\r\n").await;
            admitted += usize::from(response.status == 200);
        }
        admitted
    };
    assert_eq!(export(16).await, 5);
    fs::write(&path, POLICIES.replace("5/d", "7/d")).expect("a file");
    for _ in 0..8 {
        let report = reports.recv_timeout(Duration::from_secs(30));
        let changed = report
            .expect("every replica reloads")
            .expect("a right file");
        assert_eq!(changed, ["export"]);
    }
    assert_eq!(export(16).await, 2);

    // A mistake changes nothing, and each replica says what is wrong.
    fs::write(&path, POLICIES.replace("5/d", "5/dy")).expect("a file");
    for _ in 0..8 {
        let report = reports.recv_timeout(Duration::from_secs(30));
        let problems = report
            .expect("every replica reports")
            .expect_err("a mistake");
        assert!(
            problems.to_string().contains("line 14: limit[1].limit"),
            "{problems}"
        );
    }
    assert_eq!(export(8).await, 0);

    let text = ANN.send(addresses[0], "GET /metrics", "").await.body;
    let requests = "tower_throttle_requests_total";
    let count = |limit: &str, outcome: &str| metric(&text, requests, limit, outcome);
    assert_eq!(count("items", "admitted"), admitted);
    assert_eq!(count("items", "denied"), sent - admitted);
    assert_eq!(count("export", "admitted"), 5 + 2);
    assert_eq!(count("export", "denied"), 11 + 14 + 8);

    for replica in &replicas {
        replica.close().await.expect("a server that responds");
    }
    fs::remove_dir_all(&folder).expect("its folder");
}

/// The same file without the stores: each replica counts for itself, which the checks above would find.
#[tokio::test]
async fn without_a_store_each_replica_admits_the_limit() {
    // Another name, because the other test counts by name.
    let mut local = POLICIES.replace("\"export\"", "\"local\"");
    for line in [
        "store = \"exact\"\n",
        "store = \"fleet\"\n",
        "on_store_error = \"deny\"\n",
    ] {
        local = local.replace(line, "");
    }
    let mut admitted = 0;
    for _ in 0..8 {
        let file = PolicyFile::from_toml(&local).expect("a right file");
        let layer = PolicyLayer::new(file, Environment::new()).expect("a right file");
        let app = Router::new().route("/export", get(async || "exported"));
        let address = serve(app.layer(layer)).await;
        let statuses = ANN
            .statuses(address, "GET /export", "x-tenant: acme\r\n", 8)
            .await;
        admitted += statuses.iter().filter(|status| **status == 200).count();
    }
    assert_eq!(admitted, 8 * 5);
}
