//! Tests that the manager reports the health of everything that it starts.

#![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use tenure_cluster::{Connection, Token};

use super::*;

/// Regression: with one kind that could not be listed, nothing was reconciled, but the health was reported as good.
#[tokio::test]
async fn manager_is_unhealthy_when_lists_fail() {
    let service = tower::service_fn(|_: Request<Body>| async {
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"broken","code":500}"#;
        let mut response = Response::new(Body::from(status.as_bytes().to_vec()));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        Ok::<_, Infallible>(response)
    });
    let connection = Connection::in_process(service, Token::new("t", None));
    let health = connection.health();
    let folder = tempfile::TempDir::new().unwrap();
    let end = CancellationToken::new();
    let config = Config::new(connection, folder.path().join("artifacts"));
    let running = tokio::spawn(run(config, end.clone()));
    while health.is_good() {
        tokio::task::yield_now().await;
    }
    end.cancel();
    running.await.unwrap().unwrap();
}
