//! A policy as a title.

use std::{fmt::Write, time::Duration};

/// The text of a policy with durations as people write them: `; max_wait_ns=2500000000` becomes
/// `; max_wait=2.5s`.
pub(crate) fn readable(policy: &str) -> String {
    let mut rest = policy;
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once("_ns=") {
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = after.split_at(digits);
        text.push_str(before);
        match number.parse().map(Duration::from_nanos) {
            Ok(duration) => {
                let _ = write!(text, "={duration:?}");
            }
            Err(_) => text = text + "_ns=" + number,
        }
        rest = tail;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn a_title_has_durations_with_units() {
        let policy =
            "token_bucket 10/s; max_wait_ns=2500000000; queue=5 + warm_up 1/s; warm_up_ns=7";
        let title = "token_bucket 10/s; max_wait=2.5s; queue=5 + warm_up 1/s; warm_up=7ns";
        assert_eq!(readable(policy), title);
        assert_eq!(
            readable("lockout 3/min; block_ns=?"),
            "lockout 3/min; block_ns=?"
        );
    }
}
