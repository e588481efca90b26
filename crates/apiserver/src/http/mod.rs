//! HTTP in Kubernetes' form: targets of URLs, contents of bodies, formats of answers, and errors.

pub(crate) mod body;
pub(crate) mod etag;
pub(crate) mod negotiate;
pub(crate) mod query;
pub(crate) mod request_info;
pub(crate) mod respond;
pub(crate) mod status;
pub(crate) mod warnings;

pub use body::{Body, BoxError};
pub(crate) use request_info::{CONFIDENTIAL, RequestInfo};
pub use status::ApiError;
pub(crate) use tenure_kinds::schema::FieldError;
