//! A failed request, in the API server's own terms: status code, reason, and the fields in question.
//!
//! This module holds facts only. Planners decide what a refusal means for an object (wait, give up, re-create), by these types and never by a search for words in a
//! message. Unknown words, which Kubernetes may add later, are kept unchanged.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A failed request: the API server's status, or Tenure's own reason if no status came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Failure {
    /// HTTP status; 0 when there was no answer at all.
    pub code: u16,
    /// The reason, in one word.
    pub reason: Reason,
    /// The problems by field; empty if the answer names none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// The pause in seconds that the API server requests, if it requests one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// Kubernetes' message, or the failure before its answer. For people.
    pub message: String,
}

impl Failure {
    /// Checks whether the same request may succeed later without any change: after no answer, an overload, or a server error.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.code == 0 || self.code == 429 || self.code >= 500
    }

    /// Returns the pause that the API server requests, if it requests one.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_secs)
    }
}

/// A problem with one part of a request, such as an invalid field (`details.causes` of a Kubernetes Status).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// The kind of the problem. Kubernetes calls it the cause's `reason`.
    #[serde(rename = "reason")]
    pub kind: CauseKind,
    /// The field, as `spec.clusterIPs[0]`; empty if the answer names none.
    pub field: String,
    /// The problem, for people. The text quotes the field's value.
    pub message: String,
}

/// A word of the API server: known words are variants, and other words are kept unchanged.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$variant_about:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $($(#[$variant_about])* $variant,)*
            /// A word that is not known here.
            Other(String),
        }

        impl $name {
            /// Returns the word as the API server writes it; empty when it named none.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                Self::from(word.as_str())
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// The reason of a failed request: Kubernetes' `StatusReason`, and the failures before a status exists.
    Reason {
        /// The answer gives no reason.
        Unknown = "",
        /// The credentials are not accepted (401).
        Unauthorized = "Unauthorized",
        /// The request is not allowed (403).
        Forbidden = "Forbidden",
        /// The object does not exist (404).
        NotFound = "NotFound",
        /// An object of that name exists (409).
        AlreadyExists = "AlreadyExists",
        /// The object changed meanwhile, is another one, or others own its fields (409).
        Conflict = "Conflict",
        /// The object or version existed and doesn't exist any more (410).
        Gone = "Gone",
        /// The object is not valid (422).
        Invalid = "Invalid",
        /// The revision to go on from is compacted (410).
        Expired = "Expired",
        /// The request itself makes no sense (400).
        BadRequest = "BadRequest",
        /// The resource can't do that (405).
        MethodNotAllowed = "MethodNotAllowed",
        /// The API server can return none of the requested formats (406).
        NotAcceptable = "NotAcceptable",
        /// The body is too large (413).
        RequestEntityTooLarge = "RequestEntityTooLarge",
        /// The body has a form that is not understood (415).
        UnsupportedMediaType = "UnsupportedMediaType",
        /// Too much at once (429).
        TooManyRequests = "TooManyRequests",
        /// The API server could not do it in time (504).
        Timeout = "Timeout",
        /// The API server asks to try again (500).
        ServerTimeout = "ServerTimeout",
        /// A fault of the API server, or of a server that it called (500).
        InternalError = "InternalError",
        /// The API server can't serve requests now (503).
        ServiceUnavailable = "ServiceUnavailable",
        /// The object in the store can't be read (500).
        StoreReadError = "StorageReadError",
        /// Tenure's own: no connection, or it broke before the answer.
        Unreachable = "Unreachable",
        /// Tenure's own: no answer in time; the effect of the request is unknown.
        Unanswered = "Unanswered",
        /// Tenure's own: the answer can't be read.
        BadAnswer = "BadAnswer",
        /// Tenure's own: the memory has no capacity for the answer; see the message for the setting.
        NoRoom = "NoRoom",
        /// Tenure's own: the request can't be made from the object.
        BadObject = "BadObject",
        /// Tenure's own: the ServiceAccount to act as does not exist.
        IdentityMissing = "IdentityMissing",
        /// Tenure's own: a complete and fresh discovery does not have this version of the kind.
        NoKindMatch = "NoKindMatch",
        /// Tenure's own: discovery could not tell whether the kind is served.
        DiscoveryIncomplete = "DiscoveryIncomplete",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro has no place for an attribute")]
impl Default for Reason {
    fn default() -> Self {
        Self::Unknown
    }
}

words! {
    /// The kind of a field's problem: Kubernetes' `CauseType`.
    CauseKind {
        /// The answer gives no kind.
        Unknown = "",
        /// The field names something that is not there.
        NotFound = "FieldValueNotFound",
        /// The field has to be set.
        Required = "FieldValueRequired",
        /// The value is there twice.
        Duplicate = "FieldValueDuplicate",
        /// The value is not valid.
        Invalid = "FieldValueInvalid",
        /// The value is not one of the supported ones.
        NotSupported = "FieldValueNotSupported",
        /// The value, or its change, is not allowed.
        Forbidden = "FieldValueForbidden",
        /// The value is too long.
        TooLong = "FieldValueTooLong",
        /// There are too many.
        TooMany = "FieldValueTooMany",
        /// A fault while validating.
        Internal = "InternalError",
        /// The value has another type than the field.
        TypeInvalid = "FieldValueTypeInvalid",
        /// Another field manager owns the field.
        FieldManagerConflict = "FieldManagerConflict",
        /// The uid is another one.
        UidMismatch = "UidMismatch",
        /// The resourceVersion is newer than the server's state.
        ResourceVersionTooLarge = "ResourceVersionTooLarge",
        /// The namespace is being deleted.
        NamespaceTerminating = "NamespaceTerminating",
        /// The server answered with something that is not a status.
        UnexpectedServerResponse = "UnexpectedServerResponse",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro has no place for an attribute")]
impl Default for CauseKind {
    fn default() -> Self {
        Self::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_causes_keep_their_words() {
        for word in [
            "",
            "Invalid",
            "NamespaceTerminating",
            "FieldValueInvalid",
            "SomethingNew",
        ] {
            assert_eq!(Reason::from(word).as_str(), word);
            assert_eq!(CauseKind::from(word).as_str(), word);
        }
        assert_eq!(Reason::from("Conflict"), Reason::Conflict);
        assert_eq!(CauseKind::from("FieldValueForbidden"), CauseKind::Forbidden);
    }

    #[test]
    fn failure_survives_serialization() {
        let failure = Failure {
            code: 422,
            reason: Reason::Invalid,
            causes: vec![Cause {
                kind: CauseKind::Invalid,
                field: "spec.selector".to_owned(),
                message: "Invalid value: {}: field is immutable".to_owned(),
            }],
            retry_after: Some(3),
            message: "is invalid".to_owned(),
        };
        let text = serde_json::to_string(&failure).unwrap();
        assert!(text.contains(r#""reason":"FieldValueInvalid""#), "{text}");
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
    }
}
