//! Starts a real redis-server on a free loopback port. It is stopped when its handle is dropped.
//!
//! The variable `REDIS_SERVER` selects another program that takes the same arguments: another
//! version of Redis, or valkey-server.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

/// A running server.
#[derive(Debug)]
pub(crate) struct RedisServer {
    process: Child,
    port: u16,
    folder: PathBuf,
    setup: Setup,
}

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    /// The configuration file of a sentinel, to which it also writes its state.
    sentinel: Option<String>,
}

impl Setup {
    /// Adds command line arguments.
    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Adds an environment variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts a sentinel instead of a server.
    #[allow(dead_code, reason = "used with the feature `redis-sentinel`")]
    pub(crate) fn sentinel(mut self, configuration: &str) -> Self {
        self.sentinel = Some(configuration.to_owned());
        self
    }

    pub(crate) fn start(self) -> RedisServer {
        RedisServer::set_up(self)
    }
}

impl RedisServer {
    /// Starts a server without persistence.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with further command line arguments.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        Setup::default().arguments(arguments).start()
    }

    fn set_up(setup: Setup) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-throttle-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder for the server");
        // Another process may take the port before the server does.
        for _ in 0..20 {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = free.local_addr().expect("its address").port();
            drop(free);
            if let Some(process) = launch(port, &folder, &setup) {
                return Self {
                    process,
                    port,
                    folder,
                    setup,
                };
            }
        }
        panic!("no redis-server has started; is one installed?");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection for the test itself.
    pub(crate) fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("a url");
        client.get_connection().expect("a server that responds")
    }

    /// Kills the process, so that it cannot save its data.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("a child process");
        self.process.wait().expect("a child process");
    }

    /// Restarts the server on the same port after [`kill`](Self::kill).
    pub(crate) fn restart(&mut self) {
        self.process =
            launch(self.port, &self.folder, &self.setup).expect("the port is still free");
    }

    /// Sends a signal to the process: `STOP` suspends it and `CONT` resumes it.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.process.id().to_string())
            .status();
        assert!(sent.expect("kill is installed").success());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts a server and waits until it is ready. Returns `None` if its port is taken.
fn launch(port: u16, folder: &Path, setup: &Setup) -> Option<Child> {
    let program = std::env::var("REDIS_SERVER");
    let mut command = Command::new(program.as_deref().unwrap_or("redis-server"));
    if let Some(configuration) = &setup.sentinel {
        let file = folder.join("sentinel.conf");
        fs::write(&file, configuration).expect("a file for the sentinel");
        command.arg(file).arg("--sentinel");
    }
    // A replica must not wait for other replicas.
    if setup.sentinel.is_none() {
        command.args(["--repl-diskless-sync-delay", "0"]);
    }
    let mut process = command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--enable-debug-command", "local"])
        .arg("--dir")
        .arg(folder)
        .args(&setup.arguments)
        .envs(setup.variables.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let output = BufReader::new(process.stdout.take().expect("it was piped"));
    let mut lines = output.lines();
    let ready = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("eady to accept connections") || line.contains("Sentinel ID"));
    if ready {
        // Keep reading the log, so that the pipe never fills.
        std::thread::spawn(move || lines.for_each(drop));
        Some(process)
    } else {
        let _ = process.kill();
        let _ = process.wait();
        None
    }
}

/// Waits for a condition of a server.
pub(crate) fn reached(what: &str, is_so: impl Fn() -> bool) {
    let begun = tokio::time::Instant::now();
    while !is_so() {
        let waited = begun.elapsed();
        assert!(waited.as_secs() < 30, "timed out waiting until {what}");
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}
