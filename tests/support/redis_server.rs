//! Starts a real redis-server on a free loopback port. It is stopped when its handle is dropped.
//!
//! The variable `REDIS_SERVER` selects another program that takes the same arguments: another
//! version of Redis, or valkey-server.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::folder::Folder;
use crate::program::{Program, on_free_ports};

/// A running server.
#[derive(Debug)]
pub struct RedisServer {
    program: Program,
    ports: [u16; 2],
    folder: Folder,
    setup: Setup,
}

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    /// The argument that gives it a second port.
    second_port: Option<&'static str>,
    /// The configuration file of a sentinel, to which it also writes its state.
    sentinel: Option<String>,
}

impl Setup {
    /// Adds command line arguments.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Gives it a second free port by this argument.
    #[allow(dead_code, reason = "used for clusters and TLS")]
    pub fn second_port(mut self, argument: &'static str) -> Self {
        self.second_port = Some(argument);
        self
    }

    /// Adds an environment variable.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts a sentinel instead of a server.
    pub fn sentinel(mut self, configuration: &str) -> Self {
        self.sentinel = Some(configuration.to_owned());
        self
    }

    pub fn start(self) -> RedisServer {
        RedisServer::set_up(self)
    }
}

impl RedisServer {
    /// Starts a server without persistence.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with further command line arguments.
    pub fn with(arguments: &[&str]) -> Self {
        Setup::default().arguments(arguments).start()
    }

    fn set_up(setup: Setup) -> Self {
        let folder = Folder::new("redis");
        let (program, ports) = on_free_ports(|ports| launch(ports, &folder, &setup));
        Self {
            program,
            ports,
            folder,
            setup,
        }
    }

    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    #[allow(dead_code, reason = "used for clusters and TLS")]
    pub fn second_port(&self) -> u16 {
        self.ports[1]
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// A connection for the test itself.
    pub fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("a url");
        client.get_connection().expect("a server that responds")
    }

    /// Kills the process, so that it cannot save its data.
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Restarts the server on the same port after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.program =
            launch(self.ports, &self.folder, &self.setup).expect("the port is still free");
    }

    /// Sends a signal to the process: `STOP` suspends it and `CONT` resumes it.
    pub fn signal(&self, name: &str) {
        self.program.signal(name);
    }
}

/// Starts a server and waits until it is ready. Returns `None` if its port is taken.
fn launch([port, second]: [u16; 2], folder: &Path, setup: &Setup) -> Option<Program> {
    let program = std::env::var("REDIS_SERVER");
    let mut command = Command::new(program.as_deref().unwrap_or("redis-server"));
    if let Some(configuration) = &setup.sentinel {
        let file = folder.join("sentinel.conf");
        fs::write(&file, configuration).expect("a file for the sentinel");
        command.arg(file).arg("--sentinel");
    }
    if let Some(argument) = setup.second_port {
        command.args([argument, &second.to_string()]);
    }
    // A replica must not wait for other replicas.
    if setup.sentinel.is_none() {
        command.args(["--repl-diskless-sync-delay", "0"]);
    }
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--enable-debug-command", "local"])
        .arg("--dir")
        .arg(folder)
        .args(&setup.arguments)
        .envs(setup.variables.iter().cloned())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    Program::start(&mut command, |line| {
        line.contains("eady to accept connections") || line.contains("Sentinel ID")
    })
}

/// Waits for a condition of a server.
pub fn reached(what: &str, is_so: impl Fn() -> bool) {
    let begun = tokio::time::Instant::now();
    while !is_so() {
        let waited = begun.elapsed();
        assert!(waited.as_secs() < 120, "timed out waiting until {what}");
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}
