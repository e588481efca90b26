//! Whether an installation would work in a cluster: findings from the cluster's version, its served kinds, the user's rights, other controllers and the addresses of the API
//! server. An answer that is missing is a warning, and never counts as a yes.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use tenure_api::metadata::{
    CAPSULE_LEASE, KUSTOMIZE_CONTROLLER_LEASE, NOTIFICATION_CONTROLLER_LEASE, PLATFORM_NAMESPACE,
    SOURCE_CONTROLLER_LEASE, SOURCE_WATCHER_LEASE,
};

/// The oldest minor version of Kubernetes 1 that is supported, the first with match conditions of webhooks, and the first whose expressions compare addresses.
const OLDEST: u32 = 28;
const OLDEST_FOR_WEBHOOKS: u32 = 30;
const OLDEST_FOR_POLICIES: u32 = 31;
/// The group of webhooks and policies.
const ADMISSION: &str = "admissionregistration.k8s.io";
/// The ports of an API server that every installation opens.
const API_SERVER_PORTS: [u16; 2] = [443, 6443];
/// The kinds that every installation needs.
const NEEDED: [(&str, &str); 8] = [
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("coordination.k8s.io", "leases"),
    ("apps", "deployments"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("", "serviceaccounts"),
];

/// The Lease of another program's controller that reconciles Tenure's kinds, in its usual namespace, and the value of `--controllers` that leaves the kinds to
/// this controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherLease {
    /// The controller.
    pub controller: &'static str,
    /// The namespace.
    pub namespace: &'static str,
    /// The name of the Lease.
    pub lease: &'static str,
    /// The value of `--controllers` that leaves the kinds to it.
    pub leave: &'static str,
}

/// The Leases of controllers that reconcile kinds of Tenure's.
pub const OTHERS: [OtherLease; 5] = [
    make_other_lease(
        "source-controller",
        "flux-system",
        SOURCE_CONTROLLER_LEASE,
        "'*,-gitrepository,-ocirepository,-bucket,-kustomization,-surface'",
    ),
    make_other_lease(
        "source-watcher",
        "flux-system",
        SOURCE_WATCHER_LEASE,
        "'*,-artifactgenerator,-externalartifact'",
    ),
    make_other_lease(
        "kustomize-controller",
        "flux-system",
        KUSTOMIZE_CONTROLLER_LEASE,
        "'*,-kustomization,-surface'",
    ),
    make_other_lease(
        "notification-controller",
        "flux-system",
        NOTIFICATION_CONTROLLER_LEASE,
        "'*,-receiver,-alert,-provider'",
    ),
    make_other_lease("Capsule's controller", "capsule-system", CAPSULE_LEASE, "'*,-tenant'"),
];

const fn make_other_lease(
    controller: &'static str,
    namespace: &'static str,
    lease: &'static str,
    leave: &'static str,
) -> OtherLease {
    OtherLease {
        controller,
        namespace,
        lease,
        leave,
    }
}

/// A right that an installation takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The verb.
    pub verb: String,
    /// The group of the resource.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The namespace; empty for all.
    pub namespace: String,
}

/// A served kind: group, version, plural.
pub type ServedKind = (String, String, String);

/// The observed facts about a cluster. An error is the reason of an unknown fact.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The version of Kubernetes, such as `v1.36.3`.
    pub version: String,
    /// The served kinds.
    pub served: Vec<ServedKind>,
    /// Whether the user has each right.
    pub rights: Vec<(Right, Result<bool, String>)>,
    /// The holder of each Lease of [`OTHERS`], if one holds it.
    pub others: Vec<(OtherLease, Result<Option<String>, String>)>,
    /// The addresses and ports at which the API server listens.
    pub api_servers: Result<Vec<(String, u16)>, String>,
    /// The image of installed controllers, if there are any.
    pub installed: Result<Option<String>, String>,
}

/// The severity of a finding about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gravity {
    /// The fact suits an installation.
    Good,
    /// An installation lacks a part, or the fact is unknown.
    Warning,
    /// An installation does not work.
    Bad,
}

/// A finding: one fact about a cluster, and its effect on an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstallationFinding {
    /// The severity of the finding.
    pub gravity: Gravity,
    /// The finding.
    pub finding: String,
    /// The action for the user, or an empty text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

impl fmt::Display for InstallationFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.gravity {
            Gravity::Good => "✔ ",
            Gravity::Warning => "⚠ ",
            Gravity::Bad => "✗ ",
        })?;
        formatter.write_str(&self.finding)?;
        if !self.advice.is_empty() {
            write!(formatter, ": {}", self.advice)?;
        }
        Ok(())
    }
}

fn report_good(finding: impl Into<String>) -> InstallationFinding {
    InstallationFinding {
        gravity: Gravity::Good,
        finding: finding.into(),
        advice: String::new(),
    }
}

fn report_warning(finding: impl Into<String>, advice: impl Into<String>) -> InstallationFinding {
    InstallationFinding {
        gravity: Gravity::Warning,
        finding: finding.into(),
        advice: advice.into(),
    }
}

fn report_bad(finding: impl Into<String>, advice: impl Into<String>) -> InstallationFinding {
    InstallationFinding {
        gravity: Gravity::Bad,
        finding: finding.into(),
        advice: advice.into(),
    }
}

/// Returns the minor version of a Kubernetes 1; `None` for another version.
#[must_use]
pub fn read_minor_version(version: &str) -> Option<u32> {
    let rest = version.trim_start_matches('v').strip_prefix("1.")?;
    let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

/// Checks whether a cluster can have the policies of tenancy: it serves them, and their expressions compare addresses.
#[must_use]
pub fn can_have_policies(version: &str, serves_policies: bool) -> bool {
    serves_policies && read_minor_version(version).is_some_and(|minor| minor >= OLDEST_FOR_POLICIES)
}

/// Checks whether a cluster can have admission webhooks: they have match conditions.
#[must_use]
pub fn can_have_webhooks(version: &str) -> bool {
    read_minor_version(version).is_some_and(|minor| minor >= OLDEST_FOR_WEBHOOKS)
}

/// Lists all findings, in the order of the questions.
#[must_use]
pub fn list_findings(observed: &Observation) -> Vec<InstallationFinding> {
    let mut findings = vec![assess_version(&observed.version)];
    findings.extend(assess_kinds(observed));
    findings.extend(assess_rights(&observed.rights));
    findings.extend(assess_others(&observed.others));
    findings.extend(assess_installed(&observed.installed));
    findings.push(assess_network(&observed.api_servers));
    findings
}

fn assess_version(version: &str) -> InstallationFinding {
    match read_minor_version(version) {
        None => report_bad(
            format!("Kubernetes {version:?} is no version of Kubernetes 1"),
            format!("use a cluster of Kubernetes 1.{OLDEST} or newer"),
        ),
        Some(minor) if minor < OLDEST => report_bad(
            format!("Kubernetes {version} is too old"),
            format!("use a cluster of Kubernetes 1.{OLDEST} or newer"),
        ),
        Some(minor) if minor < OLDEST_FOR_WEBHOOKS => report_warning(
            format!("Kubernetes {version} has neither the webhooks nor the policies that Tenure writes"),
            format!(
                "install works without both; Kubernetes 1.{OLDEST_FOR_WEBHOOKS} has webhooks with match conditions, and 1.{OLDEST_FOR_POLICIES} the policies"
            ),
        ),
        Some(minor) if minor < OLDEST_FOR_POLICIES => report_warning(
            format!("Kubernetes {version} has no policies whose expressions compare addresses"),
            format!("install works with webhooks alone; Kubernetes 1.{OLDEST_FOR_POLICIES} has these policies"),
        ),
        Some(_) => report_good(format!("Kubernetes {version}")),
    }
}

fn assess_kinds(observed: &Observation) -> Vec<InstallationFinding> {
    let serves = |group: &str, resource: &str| {
        observed
            .served
            .iter()
            .any(|(known, _, plural)| known == group && plural == resource)
    };
    let missing: Vec<String> = NEEDED
        .iter()
        .filter(|(group, resource)| !serves(group, resource))
        .map(|(group, resource)| name_resource(group, resource))
        .collect();
    let mut findings = Vec::new();
    findings.push(match missing.as_slice() {
        [] => report_good("the API server serves all kinds that an installation consists of"),
        missing => report_bad(
            format!("the API server does not serve {}", missing.join(", ")),
            "an installation needs them; tenure up is a control plane of its own",
        ),
    });
    let has_webhooks = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
        .iter()
        .all(|resource| serves(ADMISSION, resource));
    findings.push(match has_webhooks {
        true => report_good("admission webhooks are served"),
        false => report_warning(
            "admission webhooks are not served",
            "tenure install --without-admission; sums and other objects are then not checked",
        ),
    });
    let policies = observed.served.iter().any(|(group, version, plural)| {
        group == ADMISSION && version == "v1" && plural == "validatingadmissionpolicies"
    });
    findings.push(match policies {
        true => report_good("ValidatingAdmissionPolicies are served"),
        false => report_warning(
            "ValidatingAdmissionPolicies are not served in version v1",
            "tenure install leaves policies out; nothing bounds the controllers' own account then",
        ),
    });
    findings
}

fn name_resource(group: &str, resource: &str) -> String {
    match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

/// Returns one finding for each resource, with the missing verbs.
fn assess_rights(rights: &[(Right, Result<bool, String>)]) -> Vec<InstallationFinding> {
    let places: BTreeSet<(&str, &str, &str)> = rights
        .iter()
        .map(|(right, _)| (right.group.as_str(), right.resource.as_str(), right.namespace.as_str()))
        .collect();
    let mut findings = Vec::new();
    let mut granted = 0;
    for (group, resource, namespace) in places {
        let of_place = rights.iter().filter(|(right, _)| {
            (right.group.as_str(), right.resource.as_str(), right.namespace.as_str()) == (group, resource, namespace)
        });
        let (mut missing, mut unknown) = (Vec::new(), None);
        for (right, answer) in of_place {
            match answer {
                Ok(true) => granted += 1,
                Ok(false) => missing.push(right.verb.as_str()),
                Err(why) => unknown = Some(why),
            }
        }
        let place = match namespace {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        };
        let name = name_resource(group, resource);
        let goes_beyond = missing.iter().all(|verb| ["bind", "escalate"].contains(verb));
        if goes_beyond && !missing.is_empty() {
            findings.push(report_warning(
                format!("you may not {} {name}{place}", missing.join(", ")),
                "the API server then accepts only roles whose rights you have yourself",
            ));
        } else if !missing.is_empty() {
            findings.push(report_bad(
                format!("you may not {} {name}{place}", missing.join(", ")),
                "an administrator of the cluster runs tenure install",
            ));
        }
        if let Some(why) = unknown {
            findings.push(report_warning(
                format!("whether you may write {name}{place} is unknown"),
                why.clone(),
            ));
        }
    }
    if findings.is_empty() {
        findings.push(report_good(format!(
            "you have the {granted} rights that tenure install takes"
        )));
    }
    findings
}

fn assess_others(others: &[(OtherLease, Result<Option<String>, String>)]) -> Vec<InstallationFinding> {
    let mut findings: Vec<InstallationFinding> = others
        .iter()
        .filter_map(|(other, holder)| match holder {
            Ok(None) => None,
            Ok(Some(holder)) => Some(report_warning(
                format!(
                    "{} runs: {holder} holds the Lease {}/{}",
                    other.controller, other.namespace, other.lease
                ),
                format!(
                    "Tenure waits until it has ended (scale it to 0); or leave its kinds to it: tenure install --controllers {}",
                    other.leave
                ),
            )),
            Err(why) => Some(report_warning(
                format!(
                    "whether {} runs in namespace {} is unknown",
                    other.controller, other.namespace
                ),
                why.clone(),
            )),
        })
        .collect();
    if findings.is_empty() {
        findings.push(report_good(
            "no controller of Flux or Capsule holds a Lease in flux-system or capsule-system",
        ));
    }
    findings
}

fn assess_installed(installed: &Result<Option<String>, String>) -> Vec<InstallationFinding> {
    match installed {
        Ok(None) => Vec::new(),
        Ok(Some(image)) => vec![report_warning(
            format!("Tenure is installed here, with the image {image}"),
            "tenure install changes this installation; repeat the flags that it was made with",
        )],
        Err(why) => vec![report_warning(
            format!("whether Tenure is installed in namespace {PLATFORM_NAMESPACE} is unknown"),
            why.clone(),
        )],
    }
}

fn assess_network(api_servers: &Result<Vec<(String, u16)>, String>) -> InstallationFinding {
    let servers = match api_servers {
        Ok(servers) if !servers.is_empty() => servers,
        Ok(_) => {
            return report_warning(
                "the cluster names no address of its API server",
                "if it listens on other ports than 443 and 6443: tenure install --api-server ADDRESS:PORT",
            );
        }
        Err(why) => {
            return report_warning(
                format!("the addresses of the API server are unknown ({why})"),
                "if it listens on other ports than 443 and 6443: tenure install --api-server ADDRESS:PORT",
            );
        }
    };
    let closed: Vec<String> = servers
        .iter()
        .filter(|(_, port)| !API_SERVER_PORTS.contains(port))
        .map(|(address, port)| match address.contains(':') {
            true => format!("[{address}]:{port}"),
            false => format!("{address}:{port}"),
        })
        .collect();
    match closed.as_slice() {
        [] => report_good("the NetworkPolicy of the controllers opens the ports of the API server"),
        closed => report_warning(
            format!(
                "the API server listens at {}, which the NetworkPolicy of the controllers doesn't open",
                closed.join(", ")
            ),
            format!(
                "tenure install --api-server {}, and the address of the Service kubernetes with its port",
                closed.join(" --api-server ")
            ),
        ),
    }
}

/// Checks whether an installation does not work.
#[must_use]
pub fn is_hopeless(findings: &[InstallationFinding]) -> bool {
    findings.iter().any(|finding| finding.gravity == Gravity::Bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(verb: &str, resource: &str) -> Right {
        Right {
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            namespace: String::new(),
        }
    }

    fn whole() -> Observation {
        let kinds = NEEDED.iter().chain(&[
            (ADMISSION, "validatingwebhookconfigurations"),
            (ADMISSION, "mutatingwebhookconfigurations"),
            (ADMISSION, "validatingadmissionpolicies"),
        ]);
        Observation {
            version: "v1.36.3".to_owned(),
            served: kinds
                .map(|(group, plural)| ((*group).to_owned(), "v1".to_owned(), (*plural).to_owned()))
                .collect(),
            rights: vec![(right("create", "namespaces"), Ok(true))],
            others: OTHERS.iter().map(|other| (*other, Ok(None))).collect(),
            api_servers: Ok(vec![("10.0.0.1".to_owned(), 6443)]),
            installed: Ok(None),
        }
    }

    /// Returns the findings that are not good.
    fn list_troubles(observed: &Observation) -> Vec<String> {
        let findings = list_findings(observed);
        let troubles = findings.iter().filter(|finding| finding.gravity != Gravity::Good);
        troubles.map(ToString::to_string).collect()
    }

    fn check(change: impl Fn(&mut Observation), gravity: Gravity, words: &str) {
        let mut observed = whole();
        change(&mut observed);
        let findings = list_findings(&observed);
        let found = findings
            .iter()
            .any(|finding| finding.gravity == gravity && finding.to_string().contains(words));
        assert!(found, "no {words:?} in {findings:#?}");
        assert_eq!(is_hopeless(&findings), gravity == Gravity::Bad, "{findings:#?}");
    }

    #[test]
    fn a_whole_cluster_has_no_troubles() {
        assert_eq!(list_troubles(&whole()), Vec::<String>::new());
        assert!(!is_hopeless(&list_findings(&whole())));
    }

    #[test]
    fn missing_prerequisite_is_named_with_remedy() {
        check(|all| all.version = "v1.27.9".to_owned(), Gravity::Bad, "too old");
        check(
            |all| all.version = "v2.0.0".to_owned(),
            Gravity::Bad,
            "no version of Kubernetes 1",
        );
        check(
            |all| all.version = "v1.29.1+k3s1".to_owned(),
            Gravity::Warning,
            "install works without both",
        );
        check(
            |all| all.version = "1.30.0".to_owned(),
            Gravity::Warning,
            "webhooks alone",
        );
        check(
            |all| all.served.retain(|(group, ..)| group != "apps"),
            Gravity::Bad,
            "deployments.apps",
        );
        check(
            |all| {
                all.served
                    .retain(|(_, _, plural)| plural != "validatingadmissionpolicies")
            },
            Gravity::Warning,
            "ValidatingAdmissionPolicies are not served",
        );
        check(
            |all| {
                all.served
                    .retain(|(_, _, plural)| plural != "mutatingwebhookconfigurations")
            },
            Gravity::Warning,
            "--without-admission",
        );
        check(
            |all| {
                all.rights = vec![
                    (right("create", "namespaces"), Ok(false)),
                    (right("patch", "namespaces"), Ok(false)),
                ]
            },
            Gravity::Bad,
            "you may not create, patch namespaces: an administrator",
        );
        check(
            |all| all.rights.push((right("escalate", "clusterroles"), Ok(false))),
            Gravity::Warning,
            "only roles whose rights you have",
        );
        check(
            |all| all.rights = vec![(right("create", "namespaces"), Err("no answer".to_owned()))],
            Gravity::Warning,
            "is unknown: no answer",
        );
        check(
            |all| all.others[2].1 = Ok(Some("kustomize-controller-1".to_owned())),
            Gravity::Warning,
            "--controllers '*,-kustomization",
        );
        check(
            |all| all.others[0].1 = Err("forbidden".to_owned()),
            Gravity::Warning,
            "unknown: forbidden",
        );
        check(
            |all| all.api_servers = Ok(vec![("fd00::1".to_owned(), 8443), ("10.0.0.2".to_owned(), 443)]),
            Gravity::Warning,
            "--api-server [fd00::1]:8443",
        );
        check(
            |all| all.api_servers = Err("forbidden".to_owned()),
            Gravity::Warning,
            "unknown (forbidden)",
        );
        check(
            |all| all.installed = Ok(Some("tenure:1".to_owned())),
            Gravity::Warning,
            "is installed here",
        );
    }

    #[test]
    fn a_cluster_has_what_its_version_can_have() {
        for (version, webhooks, policies) in [
            ("v1.29.9", false, false),
            ("v1.30.0", true, false),
            ("v1.31.0-rc.1", true, true),
            ("v1.36.3+tenure", true, true),
            ("v2.1", false, false),
            ("", false, false),
        ] {
            assert_eq!(
                (can_have_webhooks(version), can_have_policies(version, true)),
                (webhooks, policies),
                "{version}"
            );
            assert!(!can_have_policies(version, false), "{version}");
        }
    }
}
