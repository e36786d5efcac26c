//! Starts a real PostgreSQL on a free loopback port. It is stopped when its handle is dropped.
//!
//! The variable `POSTGRES_BIN` names the folder of another version's programs.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, Weak},
};

use crate::folder::Folder;
use crate::program::{Program, on_free_ports, shared};
use tokio_postgres::{Client, NoTls};

/// Who may connect: `needs_password` with its password, all others without.
const ACCESS: &str = "host all needs_password 127.0.0.1/32 scram-sha-256\n\
                      host all all 127.0.0.1/32 trust\n";

/// A running server.
#[derive(Debug)]
pub struct PostgresServer {
    program: Program,
    port: u16,
    folder: Folder,
}

impl PostgresServer {
    /// A server that tests share. Each uses a table of its own.
    pub fn shared() -> Arc<Self> {
        static SERVER: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        shared(&SERVER, Self::start)
    }

    pub fn start() -> Self {
        let folder = Folder::new("postgres");
        if let Some((user, group)) = unprivileged() {
            chown(&*folder, Some(user), Some(group)).expect("a folder of the server's user");
        }
        let made = command("initdb")
            .args(["--no-sync", "--auth=trust", "--username=postgres"])
            .args(["--encoding=UTF8", "--locale=C", "--pgdata"])
            .arg(folder.join("data"))
            .output()
            .expect("initdb is installed");
        assert!(made.status.success(), "{made:?}");
        fs::write(folder.join("data/pg_hba.conf"), ACCESS).expect("the file of who may connect");
        let (program, [port]) = on_free_ports(|[port]| launch(port, &folder));
        Self {
            program,
            port,
            folder,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    pub fn url_of(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// A connection for the test itself.
    pub async fn client(&self) -> Client {
        let connected = tokio_postgres::connect(&self.url(), NoTls).await;
        let (client, connection) = connected.expect("a server that responds");
        tokio::spawn(connection);
        client
    }

    /// A program that refuses to run as root, run by the user of the server.
    pub fn unprivileged_command(path: impl AsRef<Path>) -> Command {
        by_own_user(path.as_ref())
    }

    /// Kills the server, as a crash of its machine does: with the processes of its connections, which
    /// could reply once more.
    pub fn kill(&mut self) {
        self.signal("KILL");
        self.program.wait();
    }

    /// Stops the server in an orderly way.
    pub fn stop(&mut self) {
        self.program.signal("INT");
        self.program.wait();
    }

    /// Restarts the server on the same port after [`kill`](Self::kill) or [`stop`](Self::stop).
    pub fn restart(&mut self) {
        // The processes of the connections may outlive a killed server a little.
        let mut launches = std::iter::from_fn(|| Some(launch(self.port, &self.folder)));
        let program = launches.by_ref().take(200).find_map(|launched| {
            if launched.is_none() {
                std::thread::park_timeout(std::time::Duration::from_millis(50));
            }
            launched
        });
        self.program = program.expect("the port is still free");
    }

    /// Sends a signal to the server and to the processes of its connections: `STOP` suspends
    /// them and `CONT` resumes them.
    pub fn signal(&self, name: &str) {
        // A server that is suspended starts no more processes.
        self.program.signal("STOP");
        let server = self.program.id();
        let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
        let children = children.expect("a list of processes");
        // Those that have ended by now are not found.
        let _ = Command::new("kill")
            .arg(format!("-{name}"))
            .args(children.split_whitespace())
            .stderr(Stdio::null())
            .status();
        self.program.signal(name);
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // At once, with the processes of its connections. A test that failed may have suspended it.
        for signal in ["-QUIT", "-CONT"] {
            let _ = Command::new("kill")
                .args([signal, &self.program.id().to_string()])
                .stderr(Stdio::null())
                .status();
        }
        self.program.wait();
    }
}

/// Starts a server and waits until it is ready. Returns `None` if it ends instead.
fn launch(port: u16, folder: &Path) -> Option<Program> {
    let settings = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "shared_buffers=32MB",
        "max_connections=300",
        "max_prepared_transactions=4",
        "fsync=off",
        "autovacuum_naptime=1s",
    ];
    let mut command = command("postgres");
    command
        .arg("-D")
        .arg(folder.join("data"))
        .args(["-p", &port.to_string()])
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    Program::start(&mut command, |line| {
        // A replica accepts read-only connections.
        line.contains("ready to accept")
    })
}

/// A program of the server.
fn command(name: &str) -> Command {
    by_own_user(&programs().join(name))
}

/// A program that refuses to run as root, run by the user of the server.
fn by_own_user(path: &Path) -> Command {
    let Some((user, group)) = unprivileged() else {
        return Command::new(path);
    };
    let mut command = Command::new("setpriv");
    command
        .args([format!("--reuid={user}"), format!("--regid={group}")])
        .arg("--clear-groups")
        .arg(path)
        .current_dir("/");
    command
}

/// The folder of the programs, which Debian does not put on the path.
fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("POSTGRES_BIN") {
        return folder.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    let folders = versions.map(|version| version.expect("a version").path().join("bin"));
    let installed = folders.filter(|folder| folder.join("initdb").exists());
    installed.max().expect("PostgreSQL is installed")
}

/// The user and group of the server, if this process runs as root.
fn unprivileged() -> Option<(u32, u32)> {
    let own = fs::metadata("/proc/self").expect("this process");
    if own.uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("the users");
    let find = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        let mut number = || fields.next()?.parse().ok();
        Some((number()?, number()?))
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("a user"))
}
