//! A proxy that knows where replies end, and what it can do to them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_throttle::store::redis::{Redis, RedisLimiter};
use tower_throttle::{FixedWindow, KeyedLimiter, Quota};

use crate::redis_server::RedisServer;

/// What happens to the reply that is to be harmed.
#[derive(Clone, Copy, Debug)]
enum Harm {
    /// It never arrives; the connection stays.
    Swallow,
    /// The connection is cut in its place.
    Cut,
    /// The connection is cut in the middle of it.
    CutInside,
}

/// Stands between a client and a server on an address of its own.
struct Proxy {
    address: SocketAddr,
    /// Replies of scripts until the one to harm; below zero it has been.
    until: Arc<AtomicI64>,
    harmed: Arc<AtomicU64>,
}

impl Proxy {
    async fn before(server: &RedisServer, harm: Harm, split: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = Self {
            address: listener.local_addr().expect("its address"),
            until: Arc::new(AtomicI64::new(i64::MAX)),
            harmed: Arc::default(),
        };
        let (until, harmed, port) = (
            Arc::clone(&proxy.until),
            Arc::clone(&proxy.harmed),
            server.port(),
        );
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (until, harmed) = (Arc::clone(&until), Arc::clone(&harmed));
                tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", port))
                        .await
                        .expect("a server");
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_server, mut to_server) = server.into_split();
                    let forth = async { tokio::io::copy(&mut from_client, &mut to_server).await };
                    let back = async {
                        let mut bytes = Vec::new();
                        loop {
                            while let Some(end) = end_of_reply(&bytes) {
                                let reply: Vec<u8> = bytes.drain(..end).collect();
                                let is_script = reply[0] == b'*';
                                if is_script && until.fetch_sub(1, Ordering::Relaxed) == 0 {
                                    harmed.fetch_add(1, Ordering::Relaxed);
                                    match harm {
                                        Harm::Swallow => continue,
                                        Harm::Cut => return,
                                        Harm::CutInside => {
                                            let _ = to_client.write_all(&reply[..end / 2]).await;
                                            return;
                                        }
                                    }
                                }
                                let step = if split { 1 } else { reply.len() };
                                for piece in reply.chunks(step) {
                                    if to_client.write_all(piece).await.is_err() {
                                        return;
                                    }
                                    tokio::task::yield_now().await;
                                }
                            }
                            if from_server.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                                return;
                            }
                        }
                    };
                    // Whichever ends, both ways are closed.
                    tokio::pin!(forth, back);
                    tokio::select! { _ = &mut forth => {}, () = &mut back => {} }
                });
            }
        });
        proxy
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

/// Where the first reply ends, if all of it is there.
fn end_of_reply(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || {
        std::str::from_utf8(&bytes[1..line - 2])
            .ok()?
            .parse::<i64>()
            .ok()
    };
    match bytes[0] {
        b'$' => match usize::try_from(number()?) {
            Ok(length) => Some(line + length + 2).filter(|end| *end <= bytes.len()),
            Err(_) => Some(line),
        },
        b'*' => {
            let mut end = line;
            for _ in 0..number()? {
                end += end_of_reply(&bytes[end..])?;
            }
            Some(end)
        }
        _ => Some(line),
    }
}

fn used(server: &RedisServer, key: &str) -> u64 {
    let script = "local v = redis.call('GET', KEYS[1]) return v and string.format('%.0f', (struct.unpack('<d', v, #v - 7)))";
    let value: Option<String> = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg(format!("{{throttle:proxy:{key}}}"))
        .query(&mut server.connection())
        .expect("a value");
    value.map_or(0, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn a_lost_reply_is_an_error_and_its_call_is_counted_once() {
    let server = RedisServer::start();
    for harm in [Harm::Swallow, Harm::Cut, Harm::CutInside] {
        let proxy = Proxy::before(&server, harm, false).await;
        let redis = Redis::open(&proxy.url()).expect("a url");
        let redis = redis.deadline(Duration::from_millis(50));
        let limiter = redis.limiter("proxy", FixedWindow::new(Quota::per_day(1_000)));
        for lost in 0..8 {
            let key = format!("{harm:?}{lost}");
            let before = proxy.harmed.load(Ordering::Relaxed);
            proxy.until.store(lost, Ordering::Relaxed);
            let (mut admitted, mut failed) = (0, 0);
            for _ in 0..8 {
                match limiter.decide(key.as_str(), 1).await {
                    Ok(decision) => admitted += u64::from(decision.is_admitted()),
                    Err(error) => {
                        assert!(error.is_transient(), "{error}");
                        failed += 1;
                    }
                }
            }
            let harmed = proxy.harmed.load(Ordering::Relaxed) - before;
            assert_eq!(harmed, 1, "the fault happened");
            let used = used(&server, &key);
            assert!(admitted <= used && used <= 8, "{key}: {admitted}, {used}");
            if matches!(harm, Harm::Swallow) {
                // The stream is out of step until the connection is replaced.
                assert!(failed >= 1, "{key}");
                recovers(&limiter).await;
            } else {
                assert_eq!((admitted, failed), (7, 1), "{key}");
                assert_eq!(used, 8, "{key}: each call once, never sent again");
            }
        }
    }
}

/// Calls until one is answered, for at most a second.
async fn recovers(limiter: &RedisLimiter<FixedWindow>) {
    let begun = tokio::time::Instant::now();
    while let Err(error) = limiter.decide("again", 1).await {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(1), "no recovery: {error}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn replies_that_arrive_byte_by_byte_are_replies() {
    let server = RedisServer::start();
    let proxy = Proxy::before(&server, Harm::Swallow, true).await;
    let redis = Redis::open(&proxy.url()).expect("a url");
    let redis = redis.deadline(Duration::from_secs(10));
    let limiter = redis.limiter("proxy", FixedWindow::new(Quota::per_day(1_000)));
    let calls: Vec<_> = (0..200).map(|_| limiter.decide("bytes", 1)).collect();
    for call in calls {
        assert!(call.await.expect("a decision").is_admitted());
    }
    assert_eq!(used(&server, "bytes"), 200);
}
