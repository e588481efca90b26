//! An error in one field, worded and reported as Kubernetes' `field.Error`.

use std::collections::HashSet;
use std::fmt;

pub use go_words::quote::quote as go_quoted;
use serde_json::{Value, json};
use tenure_checkpoint::{checkpoint, report_bytes};

/// The kind of an error, which decides the words and the machine-readable reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// A value is malformed.
    Invalid,
    /// A value is of the wrong JSON type.
    TypeInvalid,
    /// A value is not among those supported; the detail lists them.
    NotSupported,
    /// A value occurs twice.
    Duplicate,
    /// A field may not be set here.
    Forbidden,
    /// A value is too long.
    TooLong,
    /// A list has too many items.
    TooMany,
    /// A value refers to a missing object.
    NotFound,
    /// The check itself failed, so the value is neither valid nor invalid.
    Internal,
}

impl FieldErrorKind {
    /// Returns the `reason` of the Status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }
}

/// An error in a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The kind of error.
    pub kind: FieldErrorKind,
    /// The field's path, `spec.template.spec.containers[0].name`.
    pub field: String,
    /// The offending value; not shown for some kinds.
    pub value: Shown,
    /// The detail; may be empty.
    pub detail: String,
    /// Whether the error existed before. The writer then gets a warning, and the write is accepted.
    pub tolerated: bool,
}

impl FieldError {
    /// Creates an error of any kind.
    pub fn new(kind: FieldErrorKind, field: impl ToString, value: impl Into<Shown>, detail: impl Into<String>) -> Self {
        let (field, value, detail) = (field.to_string(), value.into(), detail.into());
        report_bytes(field.len() + value.weight() + detail.len());
        Self {
            kind,
            field,
            value,
            detail,
            tolerated: false,
        }
    }

    /// Creates the error for a missing value.
    pub fn required(field: impl ToString, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, Value::Null, detail)
    }

    /// Creates the error for a malformed value.
    pub fn invalid(field: impl ToString, value: impl Into<Shown>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value, detail)
    }

    /// Creates the error for a forbidden field.
    pub fn forbidden(field: impl ToString, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, Value::Null, detail)
    }

    /// Creates the error for a duplicate value.
    pub fn duplicate(field: impl ToString, value: impl Into<Shown>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, value, "")
    }

    /// Creates the error for a value that is not one of `supported`.
    pub fn not_supported<S: AsRef<str>>(field: impl ToString, value: impl Into<Shown>, supported: &[S]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|one| format!("{:?}", one.as_ref())).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, value, detail)
    }

    /// Returns the words without the path: the `message` of the Status cause.
    pub fn body(&self) -> String {
        let words = self.kind.words();
        let mut body = match self.kind {
            FieldErrorKind::Required
            | FieldErrorKind::Forbidden
            | FieldErrorKind::TooLong
            | FieldErrorKind::Internal => words.to_owned(),
            _ => match &self.value {
                Shown::Omitted => words.to_owned(),
                shown => format!("{words}: {shown}"),
            },
        };
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }

    /// Returns the Status cause.
    pub fn cause(&self) -> Value {
        json!({"reason": self.kind.reason(), "message": self.body(), "field": self.field})
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.body())
    }
}

/// The form in which an error shows its value.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A value: strings in Go's quotes, everything else as JSON.
    Json(Value),
    /// A text that already has Go's printed form.
    Verbatim(String),
    /// The value is omitted, because the error is about all of it.
    Omitted,
}

impl Shown {
    /// Returns the approximate printed length in bytes.
    fn weight(&self) -> usize {
        fn weigh_value(value: &Value) -> usize {
            match value {
                Value::String(text) => 2 + text.len(),
                Value::Array(items) => 2 + items.iter().map(weigh_value).sum::<usize>(),
                Value::Object(map) => {
                    2 + map
                        .iter()
                        .map(|(key, value)| 4 + key.len() + weigh_value(value))
                        .sum::<usize>()
                }
                _ => 8,
            }
        }
        match self {
            Self::Json(value) => weigh_value(value),
            Self::Verbatim(text) => text.len(),
            Self::Omitted => 0,
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(Value::String(text)) => formatter.write_str(&go_quoted(text)),
            Self::Json(other) => other.fmt(formatter),
            Self::Verbatim(text) => formatter.write_str(text),
            Self::Omitted => Ok(()),
        }
    }
}

macro_rules! shown_as_json {
    ($($kind:ty),+) => {$(
        impl From<$kind> for Shown {
            fn from(value: $kind) -> Self {
                Self::Json(Value::from(value))
            }
        }
    )+};
}

shown_as_json!(
    Value,
    &str,
    String,
    bool,
    i32,
    i64,
    u32,
    u64,
    usize,
    f64,
    Option<i64>,
    Vec<&str>,
    Vec<String>,
    Vec<Value>
);

/// Returns JSON in Go's default form, which is safe inside HTML.
pub fn fit_for_html(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Returns the texts in their order, each of them once.
pub fn remove_duplicates(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut known = HashSet::new();
    let mut texts: Vec<String> = texts.into_iter().inspect(|_| checkpoint()).collect();
    let new: Vec<bool> = texts.iter().map(|text| known.insert(text.as_str())).collect();
    let mut new = new.into_iter();
    texts.retain(|_| new.next().unwrap_or(true));
    texts
}

/// Joins several errors into one text, as Go's aggregates print them: the only one, or all in brackets without repetitions.
pub fn aggregate_errors(errors: &[FieldError]) -> String {
    let messages = remove_duplicates(errors.iter().map(FieldError::to_string));
    match messages.as_slice() {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Returns the 422 Status for an object, as `errors.NewInvalid` words it: one message, or all of them in brackets without
/// repetitions.
pub fn invalid_status(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Value {
    let all = aggregate_errors(errors);
    let qualified = if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    };
    let mut details = json!({"name": name, "group": group, "kind": kind});
    if let Some(details) = details.as_object_mut() {
        details.retain(|_, value| value.as_str() != Some(""));
        details.insert("causes".into(), errors.iter().map(FieldError::cause).collect());
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{qualified} {} is invalid: {all}", go_quoted(name)),
        "reason": "Invalid", "details": details, "code": 422,
    })
}

/// A field's path while walking an object.
#[derive(Clone, Debug, Default)]
pub struct FieldPath(String);

/// The maximum length of a path. A key may be as long as a body, and is part of the path of everything below it.
pub const LONGEST_PATH: usize = 4096;

/// Returns a key as paths show it.
pub fn shorten_key(key: &str) -> &str {
    let end = (0..=LONGEST_PATH.min(key.len()))
        .rev()
        .find(|end| key.is_char_boundary(*end));
    end.and_then(|end| key.get(..end)).unwrap_or(key)
}

impl FieldPath {
    /// Checks whether the path is too long. A field below such a path gets the same path.
    fn is_long(&self) -> bool {
        self.0.len() > LONGEST_PATH
    }

    /// Returns the path of a top-level field.
    pub fn new(field: &str) -> Self {
        Self(field.to_owned())
    }

    /// Returns the path of a field below this path.
    pub fn child(&self, field: &str) -> Self {
        if self.is_long() {
            return self.clone();
        }
        let field = shorten_key(field);
        if self.0.is_empty() {
            Self::new(field)
        } else {
            Self(format!("{}.{field}", self.0))
        }
    }

    /// Returns the path of a list item below this path.
    pub fn index(&self, index: usize) -> Self {
        // Each walk through a list calls this function.
        checkpoint();
        if self.is_long() {
            return self.clone();
        }
        Self(format!("{}[{index}]", self.0))
    }

    /// Returns the path of a map entry below this path.
    pub fn key(&self, key: &str) -> Self {
        checkpoint();
        if self.is_long() {
            return self.clone();
        }
        Self(format!("{}[{}]", self.0, shorten_key(key)))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
