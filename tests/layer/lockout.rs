//! A lockout in a layer: what counts as a failure, and what an operator can do.

use std::time::Duration;

use tokio_test::{assert_pending, assert_ready, task};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::{AsError, Global, Local, Lockout, ManualClock, Quota, RateLimitLayer, Settle};

use tokio::sync::oneshot;

/// What an attempt ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Right,
    Wrong,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as a layer calls it")]
fn settle(end: &End) -> Settle {
    match end {
        End::Right => Settle::Forgive,
        End::Wrong => Settle::Keep,
    }
}

fn lockout() -> Lockout {
    Lockout::new(Quota::per(5, Duration::from_secs(900)))
}

/// An attempt that ends when it is told how.
type Call = oneshot::Receiver<End>;

/// The service of attempts that end when they are told how.
fn slow(
    limit: Local<Lockout, ManualClock>,
) -> impl Service<Call, Response = End, Error = BoxError, Future: Send> + Clone {
    let layer = RateLimitLayer::new(Global, limit)
        .respond(AsError)
        .settle(settle);
    layer.layer(service_fn(async |end: Call| {
        Ok::<End, BoxError>(end.await?)
    }))
}

/// Shows promise 190.
#[tokio::test]
async fn a_hundred_concurrent_guesses_are_five_and_their_successes_free_them() {
    let local = Local::new(lockout()).with_clock(ManualClock::new());
    let mut service = slow(local.clone());
    let mut guesses = Vec::new();
    for _ in 0..100 {
        let (tell, end) = oneshot::channel();
        let mut guess = task::spawn(service.ready().await.unwrap().call(end));
        if guess.poll().is_pending() {
            guesses.push((guess, tell));
        }
    }
    assert_eq!(guesses.len(), 5);
    for (mut guess, tell) in guesses {
        tell.send(End::Right).unwrap();
        assert_eq!(assert_ready!(guess.poll()).unwrap(), End::Right);
    }
    assert_eq!(local.peek(&(), 1).remaining(), 5);
}

/// Shows promise 190.
#[tokio::test]
async fn a_guess_whose_client_hangs_up_counts() {
    let clock = ManualClock::new();
    let local = Local::new(lockout()).with_clock(clock.clone());
    let mut service = slow(local.clone());
    for _ in 0..5 {
        let (_tell, end) = oneshot::channel();
        let mut guess = task::spawn(service.ready().await.unwrap().call(end));
        assert_pending!(guess.poll());
        drop(guess);
    }
    assert!(local.peek(&(), 1).is_denied());
}

/// Shows promise 190.
#[tokio::test]
async fn an_end_from_before_a_pardon_changes_nothing() {
    let clock = ManualClock::new();
    let local = Local::new(lockout()).with_clock(clock.clone());
    let layer = RateLimitLayer::new(Global, local)
        .respond(AsError)
        .settle(settle);
    let handle = layer.handle();
    let mut service = layer.layer(service_fn(async |end: Call| {
        Ok::<End, BoxError>(end.await?)
    }));
    for failures in [3, 5] {
        let (tell, end) = oneshot::channel();
        let mut guess = task::spawn(service.ready().await.unwrap().call(end));
        assert_pending!(guess.poll());
        clock.advance(Duration::from_secs(1));
        let _ = handle.reset(&()).await;
        let _ = handle.charge(&(), failures).await;
        let before = handle.peek_now(&(), 1);
        tell.send(End::Right).unwrap();
        assert_eq!(assert_ready!(guess.poll()).unwrap(), End::Right);
        assert_eq!(handle.peek_now(&(), 1), before);
    }
    assert!(handle.peek_now(&(), 1).is_denied());
    let _ = handle.reset(&()).await;
    assert_eq!(handle.peek_now(&(), 0).remaining(), 5);
}

/// Shows promise 190.
#[tokio::test]
async fn a_lockout_by_pair_and_one_by_address_count_an_attempt_together() {
    type Attempt = (&'static str, &'static str, End);
    let pair = |attempt: &Attempt| format!("{} {}", attempt.0, attempt.1);
    let address = |attempt: &Attempt| attempt.1.to_owned();
    let per_address = Lockout::new(Quota::per_day(8)).block(Duration::from_secs(900));
    let layer = RateLimitLayer::new(pair, lockout().clear_on_success())
        .and(RateLimitLayer::new(address, per_address))
        .respond(AsError)
        .settle(|attempt: &Attempt| settle(&attempt.2));
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |attempt: Attempt| {
        Ok::<_, BoxError>(attempt)
    }));
    let attempt = |account, address, end| {
        let sent = service.clone().oneshot((account, address, end));
        async { sent.await.is_ok() }
    };
    let owner = "192.0.2.1";
    let attacker = "203.0.113.9";
    for n in 0..6 {
        assert_eq!(attempt("ann", attacker, End::Wrong).await, n < 5, "{n}");
    }
    assert!(attempt("ann", owner, End::Right).await, "not locked out");
    // A success clears the failures of the pair, and not those of the address.
    assert!(attempt("mallory", attacker, End::Right).await);
    for n in 0..5 {
        assert_eq!(attempt("bob", attacker, End::Wrong).await, n < 3, "{n}");
    }
    assert!(handle.second().peek_now(attacker, 1).is_denied());
    let _ = handle.second().charge(owner, 8).await;
    assert!(!attempt("ann", owner, End::Right).await);
}
