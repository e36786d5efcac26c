//! Limits a service that is not HTTP: `cargo run --example plain_service`
//!
//! A print service takes jobs. A tenant may print 100 pages per hour; a job costs its pages.

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
    RateLimited { retry_after: Option<u64> },
}

/// `AsError` needs this conversion.
impl From<RateLimited> for JobError {
    fn from(limited: RateLimited) -> Self {
        Self::RateLimited {
            retry_after: limited.retry_after_secs(),
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited {
                retry_after: Some(seconds),
            } => write!(f, "retry in {seconds} s"),
            Self::RateLimited { retry_after: None } => f.write_str("the job is too large"),
        }
    }
}

async fn print(job: Job) -> Result<u64, JobError> {
    Ok(job.pages)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), JobError> {
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
    let mut results = Vec::new();
    for (tenant, pages) in [(ann, 60), (ann, 60), (bob, 60), (ann, 40), (bob, 101)] {
        let job = Job { tenant, pages };
        let result = printer.ready().await?.call(job).await;
        match &result {
            Ok(pages) => println!("{}: printed {pages} pages", tenant.0),
            Err(error) => println!("{}: {pages} pages refused, {error}", tenant.0),
        }
        results.push(result.is_ok());
    }
    assert_eq!(results, [true, false, true, true, false]);
    println!("{:?}", handle.counts());
    Ok(())
}
