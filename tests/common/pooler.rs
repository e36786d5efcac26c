//! Starts a pgbouncer in transaction mode before a server, which gives each statement any of two sessions.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::postgres_server::PostgresServer;

/// A running pgbouncer. It is stopped when its handle is dropped.
pub(crate) struct Pooler {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Pooler {
    pub(crate) fn before(server: &PostgresServer, access: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder = std::env::temp_dir();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-throttle-pooler-{}-{number}", std::process::id());
        let folder = folder.join(name);
        fs::create_dir_all(&folder).expect("a folder for the pooler");
        // Another process may take the port before the pooler does.
        for _ in 0..20 {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = free.local_addr().expect("its address").port();
            drop(free);
            let settings = folder.join("pgbouncer.ini");
            let text = format!(
                "[databases]\n\
                 postgres = host=127.0.0.1 port={} user=postgres\n\
                 [pgbouncer]\n\
                 listen_addr = 127.0.0.1\n\
                 listen_port = {port}\n\
                 unix_socket_dir =\n\
                 {access}\n\
                 pool_mode = transaction\n\
                 default_pool_size = 2\n",
                server.port()
            );
            fs::write(&settings, text).expect("a file for the settings");
            let mut process = PostgresServer::unprivileged_command("/usr/sbin/pgbouncer")
                .arg(&settings)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("pgbouncer is installed");
            let output = BufReader::new(process.stderr.take().expect("it was piped"));
            let mut lines = output.lines().map_while(Result::ok);
            if lines.by_ref().any(|line| line.contains("process up")) {
                // Keep reading the log, so that the pipe never fills.
                std::thread::spawn(move || lines.for_each(drop));
                return Self {
                    process,
                    port,
                    folder,
                };
            }
            let _ = process.wait();
        }
        panic!("no pgbouncer has started");
    }

    pub(crate) fn url(&self) -> String {
        self.url_of("any", "postgres")
    }

    pub(crate) fn url_of(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
