//! The app, and the file with its limits.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::Response,
    routing::{get, post},
};
use tower_throttle::policy::{Environment, PolicyFile, PolicyHandle, PolicyLayer, Reloaded};

/// The account that a request names, for the key `extension:account`.
#[derive(Clone)]
struct Account(String);

/// A real app finds the account in the form or the token.
async fn find_account(mut request: Request, next: Next) -> Response {
    let account = request.headers().get("x-account");
    if let Some(Ok(account)) = account.map(|account| account.to_str()) {
        let account = Account(account.to_owned());
        request.extensions_mut().insert(account);
    }
    next.run(request).await
}

async fn login(request: Request) -> StatusCode {
    match request.headers().get("x-password") {
        Some(password) if password == "secret" => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    }
}

pub(crate) fn app(limits: PolicyLayer) -> Router {
    Router::new()
        .route("/search", get(async || "found"))
        .route("/login", post(login))
        .layer(limits)
        .layer(from_fn(find_account))
}

/// A policy file that may change while the app runs.
pub(crate) struct WatchedFile {
    path: PathBuf,
    handle: PolicyHandle,
}

impl WatchedFile {
    /// Reads the file, which has to be right at the start.
    pub(crate) fn open(path: &Path) -> Result<(PolicyLayer, Self), Box<dyn Error>> {
        let environment = Environment::new()
            .folder(path.parent().unwrap_or_else(|| Path::new("")))
            .extension("account", |extensions| {
                Some(extensions.get::<Account>()?.0.clone())
            });
        let file = PolicyFile::from_toml(&fs::read_to_string(path)?)?;
        let limits = PolicyLayer::new(file, environment)?;
        let watched = Self {
            path: path.to_owned(),
            handle: limits.handle(),
        };
        watched.print_warnings();
        Ok((limits, watched))
    }

    /// Loads the file again, with the files of its lists. If something is wrong, the limits stay as they
    /// were, and the error names the line.
    pub(crate) fn reload(&self) -> Result<Reloaded, Box<dyn Error>> {
        let file = PolicyFile::from_toml(&fs::read_to_string(&self.path)?)?;
        let reloaded = self.handle.reload(file)?;
        if reloaded != Reloaded::default() {
            self.print_warnings();
        }
        Ok(reloaded)
    }

    /// What is allowed and yet probably a mistake, such as a list without networks.
    fn print_warnings(&self) {
        for warning in self.handle.warnings() {
            eprintln!("{}: {warning}", self.path.display());
        }
    }
}

/// Replaces a file as a whole, so that no reader sees half of it.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let aside = path.with_extension("new");
    fs::write(&aside, text)?;
    fs::rename(aside, path)
}
