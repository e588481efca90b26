//! Failed connections to an API server, in the words of a user who has to act: nothing listens, another authority, a refused certificate, a name without an address,
//! no answer. The module reads the causes of an error and opens no connection.

use std::error::Error as StdError;
use std::fmt;
use std::io::ErrorKind;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::failure::write_chain;

/// A request that got no answer from the API server, with the reason and the action for the user.
#[derive(Debug)]
pub(crate) struct ConnectionFailure {
    /// The server and the reason.
    message: String,
    /// The action for the user.
    pub(crate) hint: &'static str,
    source: Box<dyn StdError + Send + Sync>,
}

impl ConnectionFailure {
    /// Explains the error of a request to a server.
    pub(crate) fn new(server: &str, error: Box<dyn StdError + Send + Sync>) -> Self {
        let (message, hint) = explain_error(server, &*error);
        Self {
            message,
            hint,
            source: error,
        }
    }

    /// Makes the failure of a request that the server refused because of the user's own certificate.
    pub(crate) fn of_own_certificate(problem: &str) -> Self {
        Self {
            message: problem.to_owned(),
            hint: CLIENT,
            source: Box::from(problem),
        }
    }

    /// Finds the failure among the causes of an error.
    pub(crate) fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        list_causes(error).into_iter().find_map(|cause| cause.downcast_ref())
    }
}

impl fmt::Display for ConnectionFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl StdError for ConnectionFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

const START: &str = "start the control plane, or name another one with --kubeconfig FILE or --context NAME; `tenure up --data DIR` starts one and writes DIR/kubeconfig";
const NETWORK: &str = "look at the network between this machine and the server (VPN, firewall, proxy), or name another server: --kubeconfig FILE, --context NAME";
const AUTHORITY: &str =
    "another cluster answers at this address, or this cluster was created again: get its new kubeconfig";
const CLIENT: &str = "get a new kubeconfig from an administrator of the cluster";

/// Explains the certificate of the kubeconfig's user that can't be used at all.
pub(crate) fn explain_own_certificate(error: &(dyn StdError + 'static)) -> Option<(String, &'static str)> {
    let is_old = list_causes(error)
        .into_iter()
        .any(|cause| cause.to_string().contains("UnsupportedCertVersion"));
    is_old.then(|| {
        let message = "the client certificate in the kubeconfig is X.509 version 1, and version 3 is needed";
        (
            message.to_owned(),
            "make it with extensions, as `openssl x509 -req` does with -extfile",
        )
    })
}

/// Returns the reason why no server accepts the client certificate of a configuration at this time, if there is one. An unreadable certificate is no reason: other code
/// reports it.
pub(crate) fn find_certificate_problem(config: &kube::Config, now: Timestamp) -> Option<String> {
    let pem = match (
        &config.auth_info.client_certificate_data,
        &config.auth_info.client_certificate,
    ) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, Some(path)) => std::fs::read(path).ok()?,
        (None, None) => return None,
    };
    describe_validity(&pem, now)
}

fn describe_validity(pem: &[u8], now: Timestamp) -> Option<String> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let validity = certificate.validity();
    let write_time = |seconds: i64| Timestamp::from_second(seconds).map(|time| time.to_string());
    let (begin, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    match now.as_second() {
        now if now > end => Some(format!(
            "the client certificate in the kubeconfig expired on {}",
            write_time(end).ok()?
        )),
        now if now < begin => Some(format!(
            "the client certificate in the kubeconfig is not valid before {}: compare the clock of this machine",
            write_time(begin).ok()?
        )),
        _ => None,
    }
}

/// Returns an error and its causes. An I/O error hides the error that it was made of.
fn list_causes<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    let mut causes = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        causes.push(error);
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match inner {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => error.source(),
        };
    }
    causes
}

fn explain_error(server: &str, error: &(dyn StdError + 'static)) -> (String, &'static str) {
    let causes = list_causes(error);
    for cause in &causes {
        if let Some(tls) = cause.downcast_ref::<TlsError>() {
            return explain_tls(server, tls);
        }
        if cause.is::<tokio::time::error::Elapsed>() || cause.downcast_ref().is_some_and(hyper::Error::is_timeout) {
            return (format!("{server} did not answer in time"), NETWORK);
        }
        let text = cause.to_string();
        if text.starts_with("dns error") || text.contains("failed to lookup address") {
            return (format!("the name of {server} has no address"), NETWORK);
        }
        if let Some(error) = cause.downcast_ref::<std::io::Error>() {
            match error.kind() {
                ErrorKind::ConnectionRefused => {
                    return (format!("nothing listens at {server} (connection refused)"), START);
                }
                ErrorKind::TimedOut => return (format!("{server} did not answer in time"), NETWORK),
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    return (format!("no way leads to {server} ({error})"), NETWORK);
                }
                ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => {
                    return (format!("{server} closed the connection without an answer"), NETWORK);
                }
                _ => {}
            }
        }
    }
    (format!("{server}: {}", write_chain(error)), NETWORK)
}

fn explain_tls(server: &str, error: &TlsError) -> (String, &'static str) {
    match error {
        TlsError::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => (
                format!("the authority in the kubeconfig did not sign the certificate of the server at {server}"),
                AUTHORITY,
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
                format!("the certificate of the server at {server} has expired"),
                "the administrator of the server renews it; also compare the clock of this machine",
            ),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
                format!("the certificate of the server at {server} is not valid yet"),
                "compare the clock of this machine with the server's",
            ),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
                format!("the certificate of the server is for other names than {server}"),
                "use a name from the certificate in the kubeconfig, or tls-server-name",
            ),
            _ => (
                format!("the certificate of the server at {server} is not accepted ({error})"),
                AUTHORITY,
            ),
        },
        TlsError::AlertReceived(alert) => {
            let why = match alert {
                AlertDescription::CertificateExpired => "it has expired",
                AlertDescription::UnknownCA => "its authority is unknown there",
                AlertDescription::CertificateRequired => "a certificate is required, and the kubeconfig has none",
                AlertDescription::CertificateRevoked => "it was revoked",
                AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::AccessDenied
                | AlertDescription::DecryptError => "the server gives no closer reason",
                _ => return (format!("{server} ended the TLS handshake: {alert:?}"), NETWORK),
            };
            (
                format!("the server at {server} did not accept the client certificate in the kubeconfig: {why}"),
                CLIENT,
            )
        }
        TlsError::InvalidMessage(_) => (
            format!("{server} does not speak TLS"),
            "look at the address and the port in the kubeconfig: an API server listens with https",
        ),
        other => (format!("the TLS handshake with {server} failed: {other}"), NETWORK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: impl Into<Box<dyn StdError + Send + Sync>>, message: &str, hint: &str) {
        let failure = ConnectionFailure::new("https://127.0.0.1:6443", error.into());
        let text = failure.to_string();
        assert!(
            text.contains(message) && failure.hint.contains(hint),
            "{text}: {}",
            failure.hint
        );
    }

    #[test]
    fn each_cause_has_its_words() {
        let tls = |error: TlsError| std::io::Error::new(ErrorKind::InvalidData, error);
        check(
            std::io::Error::from(ErrorKind::ConnectionRefused),
            "nothing listens at https://127.0.0.1:6443",
            "tenure up",
        );
        check(
            std::io::Error::from(ErrorKind::TimedOut),
            "did not answer in time",
            "network",
        );
        check(
            std::io::Error::other("dns error: failed to lookup address information"),
            "has no address",
            "",
        );
        check(
            tls(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)),
            "did not sign the certificate of the server",
            "another cluster answers",
        );
        check(
            tls(TlsError::InvalidCertificate(CertificateError::Expired)),
            "has expired",
            "clock",
        );
        check(
            tls(TlsError::InvalidCertificate(CertificateError::NotValidForName)),
            "is for other names",
            "tls-server-name",
        );
        check(
            tls(TlsError::AlertReceived(AlertDescription::CertificateExpired)),
            "did not accept the client certificate in the kubeconfig: it has expired",
            "new kubeconfig",
        );
        check(
            tls(TlsError::AlertReceived(AlertDescription::InternalError)),
            "ended the TLS handshake",
            "",
        );
        check(std::io::Error::other("strange"), "https://127.0.0.1:6443: strange", "");
    }

    #[test]
    fn a_certificate_is_valid_for_a_time() {
        let mut parameters = rcgen::CertificateParams::new(vec!["alice".to_owned()]).expect("parameters");
        parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2026, 2, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = parameters.self_signed(&key).expect("a certificate").pem();
        let problem = |time: &str| describe_validity(pem.as_bytes(), time.parse().expect("a time"));
        assert_eq!(problem("2026-01-15T00:00:00Z"), None);
        let expired = "the client certificate in the kubeconfig expired on 2026-02-01T00:00:00Z";
        assert_eq!(problem("2026-03-01T00:00:00Z").as_deref(), Some(expired));
        assert!(problem("2025-12-01T00:00:00Z").is_some_and(|problem| problem.contains("not valid before")));
        assert_eq!(describe_validity(b"no certificate", Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn the_failure_is_found_among_the_causes() {
        let failure = ConnectionFailure::new("s", std::io::Error::from(ErrorKind::ConnectionRefused).into());
        let outer = std::io::Error::other(failure);
        assert!(ConnectionFailure::find(&outer).is_some());
        assert!(ConnectionFailure::find(&std::io::Error::other("x")).is_none());
    }
}
