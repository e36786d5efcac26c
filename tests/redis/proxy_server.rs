//! A proxy that parses replies and harms them on the way.
//!
//! It runs on threads of its own, so that it adds no tasks to those that a test counts.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::redis_server::RedisServer;

/// A fault of the reply of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Neither it nor any later reply arrives; the connection stays open.
    Swallow,
    /// The connection is cut instead of it.
    Cut,
    /// The connection is cut in the middle of it.
    CutInside,
    /// It arrives byte by byte.
    Split,
    /// It arrives late, and so do all later replies.
    Delay(Duration),
}

/// A proxy before a server, at an address of its own.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The port to which new connections lead.
    target: Mutex<u16>,
    plan: Mutex<Plan>,
    refusals: Mutex<Refusals>,
    harmed: AtomicU64,
    /// Requests are read and dropped.
    silent: AtomicBool,
    /// Both sockets of every connection.
    open: Mutex<Vec<TcpStream>>,
    is_raw: bool,
    over: AtomicBool,
}

/// Which script calls do not reach the server.
#[derive(Clone, Debug, Default)]
struct Refusals {
    /// The reply instead.
    reply: &'static str,
    left: u64,
    count: u64,
}

/// Which replies of scripts are harmed.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    harm: Option<Harm>,
    /// How many unharmed replies come before it.
    before: u64,
    /// The interval of further ones, if there are any.
    again: Option<u64>,
}

impl Plan {
    fn next(&mut self) -> Option<Harm> {
        let harm = self.harm?;
        if self.before > 0 {
            self.before -= 1;
            return None;
        }
        match self.again {
            Some(every) => self.before = every - 1,
            None => self.harm = None,
        }
        Some(harm)
    }
}

impl Proxy {
    pub(crate) fn before(server: &RedisServer) -> Self {
        Self::with(server.port(), false)
    }

    /// For a replica: the replication stream is forwarded without parsing.
    pub(crate) fn of_replica(server: &RedisServer) -> Self {
        Self::with(server.port(), true)
    }

    /// For bytes that cannot be parsed, as those of TLS. It harms what it reads at once from the
    /// server, as it harms replies of scripts.
    pub(crate) fn of_bytes(port: u16) -> Self {
        Self::with(port, true)
    }

    fn with(port: u16, is_raw: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            target: Mutex::new(port),
            plan: Mutex::default(),
            refusals: Mutex::default(),
            harmed: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            open: Mutex::default(),
            is_raw,
            over: AtomicBool::new(false),
        });
        let accepts = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepts.over.load(Ordering::Relaxed) {
                    return;
                }
                accepts.join(client);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Replies to so many script calls with an error, instead of the server.
    pub(crate) fn refuses(&self, reply: &'static str, left: u64) {
        let count = 0;
        *self.shared.refusals.lock().expect("refusals") = Refusals { reply, left, count };
    }

    /// How many script calls it refused.
    pub(crate) fn refused(&self) -> u64 {
        self.shared.refusals.lock().expect("refusals").count
    }

    /// Harms one reply of a script, after `before` others.
    pub(crate) fn harms_one(&self, harm: Harm, before: u64) {
        *self.shared.plan.lock().expect("a plan") = Plan {
            harm: Some(harm),
            before,
            again: None,
        };
    }

    /// Harms one in `every` replies of scripts.
    pub(crate) fn harms_every(&self, harm: Harm, every: u64) {
        *self.shared.plan.lock().expect("a plan") = Plan {
            harm: Some(harm),
            before: every - 1,
            again: Some(every),
        };
    }

    pub(crate) fn harms_none(&self) {
        *self.shared.plan.lock().expect("a plan") = Plan::default();
    }

    /// How many replies were harmed.
    pub(crate) fn harmed(&self) -> u64 {
        self.shared.harmed.load(Ordering::Relaxed)
    }

    /// Sets whether requests are read and dropped.
    pub(crate) fn is_silent(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::Relaxed);
    }

    /// New connections lead to another server; existing ones stay.
    pub(crate) fn leads_to(&self, server: &RedisServer) {
        *self.shared.target.lock().expect("a port") = server.port();
    }

    /// New connections are refused.
    pub(crate) fn leads_nowhere(&self) {
        *self.shared.target.lock().expect("a port") = 1;
    }

    /// Cuts all connections. Returns how many there were.
    pub(crate) fn cuts_all(&self) -> u64 {
        let mut cut = 0;
        for end in self.shared.open.lock().expect("connections").drain(..) {
            cut += u64::from(end.shutdown(Shutdown::Both).is_ok());
        }
        cut / 2
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.cuts_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    /// Connects a client to the server, with a thread per direction.
    fn join(self: &Arc<Self>, client: TcpStream) {
        let target = *self.target.lock().expect("a port");
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
            return;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let again = |end: &TcpStream| end.try_clone().expect("a descriptor");
        let mut open = self.open.lock().expect("connections");
        open.extend([again(&client), again(&server)]);
        drop(open);
        let (from_client, to_server) = (again(&client), again(&server));
        let asked = Arc::new(Asked::default());
        let (shared, asks) = (Arc::clone(self), Arc::clone(&asked));
        let to_client = again(&client);
        thread::spawn(move || {
            shared.forth(from_client, &to_server, &to_client, &asks);
            let _ = to_server.shutdown(Shutdown::Both);
        });
        let shared = Arc::clone(self);
        thread::spawn(move || {
            shared.back(server, &client, &asked);
            let _ = client.shutdown(Shutdown::Both);
        });
    }

    fn forth(&self, mut from: TcpStream, mut to: &TcpStream, back: &TcpStream, asked: &Asked) {
        let mut bytes = Vec::new();
        let mut more = [0; 8 * 1024];
        while let Ok(count @ 1..) = from.read(&mut more) {
            if self.is_raw || asked.is_stream() {
                if to.write_all(&more[..count]).is_err() {
                    return;
                }
                continue;
            }
            bytes.extend_from_slice(&more[..count]);
            // Commands have the syntax of array replies.
            while let Some(end) = end_of_reply(&bytes) {
                let command: Vec<u8> = bytes.drain(..end).collect();
                if self.silent.load(Ordering::Relaxed) {
                    continue;
                }
                if is_stream(&command) {
                    asked.stream.store(true, Ordering::Relaxed);
                }
                let is_script = is_script(&command);
                if let Some(refusal) = self.refusal(is_script) {
                    asked.push(Command::Refused(refusal));
                    asked.answer_refused(back);
                    continue;
                }
                asked.push(if is_script {
                    Command::Script
                } else {
                    Command::Other
                });
                if to.write_all(&command).is_err() {
                    return;
                }
            }
        }
    }

    fn back(&self, mut from: TcpStream, to: &TcpStream, asked: &Asked) {
        let mut bytes = Vec::new();
        let mut more = [0; 8 * 1024];
        let mut swallows = false;
        while let Ok(count @ 1..) = from.read(&mut more) {
            if self.is_raw || asked.is_stream() {
                bytes.extend_from_slice(&more[..count]);
                let harm = self.harm(self.is_raw);
                if !deliver(&bytes, harm, &mut swallows, to) {
                    return;
                }
                bytes.clear();
                continue;
            }
            bytes.extend_from_slice(&more[..count]);
            while let Some(end) = end_of_reply(&bytes) {
                let reply: Vec<u8> = bytes.drain(..end).collect();
                let harm = self.harm(asked.is_script());
                if !deliver(&reply, harm, &mut swallows, to) {
                    return;
                }
                asked.replied(to);
            }
        }
    }

    fn refusal(&self, is_script: bool) -> Option<&'static str> {
        let mut refusals = self.refusals.lock().expect("refusals");
        if !is_script || refusals.left == 0 {
            return None;
        }
        refusals.left -= 1;
        refusals.count += 1;
        Some(refusals.reply)
    }

    fn harm(&self, may_harm: bool) -> Option<Harm> {
        if !may_harm {
            return None;
        }
        let harm = self.plan.lock().expect("a plan").next();
        self.harmed
            .fetch_add(u64::from(harm.is_some()), Ordering::Relaxed);
        harm
    }
}

/// A command without a reply yet.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Script,
    Other,
    /// It did not reach the server; this is its reply.
    Refused(&'static str),
}

/// The commands of a connection without a reply yet, in order.
#[derive(Debug, Default)]
struct Asked {
    commands: Mutex<VecDeque<Command>>,
    /// From now on the server sends without being asked.
    stream: AtomicBool,
}

impl Asked {
    fn is_stream(&self) -> bool {
        self.stream.load(Ordering::Relaxed)
    }

    fn push(&self, command: Command) {
        self.commands
            .lock()
            .expect("the commands")
            .push_back(command);
    }

    /// Whether the next reply is that of a script.
    fn is_script(&self) -> bool {
        let commands = self.commands.lock().expect("the commands");
        *commands.front().expect("a command for every reply") == Command::Script
    }

    /// Records that the next reply was forwarded.
    fn replied(&self, to: &TcpStream) {
        self.commands.lock().expect("the commands").pop_front();
        self.answer_refused(to);
    }

    /// Writes the replies of refused commands whose turn it is.
    fn answer_refused(&self, mut to: &TcpStream) {
        let mut commands = self.commands.lock().expect("the commands");
        while let Some(Command::Refused(reply)) = commands.front() {
            let _ = write!(to, "-{reply}\r\n");
            commands.pop_front();
        }
    }
}

fn name(command: &[u8]) -> &[u8] {
    let mut lines = command.split(|byte| *byte == b'\n');
    lines.nth(2).expect("a name")
}

/// Whether a command is a script call, by its name.
fn is_script(command: &[u8]) -> bool {
    matches!(name(command), b"EVALSHA\r" | b"EVAL\r")
}

/// Whether the server sends more than one reply to a command.
fn is_stream(command: &[u8]) -> bool {
    matches!(name(command), b"PSYNC\r" | b"SUBSCRIBE\r")
}

/// Forwards a reply, or swallows it and all later ones. Returns false if the connection has to end.
fn deliver(reply: &[u8], harm: Option<Harm>, swallows: &mut bool, to: &TcpStream) -> bool {
    *swallows |= harm == Some(Harm::Swallow);
    *swallows || pass(reply, harm, to)
}

/// Forwards a reply. Returns false if the connection has to end.
fn pass(reply: &[u8], harm: Option<Harm>, mut to: &TcpStream) -> bool {
    match harm {
        Some(Harm::Cut | Harm::Swallow) => return false,
        Some(Harm::CutInside) => {
            let _ = to.write_all(&reply[..reply.len() / 2]);
            return false;
        }
        Some(Harm::Split) => return reply.chunks(1).all(|byte| to.write_all(byte).is_ok()),
        Some(Harm::Delay(span)) => delay(span),
        None => {}
    }
    to.write_all(reply).is_ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the delay is the fault; no test waits by it"
)]
fn delay(span: Duration) {
    thread::sleep(span);
}

/// Where the first reply ends, if it is complete.
pub(crate) fn end_of_reply(bytes: &[u8]) -> Option<usize> {
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
