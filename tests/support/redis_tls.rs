//! Starts a Redis server that speaks TLS with a certificate of its own.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::redis_server::{RedisServer, Setup};

/// A server that accepts TLS, and its certificate.
#[derive(Debug)]
pub struct TlsServer {
    /// Without TLS at its own port.
    pub server: RedisServer,
    /// What it shows.
    pub certificate: String,
    folder: PathBuf,
}

impl TlsServer {
    #[must_use]
    pub fn start() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tls-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (certificate, key) = certificate();
        let paths = [("cert.pem", &certificate), ("key.pem", &key)].map(|(name, text)| {
            let path = folder.join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        });
        let server = Setup::default()
            .second_port("--tls-port")
            .arguments(&["--tls-cert-file", &paths[0], "--tls-key-file", &paths[1]])
            .arguments(&["--tls-ca-cert-file", &paths[0], "--tls-auth-clients", "no"])
            .start();
        Self {
            server,
            certificate,
            folder,
        }
    }

    /// The port at which it accepts TLS.
    pub fn port(&self) -> u16 {
        self.server.second_port()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A self-signed certificate for localhost, and its key.
pub fn certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}
