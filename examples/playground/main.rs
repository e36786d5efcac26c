//! A web page on which limits can be tried: `cargo run --example playground`
//!
//! It prints its address, `http://127.0.0.1:8080` unless `-- ADDRESS` names another; port 0 is a free
//! port.
//! The page has no passwords: with an address other than one of this machine, each machine of
//! the network can use it.

use std::error::Error;

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = match std::env::args().nth(1) {
        None => playground::ADDRESS,
        Some(text) => text
            .parse()
            .map_err(|_| format!("expected an address such as 127.0.0.1:8080, found {text:?}"))?,
    };
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, playground::app()).await?;
    Ok(())
}
