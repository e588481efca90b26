//! A request in the form that the APIs read, and helpers that write their answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, LINK};
use http::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// The HTTP answer to a request.
pub(crate) type Answer = Response<Bytes>;

/// A request to one of the APIs that was received completely, in the form that all three APIs read.
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// The path as the client wrote it.
    pub(crate) path: String,
    /// The parts of the path, decoded.
    pub(crate) parts: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    /// The token from any of the supported headers.
    pub(crate) token: Option<String>,
    /// The user name and the password from the request.
    pub(crate) basic: Option<(String, String)>,
    /// The body, from JSON or from a form.
    pub(crate) body: Value,
    /// The address of the host in its answers, `http://host:port`.
    pub(crate) base: String,
}

impl ApiRequest {
    pub(crate) fn read(request: &Request<Bytes>, base: &str) -> Self {
        let path = request.uri().path().to_owned();
        let parts = path.split('/').filter(|part| !part.is_empty());
        let parts = parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned());
        let read_form = |bytes: &[u8]| url::form_urlencoded::parse(bytes).into_owned().collect::<Vec<_>>();
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let authorization = header(AUTHORIZATION.as_str());
        let bearer = authorization.and_then(|text| text.strip_prefix("Bearer ").or(text.strip_prefix("token ")));
        let is_form = header(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.contains("form-urlencoded"));
        Self {
            method: request.method().clone(),
            parts: parts.collect(),
            query: read_form(request.uri().query().unwrap_or_default().as_bytes()),
            token: header("private-token").or(bearer).map(str::to_owned),
            basic: authorization.and_then(read_basic),
            body: if is_form {
                let pairs = read_form(request.body());
                Value::Object(pairs.into_iter().map(|(key, value)| (key, value.into())).collect())
            } else {
                serde_json::from_slice(request.body()).unwrap_or_default()
            },
            base: base.to_owned(),
            path,
        }
    }

    /// Returns the parts of the path for matching.
    pub(crate) fn parts(&self) -> Vec<&str> {
        self.parts.iter().map(String::as_str).collect()
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.iter().filter(|(key, _)| key == name);
        pairs.next().map(|(_, value)| value.as_str())
    }

    /// Returns a text of the body; empty if the body has no such text.
    pub(crate) fn field_text(&self, name: &str) -> &str {
        self.body.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a page of a list, with links to the first page and the next page.
    pub(crate) fn page(&self, all: &[Value], size: usize, size_name: &str) -> Answer {
        self.page_at(&self.path, all, (size, size_name))
    }

    /// Returns a page of a list whose links name another path.
    pub(crate) fn page_at(&self, path: &str, all: &[Value], (size, size_name): (usize, &str)) -> Answer {
        let number = |name: &str| self.query(name).and_then(|text| text.parse::<usize>().ok());
        let size = number(size_name).unwrap_or(20).clamp(1, size.max(1));
        let page = number("page").unwrap_or(1).max(1);
        let rest = all.get((page - 1).saturating_mul(size)..).unwrap_or_default();
        let shown = rest.get(..size).unwrap_or(rest);
        let mut answer = answer_json(StatusCode::OK, &Value::Array(shown.to_vec()));
        if rest.len() > size {
            let first = format!("<{}{path}?page=1&{size_name}={size}>; rel=\"first\"", self.base);
            let next = format!(
                "<{}{path}?page={}&{size_name}={size}>; rel=\"next\"",
                self.base,
                page + 1
            );
            if let Ok(value) = HeaderValue::from_str(&format!("{next}, {first}")) {
                answer.headers_mut().insert(LINK, value);
            }
        }
        answer
    }
}

fn read_basic(text: &str) -> Option<(String, String)> {
    let pair = STANDARD.decode(text.strip_prefix("Basic ")?.trim()).ok()?;
    let (name, password) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

pub(crate) fn answer_json(status: StatusCode, value: &Value) -> Answer {
    let mut answer = Response::new(Bytes::from(value.to_string()));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

pub(crate) fn ok(value: &Value) -> Answer {
    answer_json(StatusCode::OK, value)
}

/// Returns `{"message": …}`, the form of a refusal at all three hosts.
pub(crate) fn refuse(status: StatusCode, message: &str) -> Answer {
    answer_json(status, &json!({ "message": message }))
}

pub(crate) fn no_content() -> Answer {
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}
