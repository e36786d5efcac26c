use axum::{body::to_bytes, http::StatusCode};
use serde_json::json;

use super::{get, post};
use crate::{ADDRESS, app, page::FILES};

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
