//! Answers probes: `/livez` and `/healthz` while the process runs, `/readyz` while the controllers can work. An answer is one word, without objects, tenants or
//! credentials, because every client may reach the server.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;

use crate::failure::Failure;
use crate::plain_http::{self, Answer, write_text};

/// The timeout for a client to read its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Listens, and answers until the future is dropped.
pub(crate) async fn serve_probes(
    address: SocketAddr,
    is_ready: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<impl Future<Output = ()>, Failure> {
    let listener = plain_http::open_listener(address, "--health-address").await?;
    Ok(plain_http::serve(listener, PATIENCE, move |request| {
        std::future::ready(answer_probe(request.uri().path(), is_ready()))
    }))
}

fn answer_probe(path: &str, good: bool) -> Answer {
    let (status, text) = match (path, good) {
        ("/healthz" | "/livez", _) | ("/readyz", true) => (StatusCode::OK, "ok"),
        ("/readyz", false) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the controllers can't do their work; the log says why",
        ),
        _ => (StatusCode::NOT_FOUND, "there are /livez, /healthz and /readyz"),
    };
    write_text(status, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_status_follows_path_and_readiness() {
        for (path, good, status) in [
            ("/healthz", false, 200),
            ("/readyz", true, 200),
            ("/readyz", false, 503),
            ("/metrics", true, 404),
        ] {
            assert_eq!(answer_probe(path, good).status().as_u16(), status, "{path}");
        }
    }
}
