//! The pictures of the guide: the same traffic through every algorithm, and every kind of traffic
//! through one algorithm.

mod page;
mod panel;
mod run;
mod traffic;

use self::{page::Page, run::Run, traffic::TRAFFIC};

/// An algorithm in the pictures.
struct Subject {
    /// The name of its file.
    file: &'static str,
    title: &'static str,
    /// The policy; every limit is 10 per second.
    policy: &'static str,
}

const SUBJECTS: [Subject; 8] = [
    Subject {
        file: "fixed_window",
        title: "FixedWindow",
        policy: r#"{"algorithm":"fixed_window","limit":10,"period_ns":1000000000}"#,
    },
    Subject {
        file: "sliding_window",
        title: "SlidingWindow",
        policy: r#"{"algorithm":"sliding_window","limit":10,"period_ns":1000000000}"#,
    },
    Subject {
        file: "sliding_grid",
        title: "SlidingGrid",
        policy: r#"{"algorithm":"sliding_grid","limit":10,"period_ns":1000000000}"#,
    },
    Subject {
        file: "sliding_log",
        title: "SlidingLog",
        policy: r#"{"algorithm":"sliding_log","limit":10,"period_ns":1000000000}"#,
    },
    Subject {
        file: "token_bucket",
        title: "TokenBucket",
        policy: r#"{"algorithm":"token_bucket","limit":10,"period_ns":1000000000}"#,
    },
    Subject {
        file: "leaky_bucket",
        title: "LeakyBucket, burst(1), queue(10)",
        policy: r#"{"algorithm":"leaky_bucket","limit":10,"period_ns":1000000000,"burst":1,"queue":10}"#,
    },
    Subject {
        file: "warm_up",
        title: "WarmUp, 2 s, queue(10)",
        policy: r#"{"algorithm":"warm_up","limit":10,"period_ns":1000000000,"warm_up_ns":2000000000,"queue":10}"#,
    },
    Subject {
        file: "lockout",
        title: "Lockout, block 1 s",
        policy: r#"{"algorithm":"lockout","limit":10,"period_ns":1000000000,"block_ns":1000000000}"#,
    },
];

/// The limit of every subject per second.
const LIMIT: u64 = 10;

/// All pictures: their paths below `docs/img`, and their SVG.
///
/// # Errors
///
/// If a policy of a picture is invalid.
pub fn pictures() -> Result<Vec<(String, String)>, String> {
    let mut pictures = Vec::new();
    for traffic in &TRAFFIC {
        let runs = SUBJECTS.iter().map(|subject| {
            let run = Run::new(subject.policy, traffic)?;
            Ok((subject.title, run))
        });
        let runs = runs.collect::<Result<Vec<_>, String>>()?;
        let page = Page {
            title: format!("{}, limit 10 per second", traffic.title),
            says: traffic.says,
            per_row: 4,
            runs,
        };
        pictures.push((format!("{}.svg", traffic.file), page.svg()));
    }
    for subject in &SUBJECTS {
        let runs = TRAFFIC.iter().map(|traffic| {
            let run = Run::new(subject.policy, traffic)?;
            Ok((traffic.title, run))
        });
        let runs = runs.collect::<Result<Vec<_>, String>>()?;
        let page = Page {
            title: format!("{}, limit 10 per second", subject.title),
            says: "Six kinds of traffic.",
            per_row: 3,
            runs,
        };
        pictures.push((format!("algorithms/{}.svg", subject.file), page.svg()));
    }
    Ok(pictures)
}

#[cfg(test)]
mod tests {
    use super::{SUBJECTS, TRAFFIC, pictures, run::Run};

    fn run(file: &str, traffic: &str) -> Run {
        let subject = SUBJECTS.iter().find(|subject| subject.file == file);
        let traffic = TRAFFIC.iter().find(|one| one.file == traffic);
        let (subject, traffic) = (subject.expect("a subject"), traffic.expect("a traffic"));
        Run::new(subject.policy, traffic).expect("a policy")
    }

    #[test]
    fn the_burst_shows_twice_the_limit_only_with_fixed_windows() {
        let most = |file| run(file, "burst").most_in_a_second();
        assert_eq!(most("fixed_window"), 20);
        assert_eq!(most("sliding_log"), 10);
        for subject in SUBJECTS {
            assert!(most(subject.file) < 20 || subject.file == "fixed_window");
        }
    }

    #[test]
    fn one_client_is_never_denied_because_of_the_other() {
        for subject in SUBJECTS {
            let run = run(subject.file, "two_clients");
            assert_eq!(run.denied_of(1), 0, "{}", subject.file);
            assert!(run.denied_of(0) > 0, "{}", subject.file);
        }
    }

    #[test]
    fn denied_clients_of_the_storm_come_again_until_they_are_admitted() {
        let log = run("sliding_log", "retry_storm");
        assert!(log.offered() > 40, "{}", log.offered());
        assert!(run("leaky_bucket", "retry_storm").offered() < log.offered());
    }

    #[test]
    fn a_picture_can_be_a_data_url_and_names_every_run_for_screen_readers() {
        let pictures = pictures().expect("policies");
        assert_eq!(pictures.len(), SUBJECTS.len() + TRAFFIC.len());
        for (name, svg) in pictures {
            assert!(
                svg.is_ascii() && !svg.contains(['#', '%', '\'', '&', '\t']),
                "{name}"
            );
            assert!(
                !svg.contains("\n\n"),
                "a blank line ends HTML in Markdown: {name}"
            );
            let (_, description) = svg.split_once("<desc>").expect("a description");
            let (description, _) = description.split_once("</desc>").expect("an end");
            let by_algorithm = name.starts_with("algorithms/");
            if by_algorithm {
                assert!(
                    TRAFFIC.iter().all(|one| description.contains(one.title)),
                    "{name}"
                );
            } else {
                assert!(
                    SUBJECTS.iter().all(|one| description.contains(one.title)),
                    "{name}"
                );
            }
        }
    }
}
