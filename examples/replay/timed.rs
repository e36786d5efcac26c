//! A connection to a Redis server with a clock that the replay sets.
//!
//! A proxy between the limiter and the server puts `clock.lua` before each script, which replaces the
//! server's clock. The limiter itself is unchanged.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, Value, aio::MultiplexedConnection};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream, DuplexStream};

const CLOCK: &str = include_str!("clock.lua");

/// The replay's side of the connection.
pub(crate) struct Timed {
    shared: Arc<Shared>,
    server: MultiplexedConnection,
}

#[derive(Default)]
struct Shared {
    /// In microseconds.
    now: AtomicU64,
    is_dry: AtomicBool,
    keys: Mutex<BTreeSet<Vec<u8>>>,
}

/// The proxy between the limiter and the server.
struct Proxy {
    limiter: BufStream<DuplexStream>,
    server: MultiplexedConnection,
    shared: Arc<Shared>,
    /// The hash of each script with the clock, by the hash of the script alone.
    scripts: HashMap<Vec<u8>, Vec<u8>>,
}

impl Timed {
    /// Connects to the server; also returns the connection for the limiter.
    pub(crate) async fn connect(url: &str) -> Result<(Self, MultiplexedConnection), String> {
        // The message omits the URL, which may hold a password.
        let message = |error: redis::RedisError| format!("--redis: {error}");
        let client = redis::Client::open(url).map_err(message)?;
        // A busy machine may take long.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let server = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(message)?;
        let (ours, limiters) = tokio::io::duplex(1 << 16);
        let shared = Arc::new(Shared::default());
        let proxy = Proxy {
            limiter: BufStream::new(ours),
            server: server.clone(),
            shared: Arc::clone(&shared),
            scripts: HashMap::new(),
        };
        tokio::spawn(proxy.run());
        let plain = RedisConnectionInfo::default();
        let (connection, driver) = MultiplexedConnection::new_with_config(&plain, limiters, config)
            .await
            .map_err(message)?;
        tokio::spawn(driver);
        Ok((Self { shared, server }, connection))
    }

    /// Sets the time, in microseconds.
    pub(crate) fn set(&self, now: u64) {
        self.shared.now.store(now, Ordering::Relaxed);
    }

    /// Sets whether scripts skip their writes.
    pub(crate) fn is_dry(&self, is_dry: bool) {
        self.shared.is_dry.store(is_dry, Ordering::Relaxed);
    }

    /// Whether every key has expired by `time`; if so, deletes them.
    pub(crate) async fn has_forgotten_all(&mut self, time: u64) -> redis::RedisResult<bool> {
        let keys: Vec<_> = self.shared.keys().iter().cloned().collect();
        for key in keys {
            let mut get = redis::cmd("GET");
            get.arg(expiry_key(key));
            let due: Option<u64> = get.query_async(&mut self.server).await?;
            if due.is_some_and(|due| due > time) {
                return Ok(false);
            }
        }
        self.forget_all().await?;
        Ok(true)
    }

    /// Deletes all keys of the replay.
    pub(crate) async fn forget_all(&mut self) -> redis::RedisResult<()> {
        let keys = {
            let mut keys = self.shared.keys();
            std::mem::take(&mut *keys)
        };
        for key in keys {
            let mut delete = redis::cmd("DEL");
            delete.arg(&key).arg(expiry_key(key.clone()));
            self.server.send_packed_command(&delete).await?;
        }
        Ok(())
    }
}

impl Shared {
    fn keys(&self) -> std::sync::MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    async fn run(mut self) {
        // Ends when the limiter is dropped.
        while let Ok(command) = self.command().await {
            let reply = self.reply(&command).await;
            let written = self.limiter.write_all(&reply).await;
            if written.is_err() || self.limiter.flush().await.is_err() {
                return;
            }
        }
    }

    /// Reads the next command.
    async fn command(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let count = self.length().await?;
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let mut word = vec![0; self.length().await? + 2];
            self.limiter.read_exact(&mut word).await?;
            word.truncate(word.len() - 2);
            words.push(word);
        }
        Ok(words)
    }

    /// The number in a line such as `*3` or `$12`.
    async fn length(&mut self) -> io::Result<usize> {
        let mut line = String::new();
        if self.limiter.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let number = line.get(1..).and_then(|number| number.trim().parse().ok());
        number.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    async fn reply(&mut self, command: &[Vec<u8>]) -> Vec<u8> {
        let (name, words) = command
            .split_first()
            .map_or((&[][..], &[][..]), |(name, words)| (name.as_slice(), words));
        let result = match (name, words) {
            (b"EVALSHA", [script, words @ ..]) => match self.scripts.get(script) {
                Some(script) => self.decide(script.clone(), words).await,
                None => return b"-NOSCRIPT No matching script\r\n".to_vec(),
            },
            (b"EVAL", [script, words @ ..]) => match self.learn(script).await {
                Ok(script) => self.decide(script, words).await,
                Err(error) => Err(error),
            },
            // Only the replay changes its quota.
            (b"GET", _) => Ok(Value::Nil),
            _ => Ok(Value::Okay),
        };
        let mut reply = Vec::new();
        match result {
            Ok(value) => encode(&value, &mut reply),
            Err(error) => {
                let text = error.to_string().replace(['\r', '\n'], " ");
                reply.extend(format!("-ERR {text}\r\n").into_bytes());
            }
        }
        reply
    }

    /// Loads a script, alone and with the clock.
    async fn learn(&mut self, script: &[u8]) -> redis::RedisResult<Vec<u8>> {
        let load = async |server: &mut MultiplexedConnection, text: &[u8]| {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(text);
            load.query_async::<Vec<u8>>(server).await
        };
        let known = load(&mut self.server, script).await?;
        let with_clock = [CLOCK.as_bytes(), script].concat();
        let with_clock = load(&mut self.server, &with_clock).await?;
        self.scripts.insert(known, with_clock.clone());
        Ok(with_clock)
    }

    async fn decide(&mut self, script: Vec<u8>, words: &[Vec<u8>]) -> redis::RedisResult<Value> {
        let count = words.first().map(|count| String::from_utf8_lossy(count));
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        {
            let mut keys = self.shared.keys();
            // After the keys: the parameters, then the headers. See `lua/common.lua`.
            let headers = words.iter().skip(count + 2);
            let headers = headers.take_while(|word| word.starts_with(b"~"));
            for key in words.iter().skip(1).take(count) {
                if !keys.contains(key) {
                    keys.insert(key.clone());
                }
                // The state is here if another configuration is newer, beside the list of those.
                keys.insert([&**key, b"~"].concat());
                keys.extend(headers.clone().map(|header| [&**key, header].concat()));
            }
        }
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(script);
        for word in words {
            call.arg(word);
        }
        call.arg(u8::from(self.shared.is_dry.load(Ordering::Relaxed)));
        call.arg(self.shared.now.load(Ordering::Relaxed));
        let reply = self.server.send_packed_command(&call).await;
        reply.and_then(Value::extract_error)
    }
}

/// The name under which the expiry time of a key is stored.
fn expiry_key(mut key: Vec<u8>) -> Vec<u8> {
    key.push(b'!');
    key
}

fn encode(value: &Value, reply: &mut Vec<u8>) {
    match value {
        Value::Nil => reply.extend(b"$-1\r\n"),
        Value::Int(number) => reply.extend(format!(":{number}\r\n").into_bytes()),
        Value::BulkString(text) => {
            reply.extend(format!("${}\r\n", text.len()).into_bytes());
            reply.extend(text);
            reply.extend(b"\r\n");
        }
        Value::Array(values) => {
            reply.extend(format!("*{}\r\n", values.len()).into_bytes());
            for value in values {
                encode(value, reply);
            }
        }
        Value::SimpleString(text) => reply.extend(format!("+{text}\r\n").into_bytes()),
        // The limiter's scripts return nothing else.
        _ => reply.extend(b"+OK\r\n"),
    }
}
