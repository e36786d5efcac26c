//! The queries of the dashboard and the rules of the alerts, in a real Prometheus that reads the
//! metrics of the app, while its Redis is up and after it is gone.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod app;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::Router;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::interval,
};
use tower_throttle::store::redis::Redis;

use test_support::redis_server::RedisServer;

/// Prometheus reads the metrics twice per second.
const CONFIGURATION: &str = "
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [RULES]
scrape_configs:
- job_name: app
  static_configs: [{targets: ['TARGET']}]
";

struct Prometheus {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Prometheus {
    /// Starts a server on a free port, which may be taken at once by another program.
    async fn start(target: SocketAddr) -> Self {
        let docs = fs::canonicalize(docs()).unwrap();
        let folder = std::env::temp_dir().join(format!("tower-throttle-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let rules = docs.join("alerts.yml");
        let configuration = CONFIGURATION
            .replace("TARGET", &target.to_string())
            .replace("RULES", rules.to_str().unwrap());
        let file = folder.join("prometheus.yml");
        fs::write(&file, configuration).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .expect("prometheus is installed");
        Self {
            process,
            address,
            folder,
        }
    }

    /// Waits until the server is ready.
    async fn ready(&mut self) {
        let mut ticks = interval(Duration::from_millis(50));
        for _ in 0..400 {
            ticks.tick().await;
            if let Some(status) = self.process.try_wait().unwrap() {
                let log = fs::read_to_string(self.folder.join("log")).unwrap();
                panic!("prometheus ended with {status}:\n{log}");
            }
            if self.get("/-/ready").await.is_some_and(|(ok, _)| ok) {
                return;
            }
        }
        panic!("prometheus is not ready after 20 s");
    }

    /// The status of a response, if it is 200, and the body; `None` without a connection.
    async fn get(&self, path: &str) -> Option<(bool, String)> {
        let mut stream = TcpStream::connect(self.address).await.ok()?;
        // HTTP/1.0: the response is not chunked, and ends with the connection.
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        Some((head.contains(" 200 "), body.to_owned()))
    }

    /// The series that a query returns now; an error if it is invalid.
    async fn query(&self, query: &str) -> Vec<Value> {
        let digit = |value: u8| char::from_digit(value.into(), 16).expect("a hexadecimal digit");
        let encoded = query.bytes();
        let encoded = encoded.flat_map(|byte| ['%', digit(byte >> 4), digit(byte & 15)]);
        let encoded: String = encoded.collect();
        let path = format!("/api/v1/query?query={encoded}");
        let (ok, body) = self.get(&path).await.expect("a response");
        assert!(ok, "{query}\n{body}");
        let response: Value = serde_json::from_str(&body).unwrap();
        let series = response["data"]["result"].as_array().unwrap();
        let is_number = |one: &&Value| one["value"][1] != "NaN";
        series.iter().filter(is_number).cloned().collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The panels of the dashboard and their queries, with the variables filled in.
fn queries() -> Vec<(String, String)> {
    let text = fs::read_to_string(docs().join("grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut queries = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} has no query");
        for target in targets {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "30s");
            let query = query.replace("$limit", ".*");
            assert!(
                !query.contains('$'),
                "{title}: an unknown variable: {query}"
            );
            queries.push((title.to_owned(), query));
        }
    }
    assert!(queries.len() > 10);
    queries
}

/// The app, its address and its store.
async fn serve() -> (Router, SocketAddr, RedisServer) {
    let server = RedisServer::start();
    let redis = Redis::open(&server.url()).unwrap();
    let app = app::with_redis(app::app(app::recorder().unwrap()), &redis);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = app.clone();
    tokio::spawn(async { axum::serve(app::listen(listener), served).await });
    (app, address, server)
}

#[tokio::test]
async fn each_query_of_the_dashboard_returns_data_and_each_alert_has_a_valid_rule() {
    let (app, address, mut server) = serve().await;
    let mut prometheus = Prometheus::start(address).await;
    prometheus.ready().await;

    // An outage leads to errors, an open breaker and the fallback.
    let mut ticks = interval(Duration::from_millis(250));
    let mut missing = queries();
    for round in 0..120 {
        ticks.tick().await;
        if round == 12 {
            server.kill();
        }
        app::traffic(&app, round).await;
        let mut still = Vec::new();
        for (title, query) in missing {
            if prometheus.query(&query).await.is_empty() {
                still.push((title, query));
            }
        }
        missing = still;
        if missing.is_empty() && round > 20 {
            break;
        }
    }
    assert!(missing.is_empty(), "no data: {missing:#?}");

    let alerts = fs::read_to_string(docs().join("alerts.yml")).unwrap();
    let many = alerts.matches("- alert: ").count();
    assert!(many > 4);
    let (ok, rules) = prometheus.get("/api/v1/rules").await.unwrap();
    assert!(ok, "{rules}");
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let groups = rules["data"]["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    assert_eq!(rules.len(), many);
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule:#}");
    }
    // Those of the outage have begun: `for` says how long they must last.
    let begun = |name: &str| {
        let rule = rules.iter().find(|rule| rule["name"] == name);
        rule.is_some_and(|rule| rule["state"] != "inactive")
    };
    for name in [
        "ThrottleBreakerOpen",
        "ThrottleStoreErrors",
        "ThrottleTableFull",
    ] {
        assert!(begun(name), "{name} has not begun");
    }
}
