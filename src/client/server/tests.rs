use super::*;

fn at(ms: u64) -> Tick {
    Tick::from_nanos((1_000_000 + ms) * 1_000_000)
}

fn says(remaining: u64, seconds: u64, limit: Option<u64>) -> Feedback {
    let reset = Duration::from_secs(seconds);
    Feedback {
        windows: vec![Window {
            remaining,
            reset,
            limit,
        }],
        ..Feedback::default()
    }
}

fn denied(wait: Option<u64>) -> Feedback {
    Feedback {
        is_denied: true,
        wait: wait.map(Duration::from_secs),
        ..Feedback::default()
    }
}

/// A server that was asked once and has said this at the moment 0.
fn told(feedback: &Feedback) -> KnownServer {
    let mut server = KnownServer::default();
    let number = server.send(at(0));
    server.learn(number, feedback, at(0));
    server.refresh(at(0));
    server
}

#[test]
fn the_first_request_goes_alone_until_its_response() {
    let mut server = KnownServer::default();
    assert!(server.turn(0) <= at(0));
    let first = server.send(at(0));
    assert_eq!(server.turn(0), at(1_000), "for at most a second");
    server.learn(first, &Feedback::default(), at(20));
    // A server that says nothing has no limit.
    assert!(server.turn(1_000) <= at(20));

    let mut silent = KnownServer::default();
    silent.send(at(0));
    silent.refresh(at(1_000));
    assert!(silent.turn(1_000) <= at(1_000));

    let mut lost = KnownServer::default();
    lost.send(at(0));
    lost.lose();
    assert!(lost.turn(0) <= at(1));
    lost.send(at(1));
    assert_eq!(lost.turn(0), at(1_001), "the next is the first");
}

/// Shows promise 310.
#[test]
fn requests_are_spaced_over_the_time_until_the_reset_from_half_of_the_limit_on() {
    let mut server = told(&says(6, 10, Some(10)));
    assert!(server.turn(0) <= at(0), "6 of 10 are more than half");
    server.send(at(0));
    // 5 for 10 s.
    for step in 1..=5 {
        assert_eq!(server.turn(0), at(2_000 * step));
        server.send(at(2_000 * step));
    }
    server.refresh(at(9_999));
    assert_eq!(server.turn(0), at(10_000), "none remains");
    server.refresh(at(10_000));
    assert!(server.turn(0) <= at(10_000));
    server.send(at(10_000));
    // One finds out what holds after the reset.
    assert_eq!(server.turn(0), at(11_000));
    // Without a limit requests are spaced at once.
    assert_eq!(told(&says(8, 10, None)).turn(0), at(1_250));
}

/// Shows promise 310.
#[test]
fn of_several_limits_the_strictest_counts() {
    let mut feedback = says(9, 1, Some(10));
    feedback
        .windows
        .extend(says(100, 1_000, Some(1_000)).windows);
    let mut server = told(&feedback);
    assert_eq!(server.turn(0), at(10_000));
    server.refresh(at(1_000));
    server.send(at(10_000));
    assert_eq!(server.turn(0), at(19_999 + 1), "the other one is kept");
}

/// Shows promise 310.
#[test]
fn a_response_may_not_count_the_requests_in_flight() {
    let mut server = told(&Feedback::default());
    let numbers: Vec<_> = (0..5).map(|_| server.send(at(0))).collect();
    server.learn(numbers[1], &says(3, 10, Some(10)), at(50));
    assert_eq!(server.turn(0), at(10_050), "four more are in flight");
    // An older response comes late.
    server.learn(numbers[0], &says(9, 10, Some(10)), at(60));
    assert_eq!(server.turn(0), at(10_050));
    server.learn(numbers[4], &says(9, 10, Some(10)), at(70));
    assert!(server.turn(0) <= at(70));
}

/// Shows promise 310.
#[test]
fn nothing_is_sent_before_the_time_of_a_denial() {
    let mut server = told(&denied(Some(30)));
    assert_eq!(server.turn(0), at(30_000));
    server.refresh(at(29_999));
    // A response to a request that was sent before changes nothing, also if the server admitted it.
    let number = server.send(at(0));
    server.learn(number, &says(9, 10, Some(10)), at(29_999));
    assert_eq!(server.turn(0), at(30_000));
    // A shorter denial neither.
    server.learn(number, &denied(Some(0)), at(29_999));
    assert_eq!(server.turn(0), at(30_000));
    server.refresh(at(30_000));
    server.send(at(30_000));
    assert_eq!(server.turn(0), at(31_000), "one first");
}

/// Shows promise 310.
#[test]
fn a_denial_without_a_time_doubles_the_wait() {
    let mut server = KnownServer::default();
    let mut now = at(0);
    for seconds in [1, 2, 4, 8] {
        let number = server.send(now);
        server.learn(number, &denied(None), now);
        assert_eq!(server.turn(0).since(now).as_secs(), seconds);
        now = server.turn(0);
        server.refresh(now);
    }
    for _ in 0..100 {
        let number = server.send(now);
        server.learn(number, &denied(None), now);
        now = server.turn(0);
        server.refresh(now);
    }
    assert_eq!(server.turn(0), now);
    let number = server.send(now);
    server.learn(number, &Feedback::default(), now);
    let number = server.send(now);
    server.learn(number, &denied(None), now);
    // A success begins anew.
    assert_eq!(server.turn(0).since(now).as_secs(), 1);
}

#[test]
fn a_server_without_a_limit_gets_requests_with_a_space_that_grows_with_its_denials() {
    let mut server = KnownServer::default();
    let mut turn = |feedback: &Feedback, ahead| {
        let number = server.send(at(0));
        server.learn(number, feedback, at(0));
        server.turn(ahead).since(at(0)).as_millis()
    };
    for space in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
        assert_eq!(turn(&denied(Some(0)), 0), space);
    }
    assert_eq!(turn(&Feedback::default(), 1), 1_937);
    assert_eq!(turn(&says(9, 10, Some(10)), 0), 0);
    // The second one was on its way already.
    assert_eq!([(); 2].map(|()| turn(&denied(Some(1)), 199)), [2_000; 2]);
}

#[test]
fn what_a_server_says_is_believed_for_a_bounded_time() {
    let year = 365 * 86_400;
    for mut server in [told(&denied(Some(year))), told(&denied(Some(u64::MAX)))] {
        assert_eq!(server.turn(0), at(3_600_000));
        server.refresh(at(3_600_000));
        server.send(at(3_600_000));
        assert_eq!(server.turn(0), at(3_601_000), "one finds out");
    }
    let mut server = told(&says(0, u64::MAX, Some(10)));
    assert_eq!(server.turn(5), at(3_600_000));
    server.refresh(at(3_600_000));
    assert!(server.turn(0) <= at(3_600_000));
    // A day: spaced by the day, not by the hour.
    let daily = told(&says(100, 86_400, Some(1_000)));
    assert_eq!(daily.turn(0), at(864_000));
}
