//! The kind of a request's credentials, and the repositories that they open.
//!
//! This module knows which kind each host makes for each role. An existing credential is ended as its own kind, because tokens and keys have separate numbers.
//! Deploy keys need the host's keys, so a provider without host keys gets none.

use tenure_api::access::request::CredentialLedger;
use tenure_api::access::{FluxAccessRequest, FluxAccessTargetStatus};

use super::delivery::{is_same_repository, read_role};
use tenure_remote_requests::git_host::{CredentialKind, HostKind, Role, Scope};

/// The facts by which the kind of a request's credentials is chosen.
#[derive(Clone, Copy, Debug)]
pub struct CredentialKindInputs<'a> {
    /// The host's API.
    pub host: HostKind,
    /// True if the authoriser is a GitHub App.
    pub is_app: bool,
    /// The role of the credential.
    pub role: Role,
    /// The scope: project or group.
    pub scope: Scope,
    /// The kind that the AccessProvider sets for repositories.
    pub asked: Option<&'a str>,
    /// The kind of the credentials that the request already has.
    pub made: Option<CredentialKind>,
    /// True if the AccessProvider has host keys.
    pub has_known_hosts: bool,
}

/// Chooses the kind of credentials for a request: the existing kind, the kind that the AccessProvider sets, or the host's usual one.
///
/// # Errors
/// The reason why the host makes no credentials for the request, with advice.
pub fn choose_kind(choice: CredentialKindInputs<'_>) -> Result<CredentialKind, String> {
    let kind = match choice.made {
        // Existing credentials are of this kind, and their numbers are meaningless for another kind.
        Some(made) => made,
        None => choose_new(choice)?,
    };
    if choice.scope == Scope::Group && kind != CredentialKind::DeployToken {
        return Err(format!(
            "a {} opens single projects alone: ask for projects instead of the group",
            kind.name()
        ));
    }
    if kind == CredentialKind::DeployKey && !choice.has_known_hosts {
        let why = "spec.knownHosts of the AccessProvider is empty: without host keys the server's identity can't be checked; write the output of ssh-keyscan there, after a comparison";
        return Err(why.to_owned());
    }
    Ok(kind)
}

/// Chooses the kind for a request without credentials: the AccessProvider's, or else the first that the host and the authoriser can make.
fn choose_new(choice: CredentialKindInputs<'_>) -> Result<CredentialKind, String> {
    let known: &[CredentialKind] = match (choice.host, choice.role) {
        (HostKind::Gitlab, Role::ReadRegistry) => return Ok(CredentialKind::DeployToken),
        (HostKind::Github | HostKind::Gitea, Role::ReadRegistry) => {
            return Err("this host makes no credentials for its registry: ask for read_repository, and write the Secret for the registry by hand".to_owned());
        }
        (HostKind::Static, _) => {
            return Err("no authoriser makes credentials at this host: write the Secret by hand".to_owned());
        }
        (HostKind::Gitlab, Role::ReadRepository) => &[CredentialKind::DeployToken, CredentialKind::DeployKey],
        (HostKind::Github, Role::ReadRepository) if choice.is_app => {
            &[CredentialKind::InstallationToken, CredentialKind::DeployKey]
        }
        (HostKind::Github | HostKind::Gitea, Role::ReadRepository) => &[CredentialKind::DeployKey],
    };
    let asked = choice.asked.map(CredentialKind::read);
    let chosen = match asked {
        None => known.first().copied(),
        Some(asked) => asked.filter(|asked| known.contains(asked)),
    };
    chosen.ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|kind| kind.name()).collect();
        format!(
            "spec.repositoryCredential of the AccessProvider is not a kind of credential that its authoriser makes there: {}",
            known.join(" or ")
        )
    })
}

/// Returns the kind of a request's existing credentials at its host, if any.
#[must_use]
pub fn find_made(request: &FluxAccessRequest) -> Option<CredentialKind> {
    let status = request.status.as_ref()?;
    let has_some =
        |ledger: &CredentialLedger| ledger.next.is_some() || ledger.current.is_some() || !ledger.retiring.is_empty();
    let mut ledgers = status.credentials.iter();
    let kind = CredentialKind::read(status.credential.as_deref()?);
    kind.filter(|_| ledgers.any(has_some))
}

/// Checks whether a source with this URL can fetch with a request's credential: the URL leads to the target's repository, by the credential's protocol.
#[must_use]
pub fn can_open(request: &FluxAccessRequest, target: &FluxAccessTargetStatus, url: &str) -> bool {
    let is_key = find_made(request) == Some(CredentialKind::DeployKey);
    let address = if is_key { &target.ssh_url } else { &target.http_url };
    let address = address
        .as_deref()
        .filter(|_| read_role(&request.spec) == Some(Role::ReadRepository));
    address.is_some_and(|address| is_same_repository(address, url))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_api::access::FluxAccessRequestSpec;

    use super::*;

    /// A request chooses among the kinds that its host makes. A live credential keeps its kind.
    #[test]
    fn request_decides_kind_and_live_credential_keeps_it() {
        use CredentialKind::{DeployKey, DeployToken, InstallationToken};
        let base = CredentialKindInputs {
            host: HostKind::Gitlab,
            is_app: false,
            role: Role::ReadRepository,
            scope: Scope::Project,
            asked: None,
            made: None,
            has_known_hosts: true,
        };
        let github = CredentialKindInputs {
            host: HostKind::Github,
            ..base
        };
        let app = CredentialKindInputs { is_app: true, ..github };
        for (choice, expected) in [
            (base, Ok(DeployToken)),
            (
                CredentialKindInputs {
                    asked: Some("deploy-key"),
                    ..base
                },
                Ok(DeployKey),
            ),
            (
                CredentialKindInputs {
                    asked: Some("installation-token"),
                    ..base
                },
                Err("deploy-token or deploy-key"),
            ),
            (
                CredentialKindInputs {
                    asked: Some("x"),
                    ..base
                },
                Err("deploy-token or deploy-key"),
            ),
            // Only tokens open a registry.
            (
                CredentialKindInputs {
                    asked: Some("deploy-key"),
                    role: Role::ReadRegistry,
                    ..base
                },
                Ok(DeployToken),
            ),
            (
                CredentialKindInputs {
                    asked: Some("deploy-key"),
                    has_known_hosts: false,
                    ..base
                },
                Err("spec.knownHosts"),
            ),
            (
                CredentialKindInputs {
                    asked: Some("deploy-key"),
                    scope: Scope::Group,
                    ..base
                },
                Err("single projects alone"),
            ),
            (
                CredentialKindInputs {
                    scope: Scope::Group,
                    ..base
                },
                Ok(DeployToken),
            ),
            (
                CredentialKindInputs {
                    asked: Some("deploy-key"),
                    made: Some(DeployToken),
                    ..base
                },
                Ok(DeployToken),
            ),
            (
                CredentialKindInputs {
                    made: Some(DeployKey),
                    ..base
                },
                Ok(DeployKey),
            ),
            (github, Ok(DeployKey)),
            (
                CredentialKindInputs {
                    asked: Some("installation-token"),
                    ..github
                },
                Err("deploy-key"),
            ),
            (app, Ok(InstallationToken)),
            (
                CredentialKindInputs {
                    asked: Some("deploy-key"),
                    ..app
                },
                Ok(DeployKey),
            ),
            (
                CredentialKindInputs {
                    scope: Scope::Group,
                    ..app
                },
                Err("single projects alone"),
            ),
            (
                CredentialKindInputs {
                    host: HostKind::Gitea,
                    role: Role::ReadRegistry,
                    ..base
                },
                Err("by hand"),
            ),
            (
                CredentialKindInputs {
                    host: HostKind::Static,
                    ..base
                },
                Err("by hand"),
            ),
        ] {
            match (choose_kind(choice), expected) {
                (Ok(kind), Ok(expected)) => assert_eq!(kind, expected, "{choice:?}"),
                (Err(why), Err(words)) => assert!(why.contains(words), "{choice:?}: {why}"),
                (other, _) => panic!("{choice:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn deploy_key_opens_ssh_and_token_opens_https() {
        let target = FluxAccessTargetStatus {
            path: None,
            http_url: Some("https://gitlab.example.org/group-1/app.git".to_owned()),
            ssh_url: Some("ssh://git@gitlab.example.org/group-1/app.git".to_owned()),
        };
        let mut request = FluxAccessRequest::new("work-42-a", FluxAccessRequestSpec::default());
        request.spec.role = "read_repository".to_owned();
        let credentials = json!([{ "namespace": "team-a", "next": { "phase": "Distributed", "generation": 1, "nonce": "n", "name": "fa/1",
            "cause": "First", "begunAt": "2026-06-01T11:59:00Z" } }]);
        let mut opened = |credential: &str| {
            request.status =
                serde_json::from_value(json!({ "credential": credential, "credentials": credentials })).unwrap();
            let urls = [
                "https://gitlab.example.org/group-1/app",
                "ssh://git@gitlab.example.org/group-1/app",
            ];
            urls.map(|url| can_open(&request, &target, url))
        };
        assert_eq!(opened("deploy-key"), [false, true]);
        assert_eq!(opened("deploy-token"), [true, false]);
        assert_eq!(opened("installation-token"), [true, false]);
        assert_eq!(find_made(&request), Some(CredentialKind::InstallationToken));
        request.spec.role = "read_registry".to_owned();
        assert!(!can_open(&request, &target, "https://gitlab.example.org/group-1/app"));
    }
}
