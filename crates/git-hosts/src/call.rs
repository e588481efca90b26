//! A request to an API and its answer, as data.

use http::header::{HeaderMap, HeaderName, LINK};
use http::{Method, StatusCode};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_sources::SecretBytes;
use zeroize::Zeroizing;

/// The characters that stand unescaped in a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A request to the API of a Git host. Its `Debug` shows no secrets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The path and the query below the path of the API.
    pub(crate) below: String,
    pub(crate) body: Option<Body>,
    /// Whether the App itself sends the request, in place of one of its installations.
    pub(crate) is_by_app: bool,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Json(Value),
    /// Names and values; values may be secret.
    Form(Vec<(&'static str, SecretBytes)>),
}

impl Body {
    /// Returns the content type and the bytes.
    pub(crate) fn write(&self) -> (&'static str, Zeroizing<Vec<u8>>) {
        match self {
            Self::Json(value) => ("application/json", Zeroizing::new(value.to_string().into_bytes())),
            Self::Form(pairs) => {
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                for (name, value) in pairs {
                    form.append_pair(name, value.reveal());
                }
                (
                    "application/x-www-form-urlencoded",
                    Zeroizing::new(form.finish().into_bytes()),
                )
            }
        }
    }
}

/// An answer of a Git host that was received completely.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Zeroizing<Vec<u8>>,
}

impl Call {
    pub(crate) fn get(below: impl Into<String>) -> Self {
        Self::new(Method::GET, below, None)
    }

    pub(crate) fn post(below: impl Into<String>, body: Value) -> Self {
        Self::new(Method::POST, below, Some(Body::Json(body)))
    }

    pub(crate) fn post_form(below: impl Into<String>, pairs: Vec<(&'static str, SecretBytes)>) -> Self {
        Self::new(Method::POST, below, Some(Body::Form(pairs)))
    }

    pub(crate) fn put(below: impl Into<String>, body: Value) -> Self {
        Self::new(Method::PUT, below, Some(Body::Json(body)))
    }

    pub(crate) fn delete(below: impl Into<String>) -> Self {
        Self::new(Method::DELETE, below, None)
    }

    fn new(method: Method, below: impl Into<String>, body: Option<Body>) -> Self {
        Self {
            method,
            below: below.into(),
            body,
            is_by_app: false,
        }
    }

    /// Marks the request as one of the App itself.
    pub(crate) fn by_app(mut self) -> Self {
        self.is_by_app = true;
        self
    }

    /// Checks whether the request changes something at the host.
    pub(crate) fn is_order(&self) -> bool {
        self.method != Method::GET
    }

    /// Returns the path without the query.
    fn path(&self) -> &str {
        self.below.split('?').next().unwrap_or_default()
    }
}

impl Reply {
    /// Reads the body as a value of the API; `None` if the body is something else.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Option<T> {
        // The parser's error could quote the body, so it is dropped.
        serde_json::from_slice(&self.body).ok()
    }

    /// Returns the value of a header, if it is present and text.
    pub(crate) fn header(&self, name: &'static str) -> Option<&str> {
        let value = self.headers.get(HeaderName::from_static(name))?;
        value.to_str().ok()
    }

    /// Returns the time of the host.
    pub(crate) fn date(&self) -> Option<Timestamp> {
        self.header("date").and_then(read_http_date)
    }

    /// Returns the request for the next page of a list; `None` after the last page.
    ///
    /// Only the query of the link counts. Hosts write other paths (GitHub's links have the number of a repository) and other addresses of their own. The credential
    /// stays at the host of the first request.
    ///
    /// # Errors
    /// When the link leads to the current page, so the list would not end.
    pub(crate) fn next_page(&self, of: &Call) -> Result<Option<Call>, &'static str> {
        let values = self
            .headers
            .get_all(LINK)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let Some(link) = values.flat_map(|value| value.split(',')).find_map(find_next) else {
            return Ok(None);
        };
        let (link, _) = link.split_once('#').unwrap_or((link, ""));
        let below = match link.split_once('?') {
            Some((_, query)) => format!("{}?{query}", of.path()),
            None => of.path().to_owned(),
        };
        if below == of.below {
            return Err("its next page is this one");
        }
        Ok(Some(Call::get(below)))
    }
}

/// Returns the target of a link with the relation `next` (RFC 8288).
fn find_next(link: &str) -> Option<&str> {
    let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = parameters.split(';').any(|parameter| {
        let parameter = parameter.trim().trim_end_matches(',');
        parameter == "rel=\"next\"" || parameter == "rel=next"
    });
    is_next.then_some(target)
}

/// Reads a date such as `Wed, 21 Oct 2015 07:28:00 GMT`, the one form of dates that HTTP sends.
pub(crate) fn read_http_date(text: &str) -> Option<Timestamp> {
    let text = text.trim().strip_suffix(" GMT")?;
    let time = jiff::civil::DateTime::strptime("%a, %d %b %Y %H:%M:%S", text).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

/// Encodes a text as one part of a path.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(link: &str) -> Reply {
        let headers = HeaderMap::from_iter([(LINK, link.parse().unwrap())]);
        Reply {
            status: StatusCode::OK,
            headers,
            body: Zeroizing::default(),
        }
    }

    #[test]
    fn next_page_link_counts_by_its_query_alone() {
        let asked = Call::get("/projects/7/deploy_tokens?per_page=100");
        let next = |link: &str| match reply(link).next_page(&asked) {
            Ok(None) => "none".to_owned(),
            Ok(Some(call)) => call.below,
            Err(_) => "refused".to_owned(),
        };
        let second = "/projects/7/deploy_tokens?page=2";
        for page in [
            "https://git.example/gitlab/api/v4/projects/7/deploy_tokens?page=2",
            // The path by the number of a repository, another name of the host, and a link with a user and a fragment.
            "https://git.example/repositories/7/deploy_tokens?page=2",
            "https://gitlab.internal:8443/api/v4/projects/7/deploy_tokens?page=2",
            "http://u:p@evil.example/api/v4/projects/8/deploy_tokens?page=2#top",
            "/gitlab/api/v4/projects/7/deploy_tokens?page=2",
            "?page=2",
        ] {
            let links = [
                format!("<{page}>; rel=\"next\", <{page}>; rel=\"last\""),
                format!("<{page}>; rel=\"first\", <{page}>; title=x; rel=next"),
            ];
            for link in links {
                assert_eq!(next(&link), second, "{link}");
            }
            assert_eq!(next(&format!("<{page}>; rel=\"last\"")), "none");
        }
        assert_eq!(next("nonsense"), "none");
        assert_eq!(next("<?per_page=100>; rel=\"next\""), "refused");
        assert_eq!(
            next("<https://git.example/x>; rel=\"next\""),
            "/projects/7/deploy_tokens"
        );
    }

    #[test]
    fn dates_are_read_as_http_writes_them() {
        let read = |text: &str| read_http_date(text).map(|time| time.to_string());
        assert_eq!(
            read("Wed, 21 Oct 2015 07:28:00 GMT"),
            Some("2015-10-21T07:28:00Z".to_owned())
        );
        for bad in [
            "",
            "GMT",
            "2015-10-21",
            "Wed, 21 Oct 2015 07:28:00 CET",
            "Wed, 99 Oct 2015 07:28:00 GMT",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
