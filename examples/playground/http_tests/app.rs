use axum::{body::to_bytes, http::StatusCode};
use serde_json::json;

use super::{get, post};
use crate::{ADDRESS, app, page::FILES, policy::Policy};

#[tokio::test]
async fn every_file_of_the_page_is_served() {
    let app = app();
    for (path, media, text) in FILES {
        let response = get(&app, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()["content-type"], media);
        let allowed = response.headers()["content-security-policy"]
            .to_str()
            .unwrap();
        assert!(
            allowed.starts_with("default-src 'self';"),
            "{path}: {allowed}"
        );
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(body, text, "{path}");
    }
}

#[test]
fn only_this_machine_can_connect() {
    assert!(ADDRESS.ip().is_loopback());
}

#[test]
fn the_page_needs_no_other_files() {
    let served = |name: &str| FILES.iter().any(|(path, _, _)| *path == format!("/{name}"));
    for (path, _, text) in FILES {
        let names = ["from \"./", "src=\"", "href=\"", "url("];
        for (name, at) in names
            .iter()
            .flat_map(|name| text.match_indices(name).map(move |(at, _)| (name, at)))
        {
            let rest = &text[at + name.len()..];
            let end = rest.find(['"', ')']).unwrap();
            let own = &rest[..end];
            assert!(
                own.starts_with(['#', '$']) || own == "data:," || served(own),
                "{path} needs {own}"
            );
        }
        let namespace = "http://www.w3.org/2000/svg";
        let others = text.replace(namespace, "");
        assert!(
            !others.contains("http://") && !others.contains("https://"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn each_policy_is_printed_or_refused_on_its_own() {
    let texts = json!({ "policies": ["token_bucket  10/s;burst = 50", "token_buket 1/s", "concurrency 3"] });
    let (status, checked) = post(&app(), "/api/policies", texts).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(checked[0]["line"], "token_bucket 10/s; burst=50");
    assert!(
        checked[1]["error"]
            .as_str()
            .unwrap()
            .ends_with("did you mean token_bucket?"),
        "{checked}"
    );
    assert!(
        checked[2]["error"]
            .as_str()
            .unwrap()
            .contains("concurrency"),
        "{checked}"
    );
}

/// The strings in a JavaScript list that begins after `start`.
fn strings(script: &str, start: &str) -> Vec<String> {
    let at = script.find(start).unwrap() + start.len();
    let list = &script[at..at + script[at..].find(";\n").unwrap()];
    let quoted = list.split('"').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

#[test]
fn the_policies_on_the_page_are_valid_and_have_exactly_these_options() {
    let examples = strings(include_str!("../page/policies.js"), "const EXAMPLES = ");
    assert_eq!(examples.len(), 3 * 8);
    for example in examples.chunks(3) {
        let (line, options) = (&example[0], &example[2]);
        line.parse::<Policy>().unwrap();
        let refused = format!("{line}; nonsense=1").parse::<Policy>().unwrap_err();
        let allowed = refused
            .split("expected ")
            .nth(1)
            .unwrap()
            .split(": ")
            .next();
        let allowed: Vec<_> = allowed.unwrap().split(", ").collect();
        let listed: Vec<_> = options
            .split([',', ' '])
            .filter(|word| !word.is_empty() && *word != "or")
            .collect();
        let none = vec!["no options"];
        assert_eq!(
            if listed.is_empty() { none } else { listed },
            allowed,
            "{line}"
        );
    }
    for first in strings(
        include_str!("../page/setting.js"),
        "const FIRST_POLICIES = ",
    ) {
        assert_eq!(first.parse::<Policy>().unwrap().line(), first);
    }
}
