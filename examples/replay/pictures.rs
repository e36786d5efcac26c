//! Draws the pictures of the guide: the same traffic through every algorithm.
//!
//! ```text
//! cargo run --example pictures             # into docs/img
//! cargo run --example pictures -- FOLDER
//! ```

use std::{env, fs, io, path::PathBuf};

fn main() -> io::Result<()> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/img");
    let folder = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| docs.into()));
    for (name, svg) in replay::pictures().map_err(io::Error::other)? {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, svg)?;
        println!("{}", path.display());
    }
    Ok(())
}
