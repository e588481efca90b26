//! The request for an entry, after the host has returned the number of its path.
//!
//! This module builds the spec of a request, its hash, and its name. The same entry always makes the same request. An entry without a number gets no request: the
//! host's answer is the same for a missing and for an invisible path.

use serde_json::Value;
use tenure_api::access::request::{AskedIn, RequestTarget};
use tenure_api::access::{FluxAccessRequestSpec, name_target};

use super::configuration::Entry;
use tenure_api::digest::digest_value;
use tenure_remote_requests::git_host::{Role, Scope, Target};

/// The length of the part of a hash in a name.
const SHORT: usize = 12;
/// The prefix of a hash.
const ALGORITHM: &str = "sha256:";

/// The origin of a request: the entry's place and author, the AccessProvider and the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestOrigin {
    /// Name of the AccessProvider.
    pub provider: String,
    /// The place of the entry.
    pub asked_in: AskedIn,
    /// The user who wrote the entry. Unset for an agent's configuration.
    pub author: Option<String>,
    /// Uid of this cluster's namespace `kube-system`.
    pub cluster_uid: String,
}

/// Returns the spec of the request for an entry, with its hash.
#[must_use]
pub fn make_request(entry: &Entry, target: &Target, asking: &RequestOrigin) -> FluxAccessRequestSpec {
    let agent = || format!("agent:{}/{}", asking.provider, asking.asked_in.name);
    let mut namespaces: Vec<String> = entry.namespaces.iter().map(ToString::to_string).collect();
    let mut service_accounts = entry.service_accounts.clone();
    // A different order of the same names is the same request.
    namespaces.sort_unstable();
    service_accounts.sort_unstable();
    let mut spec = FluxAccessRequestSpec {
        provider: asking.provider.clone(),
        target: RequestTarget {
            scope: name_scope(target.scope).to_owned(),
            id: target.id,
            path: target.path.clone(),
        },
        role: name_role(entry.role).to_owned(),
        rotate: entry.rotate.to_string(),
        secret_name: entry.secret_name.clone(),
        namespaces,
        service_accounts,
        strict: entry.is_strict,
        image_pull_secrets: entry.is_for_images,
        asked_in: asking.asked_in.clone(),
        requested_by: asking.author.clone().unwrap_or_else(agent),
        cluster_uid: asking.cluster_uid.clone(),
        spec_hash: String::new(),
    };
    spec.spec_hash = hash_spec(&spec);
    spec
}

/// Returns the hash of a spec. It covers all fields except the hash itself and the path, because a project can change its path.
#[must_use]
pub fn hash_spec(spec: &FluxAccessRequestSpec) -> String {
    let mut counting = spec.clone();
    counting.spec_hash.clear();
    counting.target.path.clear();
    digest_value(&serde_json::to_value(&counting).unwrap_or(Value::Null))
}

/// Returns the name of the request: its target, and the beginning of its hash.
#[must_use]
pub fn name_request(spec: &FluxAccessRequestSpec) -> String {
    let hash = spec.spec_hash.strip_prefix(ALGORITHM).unwrap_or_default();
    let short: String = hash.chars().take(SHORT).collect();
    format!("{}-{short}", name_target(&spec.provider, spec.target.id))
}

/// Returns a role in the words of the configuration.
#[must_use]
pub fn name_role(role: Role) -> &'static str {
    match role {
        Role::ReadRepository => "read_repository",
        Role::ReadRegistry => "read_registry",
    }
}

/// Reads the project or group of a request.
#[must_use]
pub fn read_target(target: &RequestTarget) -> Target {
    let is_group = target.scope == name_scope(Scope::Group);
    Target {
        scope: if is_group { Scope::Group } else { Scope::Project },
        id: target.id,
        path: target.path.clone(),
    }
}

/// Returns a scope in the form of a request.
#[must_use]
pub fn name_scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Project => "project",
        Scope::Group => "group",
    }
}

#[cfg(test)]
mod tests {
    use super::super::configuration::{File, Reading, read_file};
    use super::*;

    fn parse_entry(text: &str) -> Entry {
        let text = format!(
            "flux_access: {{ projects: [{{ id: group-1/a, namespaces: [a, b], service_accounts: [x, y]{text} }}] }}"
        );
        let file = File {
            path: "config.yaml",
            is_own: false,
        };
        match read_file(file, text.as_bytes(), "group-1") {
            Reading::Read(mut configuration) => configuration.entries.remove(0),
            Reading::Unreadable(problem) => panic!("{problem}"),
        }
    }

    fn make_spec(entry: &Entry, path: &str, author: Option<&str>) -> FluxAccessRequestSpec {
        let target = Target {
            scope: Scope::Project,
            id: 42,
            path: path.to_owned(),
        };
        let asking = RequestOrigin {
            provider: "work".to_owned(),
            asked_in: AskedIn {
                kind: "Agent".to_owned(),
                name: "prod".to_owned(),
                ..AskedIn::default()
            },
            author: author.map(str::to_owned),
            cluster_uid: "c0ffee00-0000".to_owned(),
        };
        make_request(entry, &target, &asking)
    }

    #[test]
    fn request_hash_changes_only_with_requested_access() {
        let base = make_spec(&parse_entry(""), "group-1/a", None);
        assert_eq!(base.requested_by, "agent:work/prod");
        assert_eq!(base.spec_hash, hash_spec(&base));
        assert!(name_request(&base).starts_with("work-42-") && name_request(&base).len() == 8 + SHORT);
        // The order, and a new path of the project, change nothing.
        let mut turned = parse_entry("");
        turned.namespaces.reverse();
        turned.service_accounts.reverse();
        assert_eq!(make_spec(&turned, "group-1/moved", None).spec_hash, base.spec_hash);
        for text in [
            ", role: read_repository",
            ", rotate: 1d",
            ", secret_name: x",
            ", strict: true",
            ", image_pull_secrets: true",
        ] {
            assert_ne!(
                make_spec(&parse_entry(text), "group-1/a", None).spec_hash,
                base.spec_hash,
                "{text}"
            );
        }
        assert_ne!(
            make_spec(&parse_entry(""), "group-1/a", Some("alice")).spec_hash,
            base.spec_hash
        );
        // The stored spec is equal to the original after a read, so its hash can be computed from storage.
        let stored: FluxAccessRequestSpec = serde_json::from_value(serde_json::to_value(&base).unwrap()).unwrap();
        assert_eq!(hash_spec(&stored), base.spec_hash);
    }
}
