//! A proxy before PostgreSQL or Cassandra that harms the replies of statements on their way.
//!
//! It runs on threads of its own, so that it adds no tasks to those of a test.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::SockRef;

/// A fault of the reply to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
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
pub(crate) enum Protocol {
    PostgreSql,
    Cassandra,
}

/// A proxy before a server, at an address of its own.
#[derive(Debug)]
pub(crate) struct WireProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    protocol: Protocol,
    /// The port of the server.
    target: u16,
    plan: Mutex<Plan>,
    harmed: AtomicU64,
    /// The delay of every reply, also of those to no statement.
    delay: Mutex<Duration>,
    /// The statements since [`WireProxy::records`].
    recorded: Mutex<Option<Vec<Vec<u8>>>>,
    is_over: AtomicBool,
}

/// Which replies of statements are harmed.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    harm: Option<Harm>,
    /// One in so many.
    every: u64,
    seen: u64,
}

impl WireProxy {
    pub(crate) fn before(protocol: Protocol, target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            protocol,
            target,
            plan: Mutex::default(),
            harmed: AtomicU64::new(0),
            delay: Mutex::default(),
            recorded: Mutex::default(),
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

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Harms the replies to one in `every` statements.
    pub(crate) fn harms_every(&self, harm: Harm, every: u64) {
        *lock(&self.shared.plan) = Plan {
            harm: Some(harm),
            every,
            seen: 0,
        };
    }

    pub(crate) fn harms_none(&self) {
        *lock(&self.shared.plan) = Plan::default();
    }

    /// How many statements were harmed.
    pub(crate) fn harmed(&self) -> u64 {
        self.shared.harmed.load(Ordering::Relaxed)
    }

    /// Keeps the requests with statements from now on.
    pub(crate) fn records(&self) {
        *lock(&self.shared.recorded) = Some(Vec::new());
    }

    /// The requests with statements since the last call, or since [`records`](Self::records).
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        let mut recorded = lock(&self.shared.recorded);
        recorded.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Every reply arrives so late.
    pub(crate) fn delays_all(&self, delay: Duration) {
        *lock(&self.shared.delay) = delay;
    }
}

impl Drop for WireProxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn next_harm(&self) -> Option<Harm> {
        let mut plan = lock(&self.plan);
        let harm = plan.harm?;
        plan.seen += 1;
        if plan.seen % plan.every != 0 {
            return None;
        }
        self.harmed.fetch_add(1, Ordering::Relaxed);
        Some(harm)
    }
}

/// A connection of a client, with a thread per direction.
struct Connection {
    shared: Arc<Shared>,
    client: TcpStream,
    server: TcpStream,
    /// Requests without a reply, in order.
    asked: Mutex<Vec<Asked>>,
    is_over: AtomicBool,
}

/// A request without a reply yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// What its reply repeats; zero if replies come in order.
    id: u16,
    harm: Option<Harm>,
    /// How many replies come before the one that is returned.
    dropped: u32,
}

impl Connection {
    fn open(shared: &Arc<Shared>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", shared.target)) else {
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
            is_over: AtomicBool::new(false),
        });
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

    fn end(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            let _ = self.client.shutdown(Shutdown::Both);
            let _ = self.server.shutdown(Shutdown::Both);
        }
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

    fn forward(&self) {
        let protocol = self.shared.protocol;
        let mut bytes = Vec::new();
        let mut is_first = true;
        while self.read(&self.client, &mut bytes).is_some() {
            while let Some(request) = protocol.request(&bytes, is_first) {
                is_first = false;
                let text: Vec<u8> = bytes.drain(..request.end).collect();
                if request.is_statement {
                    if let Some(recorded) = &mut *lock(&self.shared.recorded) {
                        recorded.push(text.clone());
                    }
                }
                let harm = request.is_statement.then(|| self.shared.next_harm());
                let harm = harm.flatten();
                let is_twice = harm == Some(Harm::Twice);
                if request.has_reply {
                    lock(&self.asked).push(Asked {
                        id: request.id,
                        harm,
                        dropped: is_twice.into(),
                    });
                }
                for _ in 0..=u32::from(is_twice) {
                    if (&self.server).write_all(&text).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn give_back(&self) {
        let protocol = self.shared.protocol;
        let mut bytes = Vec::new();
        let mut loses_all = false;
        while self.read(&self.server, &mut bytes).is_some() {
            while let Some((end, id)) = protocol.reply(&bytes) {
                let reply: Vec<u8> = bytes.drain(..end).collect();
                let harm = match self.asked_for(id) {
                    Some(Asked { dropped: 1.., .. }) => continue,
                    Some(asked) => asked.harm,
                    // An event, or what comes before the end of a reply.
                    None => None,
                };
                let late = *lock(&self.shared.delay);
                if !late.is_zero() {
                    delay(late);
                }
                if harm == Some(Harm::Lost) {
                    loses_all = protocol == Protocol::PostgreSql;
                    continue;
                }
                if !loses_all && !self.pass(&reply, harm) {
                    return;
                }
            }
        }
        // The last words of a server that refuses a connection.
        if !loses_all {
            self.pass(&bytes, None);
        }
    }

    /// The request to which a reply belongs. It stays if another reply to it will come.
    fn asked_for(&self, id: u16) -> Option<Asked> {
        let mut asked = lock(&self.asked);
        let at = asked.iter().position(|asked| asked.id == id)?;
        let found = asked[at];
        if found.dropped > 0 {
            asked[at].dropped -= 1;
        } else {
            asked.remove(at);
        }
        Some(found)
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
}

impl Protocol {
    /// The first request, if it is complete. `is_first` says whether it opens a connection.
    fn request(self, bytes: &[u8], is_first: bool) -> Option<Request> {
        match self {
            Self::Cassandra => {
                const EXECUTE: u8 = 0x0a;
                let (end, id) = frame(bytes)?;
                Some(Request {
                    end,
                    id,
                    is_statement: bytes[4] == EXECUTE,
                    has_reply: true,
                })
            }
            // The message that opens a connection has no type.
            Self::PostgreSql if is_first => {
                let end = usize::try_from(number(bytes, 0)?).expect("a length");
                (bytes.len() >= end).then_some(Request {
                    end,
                    id: 0,
                    is_statement: false,
                    has_reply: true,
                })
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
                        let has_reply = matches!(kind, b'S' | b'Q');
                        return Some(Request {
                            end,
                            id: 0,
                            is_statement,
                            has_reply,
                        });
                    }
                }
            }
        }
    }

    /// Where the first reply ends, if it is complete, and the id of its request.
    fn reply(self, bytes: &[u8]) -> Option<(usize, u16)> {
        match self {
            Self::Cassandra => frame(bytes),
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
