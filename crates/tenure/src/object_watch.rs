//! A collection with its changes. The watch starts at the version of the list or of the last change, so no change is missed. If the server no longer knows this version,
//! the list is read again.

use futures::AsyncBufReadExt as _;
use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use tenure_api::ObjectView;

use crate::failure::Failure;

/// The list of a collection, or a later change of one of its objects.
pub(crate) enum Change {
    Listed(Value),
    Changed(Value),
    Deleted(Value),
}

/// Returns the changes of a collection after a version, without an end. Without a version, the list comes first. `path` may have a query.
pub(crate) fn follow_objects(
    client: &kube::Client,
    path: String,
    accept: &'static str,
    from: Option<String>,
) -> BoxStream<'static, Result<Change, Failure>> {
    let follower = CollectionWatch {
        client: client.clone(),
        path,
        accept,
        from,
        lines: None,
    };
    let next = |mut follower: CollectionWatch| async move {
        let change = follower.next().await?;
        Ok(Some((change, follower)))
    };
    futures::stream::try_unfold(follower, next).boxed()
}

/// The state of [`follow_objects`]: the open watch, and the version from which it can be opened again.
struct CollectionWatch {
    client: kube::Client,
    path: String,
    accept: &'static str,
    /// The version of the list or of the last change; `None` before the list.
    from: Option<String>,
    /// The open watch.
    lines: Option<BoxStream<'static, std::io::Result<String>>>,
}

impl CollectionWatch {
    async fn next(&mut self) -> Result<Change, Failure> {
        loop {
            let Some(from) = &self.from else {
                let list: Value = self.client.request(read_request(&self.path, self.accept)?).await?;
                self.from = Some(find_version(&list).unwrap_or_default());
                return Ok(Change::Listed(list));
            };
            let lines = match &mut self.lines {
                Some(lines) => lines,
                none => {
                    let mark = if self.path.contains('?') { '&' } else { '?' };
                    let path = format!(
                        "{}{mark}watch=true&resourceVersion={from}&allowWatchBookmarks=true",
                        self.path
                    );
                    let stream = self.client.request_stream(read_request(&path, self.accept)?).await?;
                    none.insert(stream.lines().boxed())
                }
            };
            let line = lines.try_next().await.map_err(|error| {
                Failure::environment(format!("the watch broke: {error}")).hint("is the control plane still running?")
            })?;
            let Some(line) = line else {
                // The usual timeout; the next watch continues.
                self.lines = None;
                continue;
            };
            let event: Value = serde_json::from_str(&line).map_err(|error| {
                Failure::environment(format!("the watch sent something that is not an event: {error}"))
            })?;
            if let Some(change) = self.read_event(&event)? {
                return Ok(change);
            }
        }
    }

    /// Reads one event; `None` if it changes no object.
    fn read_event(&mut self, event: &Value) -> Result<Option<Change>, Failure> {
        let view = ObjectView::new(event);
        let object = view.find("/object").unwrap_or(&Value::Null);
        if view.read_text("/type") == "ERROR" {
            if view.find_number("/object/code") == Some(410) {
                self.from = None;
                self.lines = None;
                return Ok(None);
            }
            let message = view.find_text("/object/message").unwrap_or("it did not say why");
            return Err(Failure::environment(format!("the server ended the watch: {message}")));
        }
        let of_row = || object.pointer("/rows/0/object").and_then(find_version);
        if let Some(version) = find_version(object).or_else(of_row) {
            self.from = Some(version);
        }
        Ok(match view.read_text("/type") {
            "BOOKMARK" => None,
            "DELETED" => Some(Change::Deleted(object.clone())),
            _ => Some(Change::Changed(object.clone())),
        })
    }
}

/// Returns a GET request.
pub(crate) fn read_request(path: &str, accept: &str) -> Result<http::Request<Vec<u8>>, Failure> {
    http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new())
        .map_err(|error| Failure::usage(format!("{path:?} is no name: {error}")))
}

/// Returns the version of a list or an object.
pub(crate) fn find_version(value: &Value) -> Option<String> {
    let version = ObjectView::new(value).read_text("/metadata/resourceVersion");
    (!version.is_empty()).then(|| version.to_owned())
}
