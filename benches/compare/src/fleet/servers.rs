//! The stores of a run, and what they have done.

use std::fs;

use tower_throttle::store::cas::postgres::PostgreSql;
use tower_throttle::store::redis::Redis;

use super::case::Place;
use test_support::postgres_server::PostgresServer;
use test_support::redis_server::RedisServer;

pub(super) struct Servers {
    redis: RedisServer,
    postgres: PostgresServer,
}

/// What a server has used since it was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) commands: f64,
    pub(super) cpu_seconds: f64,
}

impl Servers {
    pub(super) async fn start() -> Self {
        let servers = Self {
            redis: RedisServer::start(),
            postgres: PostgresServer::start(),
        };
        let made = servers.postgres().create_table().await;
        made.expect("a table");
        servers
    }

    pub(super) fn redis(&self) -> Redis {
        Redis::open(&self.redis.url()).expect("a URL")
    }

    /// With one connection.
    pub(super) fn postgres(&self) -> PostgreSql {
        let store = PostgreSql::open(&self.postgres.url());
        store.and_then(|store| store.connections(1)).expect("a URL")
    }

    pub(super) async fn used(&self, place: Place) -> Used {
        match place {
            Place::Redis => self.redis_used(),
            Place::PostgreSql => self.postgres_used().await,
        }
    }

    fn redis_used(&self) -> Used {
        let info: String = redis::cmd("INFO")
            .arg("everything")
            .query(&mut self.redis.connection())
            .expect("statistics");
        let figure = |name: &str| {
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map_or(0.0, |figure| figure.trim().parse().expect("a number"))
        };
        Used {
            commands: figure("total_commands_processed"),
            cpu_seconds: figure("used_cpu_user") + figure("used_cpu_sys"),
        }
    }

    /// The processes of the connections stay as long as the limiters.
    async fn postgres_used(&self) -> Used {
        let figures = "SELECT sum(xact_commit)::bigint, (SELECT array_agg(pid) FROM \
                       pg_stat_activity) FROM pg_stat_database";
        let row = self.postgres.client().await.query_one(figures, &[]).await;
        let row = row.expect("statistics");
        let ticks = row.get::<_, Vec<i32>>(1).into_iter().map(|process| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            // After the name in parentheses: the state, and ten figures before the two of the time.
            let figures = stat.rsplit(')').next().unwrap_or_default();
            let ticks = figures.split_whitespace().skip(11).take(2);
            ticks
                .filter_map(|ticks| ticks.parse::<u64>().ok())
                .sum::<u64>()
        });
        Used {
            commands: row.get::<_, i64>(0) as f64,
            cpu_seconds: ticks.sum::<u64>() as f64 / 100.0,
        }
    }

    /// Bytes of the largest value of a key of a limit, without its name. What is kept per machine is no
    /// value of a key.
    pub(super) async fn largest_value(&self, place: Place, name: &str) -> u64 {
        match place {
            Place::Redis => self.largest_in_redis(name),
            Place::PostgreSql => {
                let largest = "SELECT coalesce(max(length(value)), 0) FROM tower_throttle WHERE \
                               key LIKE '%:' || $1 || ':%' AND key NOT LIKE '%#%'";
                let client = self.postgres.client().await;
                let row = client.query_one(largest, &[&name]).await;
                row.expect("the table").get::<_, i32>(0) as u64
            }
        }
    }

    fn largest_in_redis(&self, name: &str) -> u64 {
        let mut connection = self.redis.connection();
        let pattern = format!("*:{name}:*");
        let all = redis::cmd("KEYS").arg(pattern).query(&mut connection);
        let keys: Vec<String> = all.expect("the keys");
        let bytes = keys.iter().filter(|key| !key.contains('#')).map(|key| {
            let fields = redis::cmd("HGETALL").arg(key).query(&mut connection);
            let fields: Vec<Vec<u8>> = fields.unwrap_or_default();
            let bytes = redis::cmd("STRLEN").arg(key).query(&mut connection);
            // Of another type, as the list of a log, nothing is known.
            bytes.unwrap_or_else(|_| fields.iter().map(|field| field.len() as u64).sum())
        });
        bytes.max().unwrap_or(0)
    }
}
