//! A proxy before a server that harms the replies to statements on their way.
//!
//! It runs on threads of its own, so that it adds no tasks to those of a test.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::SockRef;

/// A fault of the reply to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// It does not arrive. If replies have no ids, no later one of its connection arrives either; the
    /// connection stays open.
    Lost,
    /// The connection is closed instead of it.
    Cut,
    /// The connection is closed in the middle of it.
    CutInside,
    /// The connection is reset instead of it.
    Reset,
    /// It arrives byte by byte.
    Split,
    /// It arrives late, and so do all later replies.
    Delay(Duration),
    /// The statement is executed twice, and the second reply is returned.
    Twice,
}

/// How the bytes of a connection are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    PostgreSql,
    Cassandra,
    /// The statements are calls of scripts.
    Redis,
    /// They are not, as those of TLS or of a replica. What is read at once from the server is harmed as
    /// a reply.
    Bytes,
}

/// A proxy before a server, at an address of its own.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    protocol: Protocol,
    /// The port of the server to which new connections lead.
    target: Mutex<u16>,
    plan: Mutex<Plan>,
    harmed: AtomicU64,
    refusals: Mutex<Refusals>,
    /// Requests are read and dropped, and so are all later ones of their connections.
    is_silent: AtomicBool,
    /// The delay of every reply, also of those to no statement.
    delay: Mutex<Duration>,
    /// The statements since [`Proxy::records`].
    recorded: Mutex<Option<Vec<Vec<u8>>>>,
    open: Mutex<Vec<Weak<Connection>>>,
    is_over: AtomicBool,
}

/// Which replies to statements are harmed.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    harm: Option<Harm>,
    /// One in so many.
    every: u64,
    /// How many unharmed replies come before the next one.
    before: u64,
}

/// Which statements do not reach a server of Redis.
#[derive(Clone, Debug, Default)]
struct Refusals {
    /// The reply instead.
    reply: &'static str,
    left: u64,
    count: u64,
}

impl Proxy {
    pub fn before(protocol: Protocol, target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            protocol,
            target: Mutex::new(target),
            plan: Mutex::default(),
            harmed: AtomicU64::new(0),
            refusals: Mutex::default(),
            is_silent: AtomicBool::new(false),
            delay: Mutex::default(),
            recorded: Mutex::default(),
            open: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let accepts = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepts.is_over.load(Ordering::Relaxed) {
                    return;
                }
                Connection::open(&accepts, client);
            }
        });
        Self { address, shared }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL of a server of Redis.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Harms the replies to one in `every` statements.
    pub fn harms_every(&self, harm: Harm, every: u64) {
        *lock(&self.shared.plan) = Plan {
            harm: Some(harm),
            every,
            before: every - 1,
        };
    }

    pub fn harms_none(&self) {
        *lock(&self.shared.plan) = Plan::default();
    }

    /// How many statements were harmed.
    pub fn harmed(&self) -> u64 {
        self.shared.harmed.load(Ordering::Relaxed)
    }

    /// Replies to so many statements with an error of Redis, instead of the server.
    pub fn refuses(&self, reply: &'static str, left: u64) {
        let count = 0;
        *lock(&self.shared.refusals) = Refusals { reply, left, count };
    }

    /// How many statements it refused.
    pub fn refused(&self) -> u64 {
        lock(&self.shared.refusals).count
    }

    /// Sets whether requests are read and dropped. A connection that has lost one loses all later ones.
    pub fn is_silent(&self, silent: bool) {
        self.shared.is_silent.store(silent, Ordering::Relaxed);
    }

    /// New connections lead to the server at another port; existing ones stay.
    pub fn leads_to(&self, port: u16) {
        *lock(&self.shared.target) = port;
    }

    /// Cuts all connections. Returns how many there were.
    pub fn cuts_all(&self) -> u64 {
        let open = std::mem::take(&mut *lock(&self.shared.open));
        let open = open.iter().filter_map(Weak::upgrade);
        open.filter(|connection| connection.end()).count() as u64
    }

    /// Keeps the requests with statements from now on.
    pub fn records(&self) {
        *lock(&self.shared.recorded) = Some(Vec::new());
    }

    /// The requests with statements since the last call, or since [`records`](Self::records).
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        let mut recorded = lock(&self.shared.recorded);
        recorded.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Every reply arrives so late.
    pub fn delays_all(&self, delay: Duration) {
        *lock(&self.shared.delay) = delay;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.cuts_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn next_harm(&self) -> Option<Harm> {
        let mut plan = lock(&self.plan);
        let harm = plan.harm?;
        if plan.before > 0 {
            plan.before -= 1;
            return None;
        }
        plan.before = plan.every - 1;
        self.harmed.fetch_add(1, Ordering::Relaxed);
        Some(harm)
    }

    fn next_refusal(&self) -> Option<&'static str> {
        let mut refusals = lock(&self.refusals);
        refusals.left = refusals.left.checked_sub(1)?;
        refusals.count += 1;
        Some(refusals.reply)
    }
}

/// A connection of a client, with a thread per direction.
struct Connection {
    shared: Arc<Shared>,
    client: TcpStream,
    server: TcpStream,
    /// Requests without a reply, in order.
    asked: Mutex<Vec<Asked>>,
    /// From now on the server sends without being asked.
    is_stream: AtomicBool,
    is_over: AtomicBool,
}

/// A request without a reply yet.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// What its reply repeats; zero if replies come in order.
    id: u16,
    harm: Option<Harm>,
    /// How many replies come before the one that is returned.
    dropped: u32,
    /// It did not reach the server; this is its reply.
    refusal: Option<&'static str>,
}

impl Connection {
    fn open(shared: &Arc<Shared>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", *lock(&shared.target))) else {
            return;
        };
        for end in [&client, &server] {
            let _ = end.set_nodelay(true);
            // So that both threads leave the sockets when one ends the connection.
            let _ = end.set_read_timeout(Some(Duration::from_millis(20)));
        }
        let connection = Arc::new(Self {
            shared: Arc::clone(shared),
            client,
            server,
            asked: Mutex::default(),
            is_stream: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        lock(&shared.open).push(Arc::downgrade(&connection));
        let back = Arc::clone(&connection);
        thread::spawn(move || {
            connection.forward();
            connection.end();
        });
        thread::spawn(move || {
            back.give_back();
            back.end();
        });
    }

    /// Returns whether it was open.
    fn end(&self) -> bool {
        let was_open = !self.is_over.swap(true, Ordering::Relaxed);
        if was_open {
            let _ = self.client.shutdown(Shutdown::Both);
            let _ = self.server.shutdown(Shutdown::Both);
        }
        was_open
    }

    /// Resets the connection, when both threads have left its socket.
    fn reset(&self) {
        let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The next bytes, or `None` at the end.
    fn read(&self, mut from: &TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
        let mut more = [0; 8 * 1024];
        loop {
            let is_over = &[&self.is_over, &self.shared.is_over];
            if is_over.iter().any(|over| over.load(Ordering::Relaxed)) {
                return None;
            }
            match from.read(&mut more) {
                Ok(0) => return None,
                Ok(count) => {
                    bytes.extend_from_slice(&more[..count]);
                    return Some(());
                }
                Err(error) if is_timeout(error.kind()) => {}
                Err(_) => return None,
            }
        }
    }

    fn protocol(&self) -> Protocol {
        if self.is_stream.load(Ordering::Relaxed) {
            Protocol::Bytes
        } else {
            self.shared.protocol
        }
    }

    fn forward(&self) {
        let mut bytes = Vec::new();
        let mut is_first = true;
        // No later request arrives either: a connection that loses bytes in the middle is no connection.
        let mut is_silent = false;
        while self.read(&self.client, &mut bytes).is_some() {
            while let Some(request) = self.protocol().request(&bytes, is_first) {
                is_first = false;
                let text: Vec<u8> = bytes.drain(..request.end).collect();
                is_silent |= self.shared.is_silent.load(Ordering::Relaxed);
                if !is_silent && !self.send(&request, &text) {
                    return;
                }
            }
        }
    }

    /// Sends a request to the server. Returns false if the connection has to end.
    fn send(&self, request: &Request, text: &[u8]) -> bool {
        let mut asked = Asked {
            id: request.id,
            ..Asked::default()
        };
        if request.is_statement {
            if let Some(recorded) = &mut *lock(&self.shared.recorded) {
                recorded.push(text.to_vec());
            }
            asked.refusal = self.shared.next_refusal();
            if asked.refusal.is_none() {
                asked.harm = self.shared.next_harm();
            }
        }
        self.is_stream
            .fetch_or(request.begins_stream, Ordering::Relaxed);
        let times = 1 + usize::from(asked.harm == Some(Harm::Twice));
        asked.dropped = u32::from(times > 1);
        if request.has_reply {
            lock(&self.asked).push(asked);
        }
        if asked.refusal.is_some() {
            self.answer_refused();
            return true;
        }
        (0..times).all(|_| (&self.server).write_all(text).is_ok())
    }

    fn give_back(&self) {
        let mut bytes = Vec::new();
        let mut loses_all = false;
        while self.read(&self.server, &mut bytes).is_some() {
            while let Some((end, id)) = self.protocol().reply(&bytes) {
                let reply: Vec<u8> = bytes.drain(..end).collect();
                let asked = self.asked_for(id);
                let harm = match asked {
                    Some(Asked { dropped: 1.., .. }) => continue,
                    Some(asked) => asked.harm,
                    None if self.shared.protocol == Protocol::Bytes => self.shared.next_harm(),
                    // An event, or what comes before the end of a reply.
                    None => None,
                };
                let late = *lock(&self.shared.delay);
                if !late.is_zero() {
                    delay(late);
                }
                let is_lost = harm == Some(Harm::Lost);
                loses_all |= is_lost && self.shared.protocol != Protocol::Cassandra;
                if !is_lost && !loses_all && !self.pass(&reply, harm) {
                    return;
                }
                if asked.is_some() {
                    self.replied(id);
                }
            }
        }
        // The last words of a server that refuses a connection.
        if !loses_all {
            self.pass(&bytes, None);
        }
    }

    /// The request to which a reply belongs.
    fn asked_for(&self, id: u16) -> Option<Asked> {
        let mut asked = lock(&self.asked);
        let asked = asked.iter_mut().find(|asked| asked.id == id)?;
        let found = *asked;
        asked.dropped = asked.dropped.saturating_sub(1);
        Some(found)
    }

    /// Forgets the request to which a reply was forwarded.
    fn replied(&self, id: u16) {
        let mut asked = lock(&self.asked);
        if let Some(at) = asked.iter().position(|asked| asked.id == id) {
            asked.remove(at);
        }
        drop(asked);
        self.answer_refused();
    }

    /// Writes the replies to refused requests whose turn it is.
    fn answer_refused(&self) {
        let mut asked = lock(&self.asked);
        while let Some(reply) = asked.first().and_then(|asked| asked.refusal) {
            let _ = write!(&self.client, "-{reply}\r\n");
            asked.remove(0);
        }
    }

    /// Forwards a reply. Returns false if the connection has to end.
    fn pass(&self, reply: &[u8], harm: Option<Harm>) -> bool {
        let mut to = &self.client;
        match harm {
            Some(Harm::Cut) => return false,
            Some(Harm::CutInside) => {
                let _ = to.write_all(&reply[..reply.len() / 2]);
                return false;
            }
            Some(Harm::Reset) => {
                self.reset();
                return false;
            }
            Some(Harm::Split) => return reply.chunks(1).all(|byte| to.write_all(byte).is_ok()),
            Some(Harm::Delay(span)) => delay(span),
            Some(Harm::Lost | Harm::Twice) | None => {}
        }
        to.write_all(reply).is_ok()
    }
}

/// A request at the start of some bytes.
struct Request {
    end: usize,
    id: u16,
    is_statement: bool,
    has_reply: bool,
    /// The server sends more than one reply to it.
    begins_stream: bool,
}

impl Request {
    /// A request that is no statement, and that gets a reply without an id.
    const fn until(end: usize) -> Self {
        Self {
            end,
            id: 0,
            is_statement: false,
            has_reply: true,
            begins_stream: false,
        }
    }
}

impl Protocol {
    /// The first request, if it is complete. `is_first` says whether it opens a connection.
    fn request(self, bytes: &[u8], is_first: bool) -> Option<Request> {
        match self {
            Self::Cassandra => {
                const EXECUTE: u8 = 0x0a;
                let (end, id) = frame(bytes)?;
                Some(Request {
                    id,
                    is_statement: bytes[4] == EXECUTE,
                    ..Request::until(end)
                })
            }
            // The message that opens a connection has no type.
            Self::PostgreSql if is_first => {
                let end = usize::try_from(number(bytes, 0)?).expect("a length");
                (bytes.len() >= end).then_some(Request::until(end))
            }
            Self::PostgreSql => {
                let mut is_statement = false;
                let mut end = 0;
                loop {
                    let kind = *bytes.get(end)?;
                    end = end_of_message(bytes, end)?;
                    is_statement |= kind == b'E';
                    // Sync, a simple query, the end, a password.
                    if matches!(kind, b'S' | b'Q' | b'X' | b'p') {
                        return Some(Request {
                            is_statement,
                            has_reply: matches!(kind, b'S' | b'Q'),
                            ..Request::until(end)
                        });
                    }
                }
            }
            // Commands have the syntax of array replies.
            Self::Redis => {
                let end = end_of_reply(bytes)?;
                let name = bytes.split(|byte| *byte == b'\n').nth(2).expect("a name");
                Some(Request {
                    is_statement: matches!(name, b"EVALSHA\r" | b"EVAL\r"),
                    begins_stream: matches!(name, b"PSYNC\r" | b"SUBSCRIBE\r"),
                    ..Request::until(end)
                })
            }
            Self::Bytes => (!bytes.is_empty()).then(|| Request {
                has_reply: false,
                ..Request::until(bytes.len())
            }),
        }
    }

    /// Where the first reply ends, if it is complete, and the id of its request.
    fn reply(self, bytes: &[u8]) -> Option<(usize, u16)> {
        match self {
            Self::Cassandra => frame(bytes),
            Self::Redis => Some((end_of_reply(bytes)?, 0)),
            Self::Bytes => (!bytes.is_empty()).then_some((bytes.len(), 0)),
            Self::PostgreSql => {
                let mut end = 0;
                loop {
                    let kind = *bytes.get(end)?;
                    end = end_of_message(bytes, end)?;
                    // The server is ready for the next request.
                    if kind == b'Z' {
                        return Some((end, 0));
                    }
                }
            }
        }
    }
}

/// Where the message at `start` ends: a type, and a length that does not count the type.
fn end_of_message(bytes: &[u8], start: usize) -> Option<usize> {
    let length = usize::try_from(number(bytes, start + 1)?).expect("a length");
    let end = start + 1 + length;
    (bytes.len() >= end).then_some(end)
}

/// Where the first frame ends, and its stream.
fn frame(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = usize::try_from(number(bytes, 5)?).expect("a length");
    let end = 9 + length;
    let stream = u16::from_be_bytes([bytes[2], bytes[3]]);
    (bytes.len() >= end).then_some((end, stream))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
}

/// What a socket reports when its timeout ends a read.
fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the delay is the fault; no test waits by it"
)]
fn delay(span: Duration) {
    thread::sleep(span);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the first reply of Redis ends, if it is complete.
pub fn end_of_reply(bytes: &[u8]) -> Option<usize> {
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
