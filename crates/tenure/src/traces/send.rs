//! Sends spans over HTTP to the collector that an administrator names. A failed batch is tried once more, and then counted as lost. The end of the program waits only
//! for a moment.

use std::sync::Arc;
use std::time::Duration;

use kube::client::Body;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::otlp::{Span, write_request};
use super::{QUEUE, Queue};
use crate::failure::{Failure, write_chain};

/// The largest number of waiting spans.
const LONGEST: usize = 4096;
/// The number of spans in one request.
const BATCH: usize = 512;
/// The interval between requests.
const PERIOD: Duration = Duration::from_secs(1);
/// The timeout for the collector.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time that the end of the program waits for the last spans.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The task that sends the queued spans to the collector, until it is finished.
pub(crate) struct TraceSender {
    end: CancellationToken,
    sender: JoinHandle<()>,
}

/// Starts to send traces. Called once in a process.
pub(crate) fn start(endpoint: &str) -> Result<TraceSender, Failure> {
    let wrong = |what: String| {
        Failure::usage(format!("--traces-endpoint: {endpoint:?} {what}"))
            .hint("write the address of a collector's OTLP over HTTP, such as http://127.0.0.1:4318")
    };
    let uri: http::Uri = endpoint
        .parse()
        .map_err(|error| wrong(format!("is no address: {error}")))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let has_user = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    if !["http", "https"].contains(&scheme) || uri.host().is_none() || uri.query().is_some() || has_user {
        return Err(wrong(
            "is not http:// or https:// with a host, a port and a path".to_owned(),
        ));
    }
    let mut config = kube::Config::new(uri);
    (config.connect_timeout, config.read_timeout, config.write_timeout) =
        (Some(PATIENCE), Some(PATIENCE), Some(PATIENCE));
    let client =
        kube::Client::try_from(config).map_err(|error| wrong(format!("can't be used: {}", write_chain(&error))))?;
    let queue = Arc::clone(QUEUE.get_or_init(|| Arc::new(Queue::new(LONGEST))));
    let end = CancellationToken::new();
    let sender = tokio::spawn(send_until(client, queue, end.clone()));
    Ok(TraceSender { end, sender })
}

impl TraceSender {
    /// Sends the remaining spans.
    pub(crate) async fn finish(self) {
        self.end.cancel();
        let _whether_it_was_in_time = tokio::time::timeout(LAST_WORDS, self.sender).await;
    }
}

async fn send_until(client: kube::Client, queue: Arc<Queue>, end: CancellationToken) {
    let mut again = Vec::new();
    let mut was_taken = true;
    loop {
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = queue.until_filling() => {}
            () = end.cancelled() => {}
        }
        loop {
            let is_second_try = !again.is_empty();
            let spans = if is_second_try {
                std::mem::take(&mut again)
            } else {
                queue.take_oldest(BATCH)
            };
            if spans.is_empty() {
                break;
            }
            match send_spans(&client, &spans, queue.count_dropped()).await {
                Ok(()) => was_taken = true,
                Err(problem) => {
                    if was_taken {
                        tracing::warn!(problem, "the collector takes no traces; they are dropped until it does");
                    }
                    was_taken = false;
                    if is_second_try {
                        queue.count_lost(spans.len());
                    } else {
                        again = spans;
                    }
                    break;
                }
            }
        }
        if end.is_cancelled() {
            return;
        }
    }
}

async fn send_spans(client: &kube::Client, spans: &[Span], dropped: u64) -> Result<(), String> {
    let text = write_request(spans, env!("CARGO_PKG_VERSION"), dropped).to_string();
    let request = http::Request::post("/v1/traces")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(text.into_bytes()))
        .map_err(|error| error.to_string())?;
    let answer = tokio::time::timeout(PATIENCE, client.send(request)).await;
    let answer = answer.map_err(|_| "no answer in time".to_owned())?;
    let status = answer.map_err(|error| write_chain(&error))?.status();
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("it answers {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_one_of_a_collector() {
        for endpoint in [
            "collector:4318",
            "grpc://collector:4317",
            "http://user:sesame@collector",
            "http://",
            "http://c/?token=x",
        ] {
            let Err(failure) = start(endpoint) else {
                panic!("{endpoint} was taken")
            };
            assert!(failure.hint.is_some());
        }
    }
}
