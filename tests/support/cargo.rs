//! Cargo, started by a test.

use std::{env, process::Command};

/// Without the variables that cargo has set for the test: the build scripts of some libraries read
/// them, so cargo would build these libraries again, and all that use them, now and the next time.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_MANIFEST_") || text.starts_with("CARGO_PKG_") {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(crate::root());
    cargo
}
