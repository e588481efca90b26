//! A request that had no success, in the API server's own terms: status code, reason, and the fields that it blames.
//!
//! Facts only. What a refusal means for an object (wait, give up, make it anew) is decided by the planners, by these types and never by
//! searching a message for words. Words that Kubernetes may add later are kept as they came.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A request that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Failure {
    /// HTTP status; 0 when there was no answer at all.
    pub code: u16,
    /// Why, in one word.
    pub reason: Reason,
    /// What is wrong, a field at a time; empty when the answer names none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// How many seconds the API server asks to wait, if it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// Kubernetes' message, or what went wrong on the way. For people.
    pub message: String,
}

impl Failure {
    /// Whether the same request may succeed later without anybody changing anything: no answer, overload, server error.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.code == 0 || self.code == 429 || self.code >= 500
    }

    /// How long the API server asks to wait, if it said so.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_secs)
    }
}

/// One thing that is wrong with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// What kind of wrong. Kubernetes calls it the cause's `reason`.
    #[serde(rename = "reason")]
    pub kind: CauseKind,
    /// The field, as `spec.clusterIPs[0]`; empty when none is named.
    pub field: String,
    /// What is wrong, for people. It quotes the field's value.
    pub message: String,
}

/// A word that comes from the API server: those that are known as variants, any other as it came.
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
            /// The word as the API server writes it; empty when it named none.
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
    /// Why a request failed: Kubernetes' `StatusReason`, and what can go wrong before there is a status.
    Reason {
        /// The answer says nothing of it.
        Unknown = "",
        /// The credentials are not accepted (401).
        Unauthorized = "Unauthorized",
        /// It may not be done (403).
        Forbidden = "Forbidden",
        /// There is no such object (404).
        NotFound = "NotFound",
        /// An object of that name exists (409).
        AlreadyExists = "AlreadyExists",
        /// The object changed meanwhile, is another one, or others own its fields (409).
        Conflict = "Conflict",
        /// It was there and is not any more (410).
        Gone = "Gone",
        /// The object is not valid (422).
        Invalid = "Invalid",
        /// The revision to go on from is compacted (410).
        Expired = "Expired",
        /// The request itself makes no sense (400).
        BadRequest = "BadRequest",
        /// The resource can't do that (405).
        MethodNotAllowed = "MethodNotAllowed",
        /// None of the forms that were asked for can be given (406).
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
        /// A fault of the API server, or of what it asked (500).
        InternalError = "InternalError",
        /// It can't serve now (503).
        ServiceUnavailable = "ServiceUnavailable",
        /// What the store holds can't be read (500).
        StoreReadError = "StorageReadError",
        /// Ours: no connection, or it broke before there was an answer.
        Unreachable = "Unreachable",
        /// Ours: no answer in time; whether the request took effect is not known.
        Unanswered = "Unanswered",
        /// Ours: the answer can't be read.
        BadAnswer = "BadAnswer",
        /// Ours: there is no room in memory for what was answered; see the message for the setting.
        NoRoom = "NoRoom",
        /// Ours: the request can't be made from the object.
        BadObject = "BadObject",
        /// Ours: the ServiceAccount to act as does not exist.
        IdentityMissing = "IdentityMissing",
        /// Ours: discovery that is whole and fresh does not have this version of the kind.
        NoKindMatch = "NoKindMatch",
        /// Ours: discovery could not tell whether the kind is served.
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
    /// What is wrong with a field: Kubernetes' `CauseType`.
    CauseKind {
        /// The answer says nothing of it.
        Unknown = "",
        /// The field names something that is not there.
        NotFound = "FieldValueNotFound",
        /// The field has to be set.
        Required = "FieldValueRequired",
        /// The value is there twice.
        Duplicate = "FieldValueDuplicate",
        /// The value is not valid.
        Invalid = "FieldValueInvalid",
        /// The value is none of those that there are.
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
        /// The resourceVersion is too high for what the server has.
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
    fn words_come_back_as_they_came() {
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
    fn a_failure_reads_what_it_writes() {
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
