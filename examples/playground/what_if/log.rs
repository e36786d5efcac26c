//! Requests in an uploaded log.

use std::collections::HashMap;

use super::requests::{MAX_REQUESTS, Request, Requests};

/// Reads an access log, or a trace of the example `replay`.
pub(super) fn read(text: &str) -> Result<Requests, String> {
    let logged = replay::read_log(text)?;
    if logged.len() as u64 > MAX_REQUESTS {
        let found = logged.len();
        return Err(format!(
            "log: expected at most {MAX_REQUESTS} requests, found {found}"
        ));
    }
    let mut clients = Vec::new();
    let mut known = HashMap::new();
    let request = |logged: replay::Request| {
        let client = *known.entry(logged.client).or_insert_with_key(|name| {
            clients.push(name.clone());
            clients.len() - 1
        });
        Request {
            at: logged.at,
            client,
            cost: logged.cost,
        }
    };
    let requests = logged.into_iter().map(request).collect();
    Ok(Requests::Read { clients, requests })
}
