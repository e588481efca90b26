//! Reads answers of an API server within bounds: one object, or a list page by page. Only one page of a list is in memory, so users with many or large objects can't
//! make the read endless or too large. The module stores nothing.

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;
use serde_json::Value;
use tenure_api::ObjectView;

use crate::failure::write_chain;
use crate::resources;

/// The number of objects on a page, and its divisor for large objects.
const PAGE: usize = 500;
const FEWER: usize = 8;
/// The longest page of several objects in bytes, and the longest object.
const LONGEST_PAGE: usize = 16 << 20;
const LONGEST_OBJECT: usize = 8 << 20;

/// The reason why a read of an object or a list failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadRefusal {
    /// The object is missing.
    Absent,
    /// The caller lacks the right.
    Forbidden(String),
    /// The object is longer than the limit.
    TooLong,
    /// A failure of another sort, in words without the object's content.
    Failed(String),
}

impl std::fmt::Display for ReadRefusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => formatter.write_str("it does not exist"),
            Self::Forbidden(message) | Self::Failed(message) => formatter.write_str(message),
            Self::TooLong => formatter.write_str("the answer is longer than what is read"),
        }
    }
}

/// Reads the text at a path, as the API server sends it.
pub(crate) async fn read_page(client: &kube::Client, path: &str, accept: &str) -> Result<Bytes, ReadRefusal> {
    read_bounded(client, path, accept, LONGEST_OBJECT).await
}

/// Reads the object at a path.
pub(crate) async fn read_object(client: &kube::Client, path: &str, accept: &str) -> Result<Value, ReadRefusal> {
    parse_answer(&read_page(client, path, accept).await?)
}

/// Visits the objects of a collection, `most` at most, and returns whether these were all. The path may have a query.
pub(crate) async fn visit_objects(
    client: &kube::Client,
    path: &str,
    (accept, most): (&str, usize),
    mut show: impl FnMut(Value),
) -> Result<bool, ReadRefusal> {
    let (mut limit, mut from, mut shown) = (PAGE, String::new(), 0_usize);
    let sign = if path.contains('?') { '&' } else { '?' };
    loop {
        let mut query = format!("{path}{sign}limit={limit}");
        if !from.is_empty() {
            query.push_str(&format!("&continue={}", resources::encode_segment(&from)));
        }
        let longest = if limit > 1 { LONGEST_PAGE } else { LONGEST_OBJECT };
        let text = match read_bounded(client, &query, accept, longest).await {
            Err(ReadRefusal::TooLong) if limit > 1 => {
                limit = (limit / FEWER).max(1);
                continue;
            }
            read => read?,
        };
        let mut page = parse_answer(&text)?;
        drop(text);
        ObjectView::new(&page)
            .read_text("/metadata/continue")
            .clone_into(&mut from);
        let objects = match page.get_mut("items").map(Value::take) {
            Some(Value::Array(objects)) => objects,
            // The API server writes an empty list of metadata this way.
            Some(Value::Null) => Vec::new(),
            _ => return Err(ReadRefusal::Failed("the API server's answer is not a list".to_owned())),
        };
        for object in objects {
            if shown >= most {
                return Ok(false);
            }
            shown = shown.saturating_add(1);
            show(object);
        }
        if from.is_empty() {
            return Ok(true);
        }
        if shown >= most {
            return Ok(false);
        }
    }
}

async fn read_bounded(client: &kube::Client, path: &str, accept: &str, longest: usize) -> Result<Bytes, ReadRefusal> {
    let request = http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Body::empty())
        .map_err(|error| ReadRefusal::Failed(error.to_string()))?;
    let response = client.send(request).await;
    let response = response.map_err(|error| ReadRefusal::Failed(write_chain(&error)))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), longest).collect().await;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => ReadRefusal::TooLong,
        false => ReadRefusal::Failed(write_chain(&*error)),
    })?;
    let body = body.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    if status == http::StatusCode::NOT_FOUND {
        return Err(ReadRefusal::Absent);
    }
    let answer = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let message = match ObjectView::new(&answer).read_text("/message") {
        "" => format!("the API server answered {status}"),
        message => message.to_owned(),
    };
    Err(match status {
        http::StatusCode::FORBIDDEN => ReadRefusal::Forbidden(message),
        _ => ReadRefusal::Failed(message),
    })
}

fn parse_answer(text: &[u8]) -> Result<Value, ReadRefusal> {
    // The parser's error may quote the text.
    serde_json::from_slice(text).map_err(|_| ReadRefusal::Failed("the API server's answer is not JSON".to_owned()))
}
