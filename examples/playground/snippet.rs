//! A policy as Rust and as TOML.

use std::fmt::Write;

/// The policy as an entry of a file of policies.
pub(crate) fn toml(line: &str) -> String {
    // A success of any request would clear the failures otherwise, and a file is refused.
    let matched = if line.contains("on_success=clear") {
        "match = { path = \"/login\", methods = \"POST\" }\n"
    } else {
        ""
    };
    format!(
        "version = 1\n\n[[limit]]\nname = \"playground\"\n{matched}limit = \"{line}\"\nkey = \"client_ip\"\n"
    )
}

/// The longest chain of calls in one line, as rustfmt has it.
const CHAIN: usize = 60;

/// An axum application with the policy. `line` is a policy as the library prints it.
pub(crate) fn rust(line: &str) -> String {
    let terms: Vec<_> = line.split(" + ").map(Term::of).collect();
    let mut names = vec!["ClientIp", "Quota", "RateLimitLayer"];
    names.extend(terms.iter().map(|term| term.name));
    names.sort_unstable();
    names.dedup();
    let limit = match &*terms {
        [one] => one.code("        "),
        several => {
            several.iter().fold("(\n".to_owned(), |text, term| {
                text + "        " + &term.code("            ") + ",\n"
            }) + "    )"
        }
    };
    // A queue is that of the layer.
    let layer = terms.iter().flat_map(|term| &term.of_layer);
    let layer: Vec<_> = layer.map(|call| format!("\n        .{call}")).collect();
    let layer = layer.concat();
    let mut text = String::new();
    if limit.contains("Duration::") || layer.contains("Duration::") {
        text.push_str("use std::time::Duration;\n\n");
    }
    let _ = write!(
        text,
        "use axum::{{Router, routing::get}};\n\
         use tower_throttle::{{{names}}};\n\n\
         /// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, which passes on the\n\
         /// address of the client, and with the feature `axum` of tower-throttle.\n\
         pub fn app() -> Router {{\n    \
             let limit = {limit};\n    \
             let layer = RateLimitLayer::new(ClientIp::peer(), limit){layer};\n    \
             Router::new().route(\"/\", get(async || \"hello\").layer(layer))\n\
         }}\n",
        names = names.join(", "),
    );
    text
}

/// One algorithm as Rust.
struct Term {
    /// The name of its type.
    name: &'static str,
    /// The call of its constructor.
    new: String,
    /// The calls that set its options.
    calls: Vec<String>,
    /// The calls that set the queue of the layer.
    of_layer: Vec<String>,
}

impl Term {
    fn of(text: &str) -> Self {
        let mut parts = text.split("; ");
        let head = parts.next().and_then(|head| head.split_once(' '));
        let (algorithm, rate) = head.unwrap_or_default();
        let options: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let option = |name: &str| {
            let found = options.iter().find(|(other, _)| *other == name);
            found.map(|(_, setting)| *setting)
        };
        let mut quota = quota(rate);
        if let Some(burst) = option("burst") {
            let _ = write!(quota, ".burst({})", number(burst));
        }
        let name = type_name(algorithm);
        let new = match option("warm_up") {
            Some(length) => format!("{name}::new({quota}, {})", duration(length)),
            None => format!("{name}::new({quota})"),
        };
        let is_of_layer = |name: &str| ["queue", "max_wait"].contains(&name);
        let calls = |of_layer| {
            let options = options.iter();
            let own = options.filter(move |(name, _)| is_of_layer(name) == of_layer);
            own.filter_map(|(name, setting)| call(name, setting))
                .collect()
        };
        Self {
            name,
            new,
            calls: calls(false),
            of_layer: calls(true),
        }
    }

    /// In one line, or with one line per call.
    fn code(&self, indent: &str) -> String {
        let calls: usize = self.calls.iter().map(|call| call.len() + 1).sum();
        let fits = self.new.len() + calls <= CHAIN;
        let (between, after) = if fits { ("", "") } else { ("\n", indent) };
        self.calls.iter().fold(self.new.clone(), |text, call| {
            text + between + after + "." + call
        })
    }
}

/// The call that sets an option, unless it is an argument elsewhere.
fn call(name: &str, setting: &str) -> Option<String> {
    let is_number = setting.bytes().all(|byte| byte.is_ascii_digit());
    match name {
        "burst" | "warm_up" => None,
        "anchored" | "strict" => Some(format!("{name}()")),
        "on_success" => Some("clear_on_success()".to_owned()),
        _ if is_number => Some(format!("{name}({})", number(setting))),
        _ => Some(format!("{name}({})", duration(setting))),
    }
}

fn type_name(algorithm: &str) -> &'static str {
    match algorithm {
        "fixed_window" => "FixedWindow",
        "gcra" => "Gcra",
        "leaky_bucket" => "LeakyBucket",
        "lockout" => "Lockout",
        "sliding_grid" => "SlidingGrid",
        "sliding_log" => "SlidingLog",
        "sliding_window" => "SlidingWindow",
        "token_bucket" => "TokenBucket",
        "warm_up" => "WarmUp",
        // No algorithm has another name; this would not compile.
        _ => "UnknownAlgorithm",
    }
}

/// `10/s` as Rust.
fn quota(rate: &str) -> String {
    let (limit, period) = rate.split_once('/').unwrap_or_default();
    let limit = number(limit);
    match period {
        "s" => format!("Quota::per_second({limit})"),
        "min" => format!("Quota::per_minute({limit})"),
        "h" => format!("Quota::per_hour({limit})"),
        "d" => format!("Quota::per_day({limit})"),
        _ => format!("Quota::per({limit}, {})", duration(period)),
    }
}

/// `90s` as Rust; without a number it is one unit.
fn duration(text: &str) -> String {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (times, unit) = text.split_at(digits);
    let times: u128 = if times.is_empty() {
        1
    } else {
        times.parse().unwrap_or_default()
    };
    let (constructor, factor) = match unit {
        "ns" => ("from_nanos", 1),
        "us" => ("from_micros", 1),
        "ms" => ("from_millis", 1),
        "min" => ("from_secs", 60),
        "h" => ("from_secs", 3_600),
        "d" => ("from_secs", 86_400),
        "w" => ("from_secs", 604_800),
        _ => ("from_secs", 1),
    };
    format!(
        "Duration::{constructor}({})",
        number(&(times * factor).to_string())
    )
}

/// Digits in groups of three: `10_000`.
fn number(digits: &str) -> String {
    let mut grouped = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digits.len() > 4 {
            grouped.push('_');
        }
        grouped.push(digit);
    }
    grouped
}
