//! An nginx on a free port.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// It is stopped when this is dropped.
pub(crate) struct Nginx {
    process: Child,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// With what `http` says in the block of that name, which listens at the address, and serves the text `fine`
    /// from the folder.
    pub(crate) async fn start(http: impl FnOnce(SocketAddr, &str) -> String) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let folder = std::env::temp_dir().join(format!("nginx-{}", address.port()));
        fs::create_dir_all(&folder).expect("a folder");
        let place = folder.display().to_string();
        let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {place}/{kind};"))
            .concat();
        let http = http(address, &place);
        let configuration = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/error crit;
            events {{ worker_connections 100; }}
            http {{ access_log off; {temp} {http} }}"
        );
        fs::write(folder.join("nginx.conf"), configuration).expect("a file");
        fs::write(folder.join("index.html"), "fine").expect("a file");
        let process = Command::new("/usr/sbin/nginx")
            .arg("-p")
            .arg(&folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed");
        let started = async {
            while tokio::net::TcpStream::connect(address).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        let started = tokio::time::timeout(Duration::from_secs(20), started).await;
        started.expect("nginx starts");
        Self {
            process,
            folder,
            address,
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
