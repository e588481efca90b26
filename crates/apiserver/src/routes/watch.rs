//! A watch as a stream of lines. All ready lines are sent in one piece.

use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use super::render::{Form, format_object};
use crate::http::Body;
use crate::http::body::BoxError;
use crate::http::negotiate::View;
use crate::long_work::run_part;
use crate::registry::{Registry, WatchFrame, WatchStream};
use crate::stored::decode_stored;

/// Size after which a piece is sent although more lines are ready.
const PIECE: usize = 64 * 1024;

/// Most bytes of an object that is decoded on a thread where other requests wait.
const LITTLE: usize = 16 * 1024;

/// A size into which most lines fit.
const LINE: usize = 2 * 1024;

/// Returns the answer whose body is the watch.
pub(crate) fn respond_with_watch(registry: Registry, form: Form, stream: WatchStream) -> Response<Body> {
    let state = State {
        registry,
        form,
        stream,
        columns_sent: false,
    };
    let pieces = futures::stream::unfold(state, |mut state| async move {
        let frame = state.stream.next().await?;
        let mut out = Vec::with_capacity(LINE);
        state.write(&mut out, frame).await;
        while out.len() < PIECE {
            let Some(frame) = state.stream.next_ready() else { break };
            state.write(&mut out, frame).await;
        }
        Some((Bytes::from(out), state))
    });
    let body = StreamBody::new(pieces.map(|piece| Ok::<_, BoxError>(Frame::data(piece)))).boxed_unsync();
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A watch while it is sent, with the format of its lines.
struct State {
    registry: Registry,
    form: Form,
    stream: WatchStream,
    columns_sent: bool,
}

impl State {
    async fn write(&mut self, out: &mut Vec<u8>, frame: WatchFrame) {
        let op = self.stream.operation().clone();
        match frame {
            WatchFrame::Change { kind, item } => {
                out.extend_from_slice(b"{\"type\":\"");
                out.extend_from_slice(kind.as_bytes());
                out.extend_from_slice(b"\",\"object\":");
                match (item.decoded, self.form.is_plain()) {
                    (None, true) => out.extend_from_slice(&item.entry.bytes),
                    (decoded, _) => {
                        let is_small = item.entry.bytes.len() <= LITTLE;
                        let (registry, form, columns) = (self.registry.clone(), self.form, !self.columns_sent);
                        let shape = move || {
                            let object = decoded.or_else(|| decode_stored(&item.entry).ok());
                            let shaped = format_object(&registry, &op, form, object.unwrap_or(Value::Null), columns);
                            serde_json::to_vec(&shaped).unwrap_or_default()
                        };
                        self.columns_sent = true;
                        let shaped = if is_small {
                            shape()
                        } else {
                            let turns = self.stream.step_limiter().cloned();
                            // A panic is logged by the thread where it happens. The line then has `null`, and the watch
                            // goes on.
                            let shaped = run_part(turns.as_ref(), shape).await;
                            shaped.unwrap_or_else(|_| b"null".to_vec())
                        };
                        out.extend_from_slice(&shaped);
                    }
                }
                out.extend_from_slice(b"}\n");
            }
            WatchFrame::Bookmark {
                revision,
                initial_events_end,
            } => {
                let mut metadata = json!({"resourceVersion": revision.to_string()});
                if initial_events_end && let Some(map) = metadata.as_object_mut() {
                    map.insert("annotations".to_owned(), json!({"k8s.io/initial-events-end": "true"}));
                }
                let object = json!({
                    "kind": op.resource.kind, "apiVersion": op.resource.api_version(), "metadata": metadata,
                });
                let object = match self.form.view {
                    View::Table => {
                        let mut table = format_object(&self.registry, &op, self.form, object, !self.columns_sent);
                        self.columns_sent = true;
                        if let Some(map) = table.as_object_mut() {
                            map.insert("metadata".to_owned(), json!({"resourceVersion": revision.to_string()}));
                        }
                        table
                    }
                    _ => format_object(&self.registry, &op, self.form, object, false),
                };
                write_event(out, "BOOKMARK", &object);
            }
            WatchFrame::Error(error) => write_event(out, "ERROR", &error.to_value()),
        }
    }
}

fn write_event(out: &mut Vec<u8>, kind: &str, object: &Value) {
    let _ = serde_json::to_writer(&mut *out, &json!({"type": kind, "object": object}));
    out.push(b'\n');
}
