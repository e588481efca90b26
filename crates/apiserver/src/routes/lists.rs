//! Lists in the format that the client asked for, written piece by piece while they are sent.
//!
//! All steps that can fail happen before the first byte, as far as possible. A list that a webhook converts is
//! completed first, and charged to its user. All other lists are read from a snapshot as fast as the client takes
//! them. A list that fails midway ends its stream with an error.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_kinds::table::{Columns, partial_metadata};

use super::render::Form;
use super::verbs::ObjectRequest;
use crate::byte_ledger::Account;
use crate::conversion::BATCH;
use crate::http::negotiate::View;
use crate::http::{ApiError, Body, BoxError, body, respond};
use crate::kind_properties;
use crate::long_work::{StepLimiter, run_part};
use crate::operation::Operation;
use crate::registry::{Item, Listing, PageReader};
use crate::responses::PIECE;
use crate::stored::{decode_stored, kind_prefix, without_kind};

/// Most bytes that are read for one piece, however few of them match.
const READ: usize = 1024 * 1024;
/// Most bytes that are decoded at once on a thread where other requests wait.
const LITTLE: usize = 16 * 1024;
/// Longest wait for free bytes of a list that must be complete before it is sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the answer with a list.
pub(super) async fn respond_with_list(
    op: &Arc<Operation>,
    form: Form,
    request: &ObjectRequest,
    listing: Listing,
) -> Result<Response<Body>, ApiError> {
    let metadata = make_list_metadata(op, form, &listing);
    let writer = Writer {
        items: listing.items,
        op: op.clone(),
        form,
        now: request.registry.now(),
        columns: (form.view == View::Table).then(|| kind_properties::find_columns(&op.resource)),
        prefix: (!op.resource.is_custom()).then(|| kind_prefix(&op.resource)),
        any: false,
        done: false,
        turns: request.turns.clone(),
    };
    let first = writer.write_head(&metadata)?;
    if writer.items.are_converted_elsewhere() {
        return respond_with_whole_list(writer, first, &metadata, &request.account).await;
    }
    let (writer, first) = writer.fill_piece(first).await?;
    if writer.done {
        return Ok(match writer.any {
            true => respond::with_bytes(StatusCode::OK, respond::JSON, first),
            false => respond::with_value(StatusCode::OK, &writer.make_empty_list(&metadata)),
        });
    }
    writer.items.limit_held_bytes();
    let pieces = stream::once(std::future::ready(Ok(Frame::data(Bytes::from(first)))));
    let rest = stream::try_unfold(writer, |writer| async move {
        if writer.done {
            return Ok(None);
        }
        let out = Vec::with_capacity(PIECE + PIECE / 8);
        let (writer, out) = writer.fill_piece(out).await.map_err(|error| {
            tracing::debug!(%error, "a list breaks off");
            BoxError::from(error)
        })?;
        Ok(Some((Frame::data(Bytes::from(out)), writer)))
    });
    let pieces = futures::StreamExt::chain(pieces, rest);
    let mut response = respond::with_bytes(StatusCode::OK, respond::JSON, Bytes::new());
    *response.body_mut() = StreamBody::new(pieces).boxed_unsync();
    Ok(response)
}

/// Returns the answer with a list that is complete in memory. The list is charged, and limited to one user's bound
/// for answers.
async fn respond_with_whole_list(
    mut writer: Writer,
    first: Vec<u8>,
    metadata: &Value,
    account: &Arc<Account>,
) -> Result<Response<Body>, ApiError> {
    let too_many = || {
        ApiError::new(
            429,
            "TooManyRequests",
            "the answers to this user take too much memory; try again later",
        )
    };
    let mut charge = account.charge(0);
    let (mut pieces, mut made, mut out) = (Vec::new(), 0, first);
    while !writer.done {
        (writer, out) = writer.fill_piece(out).await?;
        made += out.len();
        if account.is_beyond(made) {
            return Err(ApiError::bad_request(
                "the list is too large for one conversion: request pages with the parameter limit",
            ));
        }
        if !account.extend_within(&mut charge, made, PATIENCE).await {
            return Err(too_many());
        }
        pieces.push(Bytes::from(std::mem::take(&mut out)));
    }
    if !writer.any {
        return Ok(respond::with_value(StatusCode::OK, &writer.make_empty_list(metadata)));
    }
    let mut response = respond::with_bytes(StatusCode::OK, respond::JSON, Bytes::new());
    *response.body_mut() = body::body_of_pieces(pieces);
    response.extensions_mut().insert(Arc::new(charge));
    Ok(response)
}

fn make_list_metadata(op: &Operation, form: Form, listing: &Listing) -> Value {
    let mut metadata = if form.view == View::Object {
        list_metadata(op, listing.revision)
    } else {
        json!({"resourceVersion": listing.revision.to_string()})
    };
    if let Some(map) = metadata.as_object_mut() {
        if let Some(next) = &listing.next {
            map.insert("continue".to_owned(), Value::from(next.as_str()));
        }
        if let Some(remaining) = listing.remaining {
            map.insert("remainingItemCount".to_owned(), Value::from(remaining));
        }
    }
    metadata
}

/// Returns the metadata of a list. For custom resources the continue field is always present, even at the end.
fn list_metadata(op: &Operation, revision: u64) -> Value {
    let revision = revision.to_string();
    if op.resource.is_custom() {
        json!({"continue": "", "resourceVersion": revision})
    } else {
        json!({"resourceVersion": revision})
    }
}

/// Returns an object as an item of a list: built-in items have no kind, as the list's kind implies it.
fn make_list_item(op: &Operation, mut object: Value) -> Value {
    if !op.resource.is_custom()
        && let Some(map) = object.as_object_mut()
    {
        map.remove("kind");
        map.remove("apiVersion");
    }
    object
}

/// Writes a list in the format that the client asked for, piece by piece.
struct Writer {
    items: PageReader,
    op: Arc<Operation>,
    form: Form,
    now: Timestamp,
    columns: Option<Columns>,
    /// The first bytes of a stored built-in object, which items of a list don't have.
    prefix: Option<Vec<u8>>,
    /// Whether the list has an object so far.
    any: bool,
    done: bool,
    /// The user's permits, for a piece that has to be computed.
    turns: Option<StepLimiter>,
}

impl Writer {
    /// Returns the text before the first object.
    fn write_head(&self, metadata: &Value) -> Result<Vec<u8>, ApiError> {
        let (head, items): (Value, &[u8]) = match self.form.view {
            View::Object => (
                json!({"kind": self.op.resource.list_kind, "apiVersion": self.op.resource.api_version(), "metadata": metadata}),
                b",\"items\":[",
            ),
            View::Metadata => (
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}),
                b",\"items\":[",
            ),
            View::Table => {
                let columns = self.columns.as_ref().map(Columns::definitions);
                (
                    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns}),
                    b",\"rows\":[",
                )
            }
        };
        let mut out = Vec::with_capacity(8 * 1024);
        serde_json::to_writer(&mut out, &head).map_err(ApiError::internal)?;
        out.pop();
        out.extend_from_slice(items);
        Ok(out)
    }

    /// Returns an empty list, whose items are null in some formats.
    fn make_empty_list(&self, metadata: &Value) -> Value {
        match (self.form.view, &self.columns) {
            (View::Table, Some(columns)) => columns.table([], metadata, self.form.include, self.now, true),
            (View::Metadata, _) => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": null,
            }),
            _ => json!({
                "kind": self.op.resource.list_kind, "apiVersion": self.op.resource.api_version(), "metadata": metadata, "items": [],
            }),
        }
    }

    /// Writes until a piece is full or the list ends.
    async fn fill_piece(mut self, mut out: Vec<u8>) -> Result<(Self, Vec<u8>), ApiError> {
        if self.items.are_converted_elsewhere() {
            while !self.is_filled(&out) {
                // A batch is as large as one request to the conversion webhook may be.
                let batch = self.items.read_batch(BATCH.1).await?;
                self.write_all(&mut out, batch)?;
            }
            return Ok((self, out));
        }
        // Copied bytes are written at once, and so are the first few bytes that must be decoded.
        let cheap = self.is_copied();
        self.fill_now(&mut out, if cheap { usize::MAX } else { LITTLE })?;
        while !self.is_filled(&out) {
            let turns = self.turns.clone();
            let filling = run_part(turns.as_ref(), move || {
                self.fill_now(&mut out, READ)?;
                Ok::<_, ApiError>((self, out))
            });
            (self, out) = filling.await.map_err(ApiError::internal)??;
        }
        Ok((self, out))
    }

    /// Writes without waiting, and stops after `most` bytes are read.
    fn fill_now(&mut self, out: &mut Vec<u8>, most: usize) -> Result<(), ApiError> {
        let mut read = 0;
        while read < most && !self.is_filled(out) {
            let bytes = PIECE.saturating_sub(out.len()).clamp(LITTLE, PIECE).min(most);
            let batch = self.items.batch_now(bytes)?;
            read += bytes;
            self.write_all(out, batch)?;
        }
        Ok(())
    }

    fn is_filled(&self, out: &[u8]) -> bool {
        self.done || (self.any && out.len() >= PIECE)
    }

    fn write_all(&mut self, out: &mut Vec<u8>, batch: Option<Vec<Item>>) -> Result<(), ApiError> {
        let Some(batch) = batch else {
            out.extend_from_slice(b"]}\n");
            self.done = true;
            return Ok(());
        };
        for item in batch {
            if std::mem::replace(&mut self.any, true) {
                out.push(b',');
            }
            self.write(out, item)?;
        }
        Ok(())
    }

    /// Checks whether objects are copied from the store into the answer without being decoded.
    fn is_copied(&self) -> bool {
        self.form.is_plain() && !self.items.are_decoded()
    }

    fn write(&self, out: &mut Vec<u8>, item: Item) -> Result<(), ApiError> {
        if self.form.is_plain() && self.items.are_as_sent() {
            let (head, tail) = match &self.prefix {
                Some(prefix) => without_kind(&item.entry.bytes, prefix),
                None => (&b""[..], &item.entry.bytes[..]),
            };
            out.extend_from_slice(head);
            out.extend_from_slice(tail);
            return Ok(());
        }
        let object = match item.decoded {
            Some(object) => object,
            None => decode_stored(&item.entry)?,
        };
        let value = match (self.form.view, &self.columns) {
            (View::Table, Some(columns)) => columns.row(&object, self.form.include, self.now),
            (View::Metadata, _) => partial_metadata(&object),
            _ => make_list_item(&self.op, object),
        };
        serde_json::to_writer(out, &value).map_err(ApiError::internal)
    }
}
