//! A limit for a service that is not HTTP: `cargo run --example plain_service`
//!
//! Jobs go through a queue of our own; a tenant that sends too many gets an error.

use std::fmt;

use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_throttle::{AsError, Quota, RateLimitLayer, RateLimited, TokenBucket, key::Key};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tenant(&'static str);

impl Key for Tenant {}

struct Job {
    tenant: Tenant,
    pages: u64,
}

#[derive(Debug)]
enum JobError {
    TooMuch { in_seconds: Option<u64> },
}

/// All that the layer asks for.
impl From<RateLimited> for JobError {
    fn from(limited: RateLimited) -> Self {
        let wait = limited.retry_after();
        Self::TooMuch {
            in_seconds: wait.map(|wait| wait.as_secs() + 1),
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMuch {
                in_seconds: Some(seconds),
            } => write!(f, "come back in {seconds} s"),
            Self::TooMuch { in_seconds: None } => f.write_str("split the job, it is too large"),
        }
    }
}

async fn print(job: Job) -> Result<u64, JobError> {
    Ok(job.pages)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), JobError> {
    // 100 pages an hour for each tenant; a job costs its pages.
    let limit = RateLimitLayer::new(
        |job: &Job| job.tenant,
        TokenBucket::new(Quota::per_hour(100)),
    )
    .cost(|job: &Job| job.pages)
    .respond(AsError);
    let handle = limit.handle();
    let mut printer = ServiceBuilder::new()
        .layer(limit)
        .service(service_fn(print));

    let (ann, bob) = (Tenant("ann"), Tenant("bob"));
    let mut outcomes = Vec::new();
    for (tenant, pages) in [(ann, 60), (ann, 60), (bob, 60), (ann, 40), (bob, 101)] {
        let job = Job { tenant, pages };
        let outcome = printer.ready().await?.call(job).await;
        match &outcome {
            Ok(pages) => println!("{}: printed {pages} pages", tenant.0),
            Err(error) => println!("{}: {pages} pages refused, {error}", tenant.0),
        }
        outcomes.push(outcome.is_ok());
    }
    assert_eq!(outcomes, [true, false, true, true, false]);
    println!("{:?}", handle.counts());
    Ok(())
}
