//! The goals of adaptive limits, in the simulation.

#[path = "chart.rs"]
mod chart;
#[path = "simulation.rs"]
mod simulation;

use simulation::{EQUAL, Limiter, MIXED, Outcome, ServiceMs, simulate};

/// Of 100 requests to an idle server, 99 take at most this long.
const fn unloaded_p99_ms((least, most): ServiceMs) -> u64 {
    least + (most - least) * 99 / 100
}

/// Whether a limit lets the server work and keeps its latency low, whatever the server's capacity.
fn is_good(run: &Outcome, service_ms: ServiceMs) -> bool {
    eprintln!("{} %, p99 {} ms", run.served, run.p99_ms);
    run.served >= 90 && run.p99_ms < 2 * unloaded_p99_ms(service_ms)
}

/// `cargo run --release --example overload -- --svg docs/img/overload.svg` draws the picture anew.
///
/// Shows promise 185.
#[test]
fn gradient2_serves_nine_tenths_at_less_than_twice_the_unloaded_latency() {
    let runs = [EQUAL, MIXED].map(|service_ms| {
        let run = simulate(Limiter::Gradient2, service_ms);
        assert!(is_good(&run, service_ms));
        run.limits
    });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/img/overload.svg");
    let stored = std::fs::read_to_string(path).expect("the picture is stored");
    assert!(stored == chart::picture(&runs), "the picture is an old one");
}

/// Shows promise 185.
#[test]
fn aimd_does_so_with_a_bound_that_fits() {
    assert!(is_good(&simulate(Limiter::Aimd, MIXED), MIXED));
}

/// Shows promise 185.
#[test]
fn no_fixed_limit_does_so_for_every_capacity() {
    for limiter in [Limiter::None, Limiter::Fixed(15), Limiter::Fixed(60)] {
        let run = simulate(limiter, MIXED);
        assert!(!is_good(&run, MIXED), "{limiter:?}");
    }
}

/// Shows promise 185.
#[test]
fn a_fixed_limit_serves_as_many_as_that_of_tower() {
    let own = simulate(Limiter::Fixed(15), MIXED);
    let tower = simulate(Limiter::Tower(15), MIXED);
    assert_eq!((own.served, own.p99_ms), (tower.served, tower.p99_ms));
}
