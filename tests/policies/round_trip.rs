//! A policy that is written is read back equal.

use std::fmt::Write;

use test_support::random::Random;
use tower_throttle::policy::PolicyFile;

const LINES: [&str; 9] = [
    "token_bucket 10/s",
    "token_bucket 7/min; queue=3; burst=9; initial=0; max_wait=90s",
    "leaky_bucket 3/s; queue=2; max_wait=1s",
    "fixed_window 100/week; offset=4d",
    "sliding_grid 60/h; strict=true; cells=12",
    "sliding_log 5/min + token_bucket 1/s",
    "warm_up 100/s; warm_up=10s",
    "lockout 5/15min; on_success=clear",
    "concurrency 20; queue=5; max_wait=1500ms",
];

const KEYS: [&str; 6] = [
    "\"client_ip\"",
    "\"client_ip/56\"",
    "\"header:X-Key\"",
    "\"bearer\"",
    "[\"matched_path\", \"client_ip\"]",
    "[\"extension:account\"]",
];

const BY_HEADER: [&str; 2] = [
    "headers = { X-Plan = [\"pro\", \"max\"], x-region = \"eu\" }",
    "headers = { x-plan = \"pro\" }",
];

const BY_KEY: [&str; 2] = ["key = \"acme\"", "prefix = \"team-\""];

const FORMS: [&str; 5] = [
    "none",
    "draft-11",
    "draft-6",
    "x-ratelimit",
    "x-ratelimit-epoch",
];

/// A valid file.
fn random_file(random: &mut Random) -> String {
    let mut text = "version = 1\n".to_owned();
    let mut uses_list = false;
    let mut uses_store = false;
    for number in 0..random.below(5) {
        let line = *random.pick(&LINES);
        let in_flight = line.starts_with("concurrency");
        writeln!(
            text,
            "[[limit]]\nname = \"limit-{number}\"\nlimit = \"{line}\""
        )
        .unwrap();
        let key = *random.pick(&KEYS);
        writeln!(text, "key = {key}").unwrap();
        // Two limits that are equal are refused.
        writeln!(
            text,
            "match = {{ path = [\"/{number}\", \"/{{id}}/x\"], methods = [\"GET\", \"PUT\"], headers = {{ x-a = \"b\" }} }}"
        )
        .unwrap();
        if random.below(2) == 0 {
            text += *random.pick(&[
                "missing = 401\n",
                "missing = \"skip\"\n",
                "missing = \"shared\"\n",
            ]);
        }
        if random.below(3) == 0 {
            uses_list = true;
            text += "except = \"office\"\n";
        }
        if random.below(2) == 0 {
            text += *random.pick(&["shadow = true\n", "shadow = false\n"]);
        }
        if random.below(2) == 0 {
            let form = *random.pick(&FORMS);
            writeln!(text, "headers = \"{form}\"").unwrap();
        }
        match random.below(3) {
            0 if !in_flight => {
                uses_store = true;
                text += "store = \"shared\"\n";
                text += *random.pick(&[
                    "",
                    "on_store_error = \"deny\"\n",
                    "on_store_error = \"allow\"\n",
                ]);
            }
            1 if !in_flight => text += "store = \"memory\"\ncapacity = 77\n",
            _ => {}
        }
        if !in_flight && random.below(2) == 0 {
            text += *random.pick(&[
                "failure = 500\n",
                "failure = [401, 403]\n",
                "failure = [401, 404, 429]\n",
            ]);
        }
        let plan = *random.pick(&["", "blocked = true\n", "unlimited = true\n"]);
        text += plan;
        if random.below(2) == 0 {
            let other = line.replacen(char::is_numeric, "9", 1);
            let other = match *random.pick(&["", "blocked = true", "unlimited = true"]) {
                other if !other.is_empty() && plan.trim_end() != other => other.to_owned(),
                _ => format!("limit = \"{other}\""),
            };
            let is_text = !key.contains("client_ip");
            let requests = *random.pick(if is_text { &BY_KEY } else { &BY_HEADER });
            writeln!(
                text,
                "[[limit.override]]\nname = \"other-{number}\"\n{requests}\n{other}"
            )
            .unwrap();
        }
    }
    if random.below(2) == 0 {
        uses_list = true;
        text += "[[deny]]\nlist = \"office\"\n";
        text += *random.pick(&["", "match = { path = \"/{*all}\" }\n"]);
    }
    if uses_list {
        text += "[lists]\n";
        text += *random.pick(&[
            "office = { file = \"office.cidr\" }\n",
            "office = { cidrs = [\"192.0.2.0/24\", \"!192.0.2.7\"] }\n",
        ]);
    }
    if uses_store {
        text += "[stores]\n";
        text += *random.pick(&[
            "shared = { redis = \"redis://cache:6379\", deadline_ms = 250 }\n",
            "shared = { postgres = \"postgres://db/x\" }\n",
        ]);
    }
    text
}

/// Shows promise 221.
#[test]
fn every_file_is_written_and_read_back_equal_in_each_format() {
    let mut random = Random::new(7);
    for _ in 0..500 {
        let text = random_file(&mut random);
        let file = PolicyFile::from_toml(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        let toml = toml::to_string(&file).unwrap();
        assert_eq!(
            PolicyFile::from_toml(&toml).unwrap(),
            file,
            "{text}\n{toml}"
        );
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(
            serde_json::from_str::<PolicyFile>(&json).unwrap(),
            file,
            "{text}\n{json}"
        );
        let yaml = serde_norway::to_string(&file).unwrap();
        assert_eq!(
            serde_norway::from_str::<PolicyFile>(&yaml).unwrap(),
            file,
            "{text}\n{yaml}"
        );
    }
}
