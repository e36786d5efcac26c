//! A proxy that distributes keys over servers, as twemproxy 0.5 and Envoy 1.40 do.
//!
//! Both send a script call to the server of its first key. twemproxy closes the connection at a
//! command that it does not know. It runs on threads of its own.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::proxy::end_of_reply;
use crate::redis_server::RedisServer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Twemproxy,
    Envoy,
}

/// A proxy before several servers.
#[derive(Debug)]
pub struct HashingProxy {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl HashingProxy {
    pub fn before(servers: &[RedisServer], kind: Kind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let ports: Vec<_> = servers.iter().map(RedisServer::port).collect();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let session = Session::start(&ports, kind, client);
                thread::spawn(move || session.run());
            }
        });
        Self { address, over }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

impl Drop for HashingProxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

/// What happens to a command.
enum Route {
    /// The server of a key.
    Key(Vec<u8>),
    /// All servers; the client gets the first reply.
    All,
    Reply(&'static str),
    Close,
}

struct Session {
    kind: Kind,
    client: TcpStream,
    servers: Vec<TcpStream>,
}

impl Session {
    fn start(ports: &[u16], kind: Kind, client: TcpStream) -> Self {
        let connect = |port: &u16| TcpStream::connect(("127.0.0.1", *port)).expect("a server");
        let servers: Vec<_> = ports.iter().map(connect).collect();
        for stream in servers.iter().chain([&client]) {
            stream.set_nodelay(true).expect("a socket");
        }
        Self {
            kind,
            client,
            servers,
        }
    }

    fn run(mut self) {
        let mut bytes = Vec::new();
        // Commands have the syntax of array replies.
        while let Some(command) = read(&mut self.client, &mut bytes) {
            let reply = match self.route(&command) {
                Route::Key(key) => {
                    let server = index(&key, self.servers.len());
                    self.ask(server, &command)
                }
                Route::All => {
                    let replies = (0..self.servers.len()).map(|server| self.ask(server, &command));
                    replies.collect::<Vec<_>>().swap_remove(0)
                }
                Route::Reply(reply) => reply.as_bytes().to_vec(),
                Route::Close => break,
            };
            if self.client.write_all(&reply).is_err() {
                break;
            }
        }
        let _ = self.client.shutdown(Shutdown::Both);
    }

    fn ask(&self, server: usize, command: &[u8]) -> Vec<u8> {
        let mut server = &self.servers[server];
        server.write_all(command).expect("a server that reads");
        read(&mut server, &mut Vec::new()).expect("a reply")
    }

    fn route(&self, command: &[u8]) -> Route {
        let words = words(command);
        let name = words[0].to_ascii_uppercase();
        match (&*name, self.kind) {
            (b"EVAL" | b"EVALSHA", _) if words.len() > 3 && words[2] != b"0" => {
                Route::Key(words[3].to_vec())
            }
            (b"GET" | b"SET" | b"DEL", _) => Route::Key(words[1].to_vec()),
            (b"PING", _) => Route::Reply("+PONG\r\n"),
            (_, Kind::Twemproxy) => Route::Close,
            // Whatever its servers are.
            (b"INFO", Kind::Envoy) => {
                Route::Reply("$50\r\nredis_version:7.0.15\r\n# Cluster\r\ncluster_enabled:1\r\n")
            }
            (b"SCRIPT" | b"TIME", Kind::Envoy) => Route::All,
            (b"CLIENT" | b"SELECT", Kind::Envoy) => Route::Reply("+OK\r\n"),
            (b"EVAL" | b"EVALSHA", Kind::Envoy) => {
                Route::Reply("-wrong number of arguments for 'EVAL' command\r\n")
            }
            (_, Kind::Envoy) => Route::Reply("-ERR unknown command\r\n"),
        }
    }
}

/// The next command or reply of a stream.
fn read(from: &mut impl Read, bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut more = [0; 8 * 1024];
    loop {
        if let Some(end) = end_of_reply(bytes) {
            return Some(bytes.drain(..end).collect());
        }
        match from.read(&mut more) {
            Ok(count @ 1..) => bytes.extend_from_slice(&more[..count]),
            _ => return None,
        }
    }
}

/// The words of a command.
fn words(command: &[u8]) -> Vec<&[u8]> {
    let line = |bytes: &[u8]| {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n");
        end.expect("a line")
    };
    let mut rest = &command[line(command) + 2..];
    let mut words = Vec::new();
    while !rest.is_empty() {
        let end = line(rest);
        let length = std::str::from_utf8(&rest[1..end]).expect("a number");
        let length: usize = length.parse().expect("a number");
        words.push(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 2 + length + 2..];
    }
    words
}

/// The server of a key: FNV-1a of the whole key.
fn index(key: &[u8], servers: usize) -> usize {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let folded = (hash ^ hash >> 32) & 0xffff_ffff;
    usize::try_from(folded).expect("32 bits") % servers
}
