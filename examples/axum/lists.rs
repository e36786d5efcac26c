//! Blocks the networks in a file, which can be edited while the server runs:
//! `cargo run --example lists`

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, routing::get};
use tower::ServiceExt;
use tower_throttle::{
    ClientIp, Quota, RateLimitLayer, TokenBucket,
    key::{Networks, PeerAddr, Watched},
};

/// A list in a file.
struct ListFile {
    path: PathBuf,
    list: Watched<Networks>,
    /// What was read last, good or not.
    read: Result<String, String>,
}

impl ListFile {
    fn open(path: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let text = fs::read_to_string(path)?;
        Ok(Self {
            path: path.to_owned(),
            list: Watched::new(text.parse()?),
            read: Ok(text),
        })
    }

    /// Reads the file again. The old list stays if there is no file or it has a mistake. Returns
    /// whether the list was replaced.
    ///
    /// Compares the text, not the time of the file: editors and deployments replace files by others,
    /// and two changes may have the same time.
    fn reload(&mut self) -> Result<bool, String> {
        let read = fs::read_to_string(&self.path).map_err(|error| error.to_string());
        if read == self.read {
            return Ok(false);
        }
        self.read = read;
        let text = self.read.as_ref().map_err(String::clone)?;
        let list = text.parse().map_err(|error| format!("{error}"))?;
        self.list.set(list);
        Ok(true)
    }

    /// Reloads the list again and again.
    async fn watch(mut self, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            match self.reload() {
                Ok(false) => {}
                Ok(true) => println!("the list was loaded again"),
                Err(error) => println!("the old list stays: {error}"),
            }
        }
    }
}

/// Replaces a file as a whole, so that no reader sees half of it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let aside = path.with_extension("new");
    fs::write(&aside, text)?;
    fs::rename(aside, path)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("blocked-{}.txt", std::process::id()));
    replace(&path, "203.0.113.0/24  # a scanner\n")?;
    let file = ListFile::open(&path)?;

    let clients = ClientIp::peer();
    let limit = RateLimitLayer::new(clients.clone(), TokenBucket::new(Quota::per_second(10)))
        .skip(clients.within(Networks::new(["192.0.2.0/24"])))
        .block(clients.within(&file.list));
    let app = Router::new().route("/", get(async || "hello")).layer(limit);
    // A server would look every few seconds.
    tokio::spawn(file.watch(Duration::from_millis(10)));
    let reloaded = async || tokio::time::sleep(Duration::from_millis(200)).await;

    let status = async |address: [u8; 4]| {
        let mut request = Request::new(Body::empty());
        // No server here: set the address that a server would set per connection.
        let peer = PeerAddr(SocketAddr::from((address, 4711)));
        request.extensions_mut().insert(peer);
        let Ok(response) = app.clone().oneshot(request).await;
        response.status().as_u16()
    };
    let scanner = [203, 0, 113, 9];
    let crawler = [198, 51, 100, 7];
    println!(
        "scanner {}, crawler {}",
        status(scanner).await,
        status(crawler).await
    );
    assert_eq!([status(scanner).await, status(crawler).await], [403, 200]);

    replace(&path, "198.51.100.0/24\n!198.51.100.128/25\n")?;
    reloaded().await;
    assert_eq!([status(scanner).await, status(crawler).await], [200, 403]);

    // A mistake: the old list stays.
    replace(&path, "198.51.100.7/24\n")?;
    reloaded().await;
    assert_eq!([status(scanner).await, status(crawler).await], [200, 403]);

    fs::remove_file(&path)?;
    reloaded().await;
    assert_eq!(status(crawler).await, 403);
    Ok(())
}
