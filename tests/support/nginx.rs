//! An nginx on a free port.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Stdio},
};

use crate::folder::Folder;
use crate::program::{Program, on_free_ports};

/// It is stopped when this is dropped.
#[derive(Debug)]
pub struct Nginx {
    _program: Program,
    _folder: Folder,
    pub address: SocketAddr,
}

impl Nginx {
    /// With what `http` says in the block of that name, which listens at the address, and serves the text `fine`
    /// from the folder.
    pub fn start(http: impl Fn(SocketAddr, &str) -> String) -> Self {
        let folder = Folder::new("nginx");
        let place = folder.display().to_string();
        let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {place}/{kind};"))
            .concat();
        fs::write(folder.join("index.html"), "fine").expect("a file");
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (program, [port]) = on_free_ports(|[port]| {
            let http = http(address(port), &place);
            let configuration = format!(
                "daemon off; master_process off; pid {place}/pid; error_log stderr notice;
            events {{ worker_connections 100; }}
            http {{ access_log off; {temp} {http} }}"
            );
            fs::write(folder.join("nginx.conf"), configuration).expect("a file");
            let mut command = Command::new("/usr/sbin/nginx");
            command
                .args(["-p", &place, "-c", "nginx.conf"])
                .stderr(Stdio::piped());
            // It says so when it listens.
            Program::start(&mut command, |line| line.contains("event method"))
        });
        Self {
            _program: program,
            _folder: folder,
            address: address(port),
        }
    }
}
