//! Which denials are answered with HTTP status 200.

use axum::{Router, body::Body, routing::any};
use http::{Method, Request, Version};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer};

use crate::client::support::{policy, serve};

async fn send(
    address: std::net::SocketAddr,
    version: Version,
    request: Request<Body>,
) -> http::response::Parts {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let response = if version == Version::HTTP_2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await
    } else {
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await
    };
    response.unwrap().into_parts().0
}

/// Shows promise 74.
#[tokio::test]
async fn only_a_request_that_is_grpc_by_its_specification_is_denied_with_status_200() {
    let once = || FixedWindow::new(Quota::per_day(1));
    let limit = "[[limit]]\nname = \"all\"\nlimit = \"fixed_window 1/d\"\nkey = \"global\"";
    let deny = "[lists]\nall = { cidrs = [\"127.0.0.0/8\"] }\n[[deny]]\nlist = \"all\"";
    let app = Router::new().route("/", any(async || "served"));
    let apps = [
        (
            "the default",
            app.clone().layer(RateLimitLayer::new(Global, once())),
        ),
        (
            "ProblemJson",
            app.clone()
                .layer(RateLimitLayer::new(Global, once()).respond(tower_throttle::ProblemJson)),
        ),
        (
            "block",
            app.clone().layer(
                RateLimitLayer::new(Global, once()).block(|_: &axum::extract::Request| true),
            ),
        ),
        ("a file", app.clone().layer(policy(limit))),
        ("a list", app.layer(policy(deny))),
    ];
    let kinds = [
        ("application/grpc", Some(false)),
        ("application/grpc+proto", Some(false)),
        ("application/grpc-web", Some(true)),
        ("application/grpc-web-text+proto", Some(true)),
        ("application/grpcfoo", None),
        ("application/json, application/grpc", None),
        ("application/json", None),
    ];
    let mut answered_as_grpc = 0;
    for (name, app) in apps {
        let address = serve(app).await;
        let get = |method: Method, headers: [(&str, &str); 2]| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = format!("http://{address}/").parse().unwrap();
            *request.method_mut() = method;
            for (name, value) in headers {
                let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
                request.headers_mut().append(name, value.parse().unwrap());
            }
            request
        };
        // Uses the limit up.
        send(
            address,
            Version::HTTP_11,
            get(Method::GET, [("accept", "*/*"); 2]),
        )
        .await;
        for (kind, is_web) in kinds {
            for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT] {
                for te in ["trailers", "gzip"] {
                    for version in [Version::HTTP_11, Version::HTTP_2] {
                        // Not allowed in HTTP/2.
                        if (version, te) == (Version::HTTP_2, "gzip") {
                            continue;
                        }
                        let request = get(method.clone(), [("content-type", kind), ("te", te)]);
                        let response = send(address, version, request).await;
                        let what = format!("{name}: {version:?} {method} {kind} {te}");
                        let is_grpc = method == Method::POST
                            && is_web.is_some_and(|web| web || te == "trailers");
                        assert_eq!(response.status == 200, is_grpc, "{what}");
                        assert_eq!(
                            response.headers.contains_key("grpc-status"),
                            is_grpc,
                            "{what}"
                        );
                        assert_eq!(response.headers["cache-control"], "no-store", "{what}");
                        answered_as_grpc += usize::from(is_grpc);
                    }
                }
            }
        }
    }
    assert_eq!(answered_as_grpc, 50);
}
