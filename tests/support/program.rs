//! Programs that tests start. They end with the test.

use std::{
    io::{self, BufRead, BufReader, Read},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::net::TcpSocket;

/// A running program.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts a program whose output or errors are piped, and waits for a line that says that it is
    /// ready. Returns `None` if it ends before.
    pub fn start(command: &mut Command, is_ready: impl FnMut(String) -> bool) -> Option<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} is not installed: {error}"));
        let log: Box<dyn Read + Send> = match child.stdout.take() {
            Some(output) => Box::new(output),
            None => Box::new(child.stderr.take().expect("one of them is piped")),
        };
        let program = Self(child);
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        lines.by_ref().any(is_ready).then(|| {
            // Keep reading the log, so that the pipe never fills.
            std::thread::spawn(move || lines.for_each(drop));
            program
        })
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills the program, so that it cannot save anything.
    pub fn kill(&mut self) {
        self.0.kill().expect("a child process");
        self.wait();
    }

    pub fn wait(&mut self) {
        self.0.wait().expect("a child process");
    }

    /// Sends a signal: `STOP` suspends the program and `CONT` resumes it.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.id().to_string()])
            .status();
        assert!(sent.expect("kill is installed").success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program on free ports. It is started again, on others, if another process takes one first.
///
/// On Linux none does: the ports stay bound until the end of the test's process, also while the program is
/// down, and a program can listen on them all the same. Elsewhere they are free until it listens.
pub fn on_free_ports<const N: usize>(
    mut start: impl FnMut([u16; N]) -> Option<Program>,
) -> (Program, [u16; N]) {
    static BOUND: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    for _ in 0..20 {
        let bound = [(); N].map(|()| bound().expect("a free port"));
        let port = |bound: &TcpSocket| bound.local_addr().expect("its address").port();
        let ports = bound.each_ref().map(port);
        if cfg!(target_os = "linux") {
            let mut all = BOUND.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(bound);
        } else {
            drop(bound);
        }
        if let Some(program) = start(ports) {
            return (program, ports);
        }
    }
    panic!("the program never starts");
}

fn bound() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(socket)
}

/// A server that tests share while one of them uses it.
pub fn shared<T>(place: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut shared = place.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(start());
        *shared = Arc::downgrade(&server);
        server
    })
}
