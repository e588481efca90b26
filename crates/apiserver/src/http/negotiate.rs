//! The Accept header: the format of an answer that the client wants, of the supported ones.

use http::HeaderMap;

use super::ApiError;

/// The format of an object or a list in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// The object itself.
    Object,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `meta.k8s.io/v1` PartialObjectMetadata, or a list of it.
    Metadata,
}

/// An entry of an Accept header: a media type with its parameters and its quality.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MediaRange {
    pub(crate) media_type: String,
    pub(crate) parameters: Vec<(String, String)>,
    quality: u16,
}

impl MediaRange {
    /// Returns a parameter of the entry, such as `as`.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value.as_str())
    }
}

/// Returns the entries of the Accept header, best first; one for any type if there is no header.
pub(crate) fn parse_accept(headers: &HeaderMap) -> Vec<MediaRange> {
    let mut ranges: Vec<MediaRange> = headers
        .get_all(http::header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(parse)
        .collect();
    if ranges.is_empty() {
        ranges.push(MediaRange {
            media_type: "*/*".to_owned(),
            ..MediaRange::default()
        });
    }
    ranges.sort_by_key(|range| std::cmp::Reverse(range.quality));
    ranges
}

fn parse(text: &str) -> Option<MediaRange> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts
        .next()
        .filter(|media_type| !media_type.is_empty())?
        .to_ascii_lowercase();
    let mut range = MediaRange {
        media_type,
        parameters: Vec::new(),
        quality: 1000,
    };
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim_matches('"');
        if key == "q" {
            let quality: f32 = value.parse().unwrap_or(1.0);
            // A quality in the header has at most three decimals.
            range.quality = quality_in_thousandths(quality);
        } else {
            range.parameters.push((key.to_owned(), value.to_owned()));
        }
    }
    Some(range)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0..=1 before"
)]
fn quality_in_thousandths(quality: f32) -> u16 {
    (quality.clamp(0.0, 1.0) * 1000.0) as u16
}

/// The Go type of custom resources.
pub(crate) const UNTYPED: &str = "*unstructured.Unstructured";

/// A requested format that does not fit the answer: a list's format for one object, or the reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnsupportedForm {
    form: &'static str,
    is_list: bool,
}

impl UnsupportedForm {
    /// Returns the error, with the Go type of the answer. The request is already carried out at this point.
    pub(crate) fn refusal(self, go_type: &str) -> ApiError {
        if !self.is_list && go_type == UNTYPED {
            return ApiError::new(500, "", "content is not a list");
        }
        let (form, list) = (self.form, if self.is_list { "List" } else { "" });
        let why = if self.is_list { "is a list" } else { "is not a list" };
        let message = format!("you requested {form}, but the requested object {why} ({go_type}{list})");
        ApiError::new(406, "NotAcceptable", message)
    }
}

/// Returns the format of API objects in the answer to a request with this verb, and whether it will not fit.
pub(crate) fn negotiate_view(headers: &HeaderMap, verb: &str) -> Result<(View, Option<UnsupportedForm>), ApiError> {
    for range in parse_accept(headers) {
        if !matches!(range.media_type.as_str(), "application/json" | "*/*" | "application/*") {
            continue;
        }
        let wanted = (range.parameter("as"), range.parameter("g"), range.parameter("v"));
        match wanted {
            ("", _, _) => return Ok((View::Object, None)),
            ("Table", "meta.k8s.io", "v1") => return Ok((View::Table, None)),
            ("PartialObjectMetadata", "meta.k8s.io", "v1") => {
                let form = "PartialObjectMetadata";
                let unsupported = (verb == "list").then_some(UnsupportedForm { form, is_list: true });
                return Ok((View::Metadata, unsupported));
            }
            ("PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                let form = "PartialObjectMetadataList";
                let is_object = matches!(verb, "get" | "create" | "update" | "patch" | "delete");
                let unsupported = is_object.then_some(UnsupportedForm { form, is_list: false });
                return Ok((View::Metadata, unsupported));
            }
            _ => {}
        }
    }
    Err(ApiError::not_acceptable(&["application/json"]))
}
