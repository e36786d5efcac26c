//! Serves the metrics of an app with limits to Prometheus.
//!
//! ```text
//! cargo run --example observe --features metrics                     # prints the metrics of some traffic
//! cargo run --example observe --features metrics -- 127.0.0.1:9898   # serves them, with traffic
//! cargo run --example observe --features metrics,redis -- 127.0.0.1:9898 redis://127.0.0.1:6379
//! ```
//!
//! `docs/observing.md` says what the metrics mean, `docs/grafana.json` is a dashboard of them, and
//! `docs/alerts.yml` has rules for alerts.

mod app;

use std::{env, error::Error, time::Duration};

use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let metrics = app::recorder()?;
    let app = app::app(metrics.clone());
    let (address, redis) = (env::args().nth(1), env::args().nth(2));
    #[cfg(feature = "redis")]
    let app = match redis {
        Some(url) => app::with_redis(app, &tower_throttle::store::redis::Redis::open(&url)?),
        None => app,
    };
    #[cfg(not(feature = "redis"))]
    if redis.is_some() {
        return Err("this build has no Redis support: add --features redis".into());
    }

    let Some(address) = address else {
        for round in 0..3 {
            app::traffic(&app, round).await;
        }
        print!("{}", metrics.render());
        return Ok(());
    };
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    let traffic = app.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        for round in 0.. {
            ticks.tick().await;
            app::traffic(&traffic, round).await;
        }
    });
    axum::serve(app::listen(listener), app).await?;
    Ok(())
}
