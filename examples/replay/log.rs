//! Reads a log as a list of requests, for other programs than `replay`.

use crate::{
    access_log,
    step::{Op, Step},
};

/// A request in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Nanoseconds. They do not decrease from one request to the next.
    pub at: u64,
    /// The client's address in an access log, the key in a trace.
    pub client: String,
    /// The cost; 1 in an access log.
    pub cost: u64,
}

/// The requests in an access log in the common or the combined format, or in a trace.
///
/// A text that begins with `{` is a trace. Its first line may be a policy, which is ignored. Only the
/// operations `check` and `acquire` are requests, and only `peek` is skipped.
///
/// # Errors
/// A sentence with the number of the first line that is neither, and what was expected there. So is a
/// text without requests.
pub fn read_log(text: &str) -> Result<Vec<Request>, String> {
    let is_trace = text.trim_ascii_start().starts_with('{');
    let mut requests: Vec<Request> = Vec::new();
    let mut is_first = true;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let is_policy = is_trace && is_first && names_algorithm(line);
        is_first = false;
        if is_policy {
            continue;
        }
        let step = if is_trace {
            Step::parse(line.as_bytes())
        } else {
            access_log::parse(line.as_bytes())
        };
        let request = step.and_then(request);
        let Some(mut request) = request.map_err(|fault| format!("line {number}: {fault}"))? else {
            continue;
        };
        // Servers log a request when it ends, so times may go back.
        if let Some(last) = requests.last() {
            request.at = request.at.max(last.at);
        }
        requests.push(request);
    }
    if requests.is_empty() {
        return Err("line 1: expected a request, found the end of the log".to_owned());
    }
    Ok(requests)
}

fn names_algorithm(line: &str) -> bool {
    let object: Result<serde_json::Value, _> = serde_json::from_str(line);
    object.is_ok_and(|object| object.get("t_ns").is_none())
}

fn request(step: Step) -> Result<Option<Request>, String> {
    match step.op {
        Op::Check { .. } | Op::Acquire { .. } => Ok(Some(Request {
            at: step.t_ns,
            client: step.key.unwrap_or_default(),
            cost: step.n,
        })),
        Op::Peek => Ok(None),
        other => Err(format!(
            "expected check, acquire or peek, found {}: the program replay runs all operations",
            other.name()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at: u64, client: &str, cost: u64) -> Request {
        let client = client.to_owned();
        Request { at, client, cost }
    }

    #[test]
    fn an_access_log_is_read_in_the_order_of_its_times() {
        let log = "192.0.2.7 - - [01/Jan/1970:00:00:05 +0000] \"GET / HTTP/1.1\" 200 2326\n\n\
                   192.0.2.8 - - [01/Jan/1970:00:00:04 +0000] \"GET / HTTP/1.1\" 200 -\r\n";
        let five = 5_000_000_000;
        let expected = [request(five, "192.0.2.7", 1), request(five, "192.0.2.8", 1)];
        assert_eq!(read_log(log), Ok(expected.to_vec()));
    }

    #[test]
    fn a_trace_is_read_without_its_policy() {
        let policy = r#"{"algorithm": "token_bucket", "limit": 1, "period_ns": 10}"#;
        let steps = r#"{"t_ns": 1, "key": "a", "n": 3}
            {"t_ns": 2, "op": "peek"}
            {"t_ns": 7, "op": "acquire"}"#;
        let expected = vec![request(1, "a", 3), request(7, "", 1)];
        assert_eq!(
            read_log(&format!("{policy}\n{steps}")),
            Ok(expected.clone())
        );
        assert_eq!(read_log(steps), Ok(expected));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (log, expected) in [
            ("", "line 1: expected a request"),
            ("\nhello\n", "line 2: expected a client's address"),
            (
                "{\"t_ns\": 1}\n{\"t_ns\": 2, \"op\": \"reset\"}",
                "line 2: expected check, acquire or peek, found reset",
            ),
            (
                "{\"t_ns\": 1}\n{\"t_ns\": 2, \"x\": 1}",
                "line 2: unknown field",
            ),
        ] {
            let fault = read_log(log).unwrap_err();
            assert!(fault.starts_with(expected), "{fault}");
        }
    }
}
