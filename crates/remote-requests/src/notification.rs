//! A request to a receiver of notifications, and its answer.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::address::Address;

/// The data of a Secret, decoded.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// The TLS and proxy settings of a connection to a receiver of notifications, as the data of Secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ReceiverConnection {
    /// The trusted certificates and the client's own certificate.
    pub tls: Option<SecretData>,
    /// The address of a proxy, and the credentials for it.
    pub proxy: Option<SecretData>,
}

impl fmt::Debug for ReceiverConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ReceiverConnection(hidden)")
    }
}

/// The HTTP method of a [`NotificationRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A request without a body.
    Get,
    /// A request with a body.
    Post,
}

/// An HTTP request to a receiver of notifications. The address, headers and body may hold secrets, and are not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct NotificationRequest {
    /// The method.
    pub method: Method,
    /// The address.
    pub address: Address,
    /// Headers: lower-case names, each once.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// A user and a password.
    pub user: Option<(String, String)>,
    /// The most bytes of the answer's body that are read.
    pub answer_bytes: usize,
}

impl fmt::Debug for NotificationRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Letter({:?}, {} bytes)", self.method, self.body.len())
    }
}

/// The answer of a receiver to a [`NotificationRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The pause that the receiver requests.
    pub retry_after: Option<Duration>,
    /// The beginning of the body that is read. No part of the body is shown to users.
    pub body: Vec<u8>,
}
