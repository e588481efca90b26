//! The request that is made of an entry, once the host has said which number its path has.
//!
//! Owns what a request says, its hash, and its name: the same entry makes the same request, whoever looks and however often. Refuses an entry for which the
//! host knows nothing: a path that isn't there and one that may not be seen read alike.

use serde_json::Value;
use tenure_api::access::request::{AskedIn, RequestTarget};
use tenure_api::access::{FluxAccessRequestSpec, name_target};

use super::configuration::Entry;
use super::host::{Role, Scope, Target};
use crate::digest::digest_value;

/// How much of a hash stands in a name.
const SHORT: usize = 12;
/// What stands before a hash.
const ALGORITHM: &str = "sha256:";

/// Who asks, and for which cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// Name of the AccessProvider.
    pub provider: String,
    /// Where the entry stands.
    pub asked_in: AskedIn,
    /// The user who wrote it; none of an agent's configuration.
    pub author: Option<String>,
    /// Uid of this cluster's namespace `kube-system`.
    pub cluster_uid: String,
}

/// The spec of the request for an entry, its hash included.
#[must_use]
pub fn make_request(entry: &Entry, target: &Target, asking: &Asking) -> FluxAccessRequestSpec {
    let agent = || format!("agent:{}/{}", asking.provider, asking.asked_in.name);
    let mut namespaces: Vec<String> = entry.namespaces.iter().map(ToString::to_string).collect();
    let mut service_accounts = entry.service_accounts.clone();
    // Who writes the same in another order asks for the same.
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

/// The hash of a spec: of all that it says but for its hash, and for the path, which a project may change without becoming another one.
#[must_use]
pub fn hash_spec(spec: &FluxAccessRequestSpec) -> String {
    let mut counting = spec.clone();
    counting.spec_hash.clear();
    counting.target.path.clear();
    digest_value(&serde_json::to_value(&counting).unwrap_or(Value::Null))
}

/// The name of the request: of its target, and the beginning of its hash.
#[must_use]
pub fn name_request(spec: &FluxAccessRequestSpec) -> String {
    let hash = spec.spec_hash.strip_prefix(ALGORITHM).unwrap_or_default();
    let short: String = hash.chars().take(SHORT).collect();
    format!("{}-{short}", name_target(&spec.provider, spec.target.id))
}

/// A role, in the words of the seed.
#[must_use]
pub fn name_role(role: Role) -> &'static str {
    match role {
        Role::ReadRepository => "read_repository",
        Role::ReadRegistry => "read_registry",
    }
}

/// The project or group of a request.
#[must_use]
pub fn read_target(target: &RequestTarget) -> Target {
    let is_group = target.scope == name_scope(Scope::Group);
    Target {
        scope: if is_group { Scope::Group } else { Scope::Project },
        id: target.id,
        path: target.path.clone(),
    }
}

/// A scope, as a request has it.
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

    fn entry(said: &str) -> Entry {
        let text = format!(
            "flux_access: {{ projects: [{{ id: group-1/a, namespaces: [a, b], service_accounts: [x, y]{said} }}] }}"
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

    fn request(entry: &Entry, path: &str, author: Option<&str>) -> FluxAccessRequestSpec {
        let target = Target {
            scope: Scope::Project,
            id: 42,
            path: path.to_owned(),
        };
        let asking = Asking {
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
    fn a_request_is_another_one_when_it_asks_for_something_else() {
        let base = request(&entry(""), "group-1/a", None);
        assert_eq!(base.requested_by, "agent:work/prod");
        assert_eq!(base.spec_hash, hash_spec(&base));
        assert!(name_request(&base).starts_with("work-42-") && name_request(&base).len() == 8 + SHORT);
        // The order, and where the project has moved to, change nothing.
        let mut turned = entry("");
        turned.namespaces.reverse();
        turned.service_accounts.reverse();
        assert_eq!(request(&turned, "group-1/moved", None).spec_hash, base.spec_hash);
        for said in [
            ", role: read_repository",
            ", rotate: 1d",
            ", secret_name: x",
            ", strict: true",
            ", image_pull_secrets: true",
        ] {
            assert_ne!(
                request(&entry(said), "group-1/a", None).spec_hash,
                base.spec_hash,
                "{said}"
            );
        }
        assert_ne!(
            request(&entry(""), "group-1/a", Some("alice")).spec_hash,
            base.spec_hash
        );
        // It reads back as it was, so the hash can be computed from what is stored.
        let stored: FluxAccessRequestSpec = serde_json::from_value(serde_json::to_value(&base).unwrap()).unwrap();
        assert_eq!(hash_spec(&stored), base.spec_hash);
    }
}
