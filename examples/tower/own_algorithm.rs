//! An algorithm of your own: `cargo run --example own_algorithm`
//!
//! After each admitted request a key pauses for the quota's period.

use std::time::Duration;

use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_throttle::algorithm::{Algorithm, Cost, GiveBack};
use tower_throttle::{
    AsError, Decision, Limiter, Local, Quota, RateLimitLayer, RateLimited, Verdict, clock::Tick,
};

#[derive(Clone, Debug)]
pub(crate) struct Cooldown(pub(crate) Quota);

impl Algorithm for Cooldown {
    /// The end of the pause.
    type State = Tick;

    fn quota(&self) -> Quota {
        self.0
    }

    fn fresh(&self, _now: Tick) -> Tick {
        Tick::ZERO
    }

    fn decide(&self, end: &mut Tick, now: Tick, cost: u64) -> Decision {
        let left = |end: Tick| end.as_nanos().saturating_sub(now.as_nanos());
        if cost > 1 {
            // Never admitted, so there is no `retry_after`.
            return Decision::new(Verdict::Deny, 1, u64::from(*end <= now), None, left(*end));
        }
        if cost > 0 && *end > now {
            return Decision::new(Verdict::Deny, 1, 0, Some(left(*end)), left(*end));
        }
        if cost > 0 {
            *end = now.plus(self.0.period());
        }
        Decision::new(Verdict::Admit, 1, u64::from(*end <= now), None, left(*end))
    }

    fn refund(&self, end: &mut Tick, now: Tick, cost: Cost, _: GiveBack) {
        // Ends the pause only if that is the one of this request.
        if cost.units > 0 && *end == cost.at.plus(self.0.period()) {
            *end = now.min(*end);
        }
    }

    fn charge(&self, end: &mut Tick, now: Tick, cost: u64) -> Duration {
        if cost > 0 {
            *end = now.plus(self.0.period()).max(*end);
        }
        Duration::ZERO
    }

    fn forgettable_at(&self, end: &Tick) -> Tick {
        *end
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let cooldown = Cooldown(Quota::per_hour(1));

    let limiter = Limiter::new(cooldown.clone());
    assert!(limiter.check(1).is_admitted());
    assert!(limiter.check(1).is_denied());

    let per_user = Local::new(cooldown.clone());
    assert!(per_user.check("ann", 1).is_admitted());
    assert!(per_user.check("bob", 1).is_admitted());
    assert!(per_user.check("ann", 1).is_denied());

    let layer = RateLimitLayer::new(|user: &String| user.clone(), cooldown).respond(AsError);
    let greet =
        service_fn(|user: String| async move { Ok::<_, RateLimited>(format!("hello {user}")) });
    let service = ServiceBuilder::new().layer(layer).service(greet);
    for (user, expected) in [("ann", true), ("bob", true), ("ann", false)] {
        let reply = service.clone().oneshot(user.to_owned()).await;
        println!("{user}: {reply:?}");
        assert_eq!(reply.is_ok(), expected);
    }
}
