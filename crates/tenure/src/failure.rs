//! Errors for users: a kind, a message and a hint. The kind decides the exit code. An error names only causes that a user can act on.

use std::process::ExitCode;

use crate::connection_failure::{self, ConnectionFailure};

/// The exit codes in `tenure --help`.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done, 1 the command ran and its answer is no, 2 wrong usage, \
     3 the cluster or this machine refused or failed, 70 a defect of tenure itself, 130 interrupted.";

/// The party that has to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The command ran, and the answer is no.
    Negative,
    /// The command line or an input is wrong.
    Usage,
    /// The cluster, the disk or the network refused.
    Environment,
    /// A defect of Tenure.
    Internal,
}

/// A failure, as the user reads it.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    /// The failed operation, and its place.
    pub(crate) message: String,
    /// The action for the user.
    pub(crate) hint: Option<String>,
}

/// The hint about a missing object of a kind with namespaces.
pub(crate) const OTHER_NAMESPACE: &str = "-n names another namespace; tenure get KIND -A shows where one is";

/// The resources without namespaces that commands read by name, without a question about their scope.
const CLUSTER_SCOPED: [&str; 2] = ["namespaces", "tenants"];

/// Returns the hint about a missing object of a kind without namespaces.
pub(crate) fn write_cluster_scoped_hint(plural: &str) -> String {
    format!("{plural} have no namespace; tenure get {plural} lists them")
}

impl Failure {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// Returns a failure for a command that ran with a negative answer.
    pub(crate) fn negative(message: impl Into<String>) -> Self {
        Self::new(Kind::Negative, message)
    }

    /// Returns a failure for a wrong command line or input.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Returns a failure of the cluster, the disk or the network.
    pub(crate) fn environment(message: impl Into<String>) -> Self {
        Self::new(Kind::Environment, message)
    }

    /// Returns a failure for a defect of Tenure.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// Adds the action for the user.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the failure for commands where exit code 1 has another meaning: a missing object is then a refusal of the cluster.
    pub(crate) fn never_negative(self) -> Self {
        match self.kind {
            Kind::Negative => Self {
                kind: Kind::Environment,
                ..self
            },
            _ => self,
        }
    }

    /// Returns the exit code that `EXIT_CODES` documents.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// Returns the number of the exit code. A graver failure has a higher one.
    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            Kind::Negative => 1,
            Kind::Usage => 2,
            Kind::Environment => 3,
            Kind::Internal => 70,
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(&status),
            other => {
                if let Some(failure) = ConnectionFailure::find(&other) {
                    return Self::environment(failure.to_string()).hint(failure.hint);
                }
                match connection_failure::explain_own_certificate(&other) {
                    Some((message, hint)) => Self::usage(message).hint(hint),
                    None => Self::environment(write_chain(&other)),
                }
            }
        }
    }
}

impl Failure {
    /// Turns an answer of the API server into one line, with the party that has to act and a hint.
    fn from_status(status: &kube::core::Status) -> Self {
        let message = status.message.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = match status.reason.as_str() {
            "" => message,
            reason => format!("{message} ({reason})"),
        };
        match status.code {
            404 => {
                let resource = status.details.as_ref().map(|details| details.kind.as_str());
                let hint = match resource.filter(|resource| CLUSTER_SCOPED.contains(resource)) {
                    Some(resource) => write_cluster_scoped_hint(resource),
                    None => OTHER_NAMESPACE.to_owned(),
                };
                Self::negative(message).hint(hint)
            }
            409 => Self::negative(message).hint("it has changed meanwhile: look at it, and try again"),
            400 | 422 => Self::usage(message),
            401 => Self::environment(message)
                .hint("the server does not accept the kubeconfig's token or certificate: it has expired, or is for another cluster; get a new one, or name another kubeconfig: --kubeconfig FILE"),
            403 => Self::environment(message).hint("ask an administrator for this right, or use credentials that have it: --kubeconfig FILE, --context NAME"),
            _ => Self::environment(message),
        }
    }
}

/// Returns an error with its causes, each once. A failed connection has words of its own.
pub(crate) fn write_chain(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(failure) = ConnectionFailure::find(error) {
        return failure.to_string();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_error_gets_failure_kind_and_hint() {
        let check = |code: u16, kind: Kind, hint: &str| {
            let status = kube::core::Status {
                code,
                message: "first\n second".to_owned(),
                reason: "Because".to_owned(),
                ..kube::core::Status::default()
            };
            let failure = Failure::from_status(&status);
            assert_eq!(
                (failure.kind, failure.message.as_str()),
                (kind, "first second (Because)"),
                "{code}"
            );
            assert!(failure.hint.unwrap_or_default().contains(hint), "{code}");
        };
        check(404, Kind::Negative, "-A");
        check(403, Kind::Environment, "administrator");
        check(401, Kind::Environment, "it has expired, or is for another cluster");
        check(422, Kind::Usage, "");
        check(500, Kind::Environment, "");
    }

    #[test]
    fn missing_cluster_object_gets_no_namespace_hint() {
        let hint = |kind: &str| {
            let details = serde_json::json!({"status": "Failure", "message": "not found", "code": 404, "reason": "NotFound",
                "details": {"name": "a", "kind": kind}});
            let status: kube::core::Status = serde_json::from_value(details).expect("a status");
            Failure::from_status(&status).hint.unwrap_or_default()
        };
        assert_eq!(
            hint("tenants"),
            "tenants have no namespace; tenure get tenants lists them"
        );
        assert_eq!(hint("kustomizations"), OTHER_NAMESPACE);
    }

    #[test]
    fn a_chain_names_every_cause_once() {
        let inner = std::io::Error::other("disk full");
        let outer = std::io::Error::other(inner);
        assert_eq!(write_chain(&outer), "disk full");
    }
}
