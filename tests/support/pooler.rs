//! Starts a pgbouncer in transaction mode before a server, which gives each statement any of two sessions.

use std::{fs, process::Stdio};

use crate::folder::Folder;
use crate::program::{Program, on_free_ports};

use crate::postgres_server::PostgresServer;

/// A running pgbouncer. It is stopped when its handle is dropped.
#[derive(Debug)]
pub struct Pooler {
    _program: Program,
    port: u16,
    _folder: Folder,
}

impl Pooler {
    pub fn before(server: &PostgresServer, access: &str) -> Self {
        let folder = Folder::new("pooler");
        let (program, [port]) = on_free_ports(|[port]| {
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
            let mut command = PostgresServer::unprivileged_command("/usr/sbin/pgbouncer");
            command
                .arg(&settings)
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            Program::start(&mut command, |line| line.contains("process up"))
        });
        Self {
            _program: program,
            port,
            _folder: folder,
        }
    }

    pub fn url(&self) -> String {
        self.url_of("any", "postgres")
    }

    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }
}
