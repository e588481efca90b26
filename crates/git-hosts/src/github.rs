//! GitHub: tokens of an App's installation for single repositories, and deploy keys.
//!
//! The sources are the documents of GitHub's REST API (repositories, deploy keys, Apps, installations). Requests about deploy keys use the path, after a check that the
//! path still has the number. The token of an installation lives for an hour, is in no list, and ends by itself. A key ends with the account that made it, so an App
//! should make it, and not a person.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_remote_requests::git_host::{
    Capabilities, CredentialKind, HostError, HostKind, HostQuery, HostReply, ListedCredential, Role, Scope, Target,
    TargetDescription,
};
use tenure_sources::SecretBytes;

use crate::answer::Outcome;
use crate::api::{
    Api, ApiStep, PAGE, Progress, add_page, check_found, check_path, read, read_minted_key, read_minted_token,
    read_optional_time, read_public_key, refuse_missing, refuse_unsupported,
};
use crate::call::{Call, Reply};

/// The user name that git sends with the token of an installation.
const USERNAME: &str = "x-access-token";

/// The API of GitHub or GitHub Enterprise.
pub(crate) struct Github {
    /// The installation to which tokens belong, if an App sends the requests and the number is known.
    pub(crate) installation: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct Repository {
    #[serde(deserialize_with = "crate::api::read_number")]
    pub(crate) id: u64,
    pub(crate) full_name: String,
    clone_url: Option<String>,
    ssh_url: Option<String>,
}

#[derive(Deserialize)]
struct Organization {
    #[serde(deserialize_with = "crate::api::read_number")]
    id: u64,
    login: String,
}

#[derive(Deserialize)]
struct Key {
    #[serde(deserialize_with = "crate::api::read_number")]
    id: u64,
    title: String,
    key: String,
    read_only: bool,
    last_used: Option<String>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: String,
    expires_at: String,
}

impl Api for Github {
    fn kind(&self) -> HostKind {
        HostKind::Github
    }

    fn prefix(&self) -> &'static str {
        ""
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("accept", "application/vnd.github+json"),
            ("x-github-api-version", "2022-11-28"),
        ]
    }

    fn capabilities(&self, kind: CredentialKind) -> Option<Capabilities> {
        match kind {
            CredentialKind::InstallationToken => Some(Capabilities {
                overlap: true,
                expiry: false,
                last_used: false,
                idempotent_create: false,
                group_scope: false,
                listed: false,
            }),
            CredentialKind::DeployKey => Some(key_capabilities(true)),
            CredentialKind::DeployToken => None,
        }
    }

    fn first_call(&self, query: &HostQuery) -> Result<Call, HostError> {
        Ok(match query {
            HostQuery::FindByPath { scope, path } => find_by_path(*scope, path)?,
            // The redirects of GitHub's documents lead to these addresses. The documents show an address by number nowhere else.
            HostQuery::FindById { scope, id } => match scope {
                Scope::Project => Call::get(format!("/repositories/{id}")),
                Scope::Group => Call::get(format!("/organizations/{id}")),
            },
            HostQuery::Mint(request) if request.kind == CredentialKind::InstallationToken => {
                let Some(installation) = self.installation else {
                    return Err(refuse_unsupported("only an App issues tokens of its installation"));
                };
                if request.target.scope == Scope::Group || request.role != Role::ReadRepository {
                    return Err(refuse_unsupported(
                        "an installation's token is for reading single repositories",
                    ));
                }
                let repositories = [request.target.id];
                give_token(installation, Some(&repositories), &json!({ "contents": "read" }))
            }
            HostQuery::List { target, kind } | HostQuery::Revoke { target, kind, .. } => find_first(target, *kind)?,
            HostQuery::Mint(request) => {
                read_public_key(request)?;
                if request.role != Role::ReadRepository {
                    return Err(refuse_unsupported("a deploy key opens no container registry"));
                }
                find_first(&request.target, request.kind)?
            }
            HostQuery::ReadOwnCredential if self.installation.is_some() => Call::get("/app").by_app(),
            HostQuery::ReadOwnCredential => Call::get("/user"),
            HostQuery::FindMember { .. } => {
                return Err(refuse_unsupported("GitHub has no credentials of a group"));
            }
            HostQuery::FindIssue { .. } | HostQuery::OpenIssue { .. } | HostQuery::CloseIssue { .. } => {
                return Err(refuse_unsupported("GitHub has no confidential issues"));
            }
        })
    }

    fn read(
        &self,
        query: &HostQuery,
        progress: &mut Progress,
        outcome: &Outcome,
        reply: &Reply,
    ) -> Result<ApiStep, HostError> {
        if let HostQuery::Mint(request) = query
            && request.kind == CredentialKind::InstallationToken
        {
            refuse_missing(outcome)?;
            let (token, end) = read_token(progress, reply)?;
            return read_minted_token(None, Some(USERNAME.to_owned()), Some(end), token.reveal().to_owned());
        }
        match query {
            HostQuery::ReadOwnCredential => {
                refuse_missing(outcome)?;
                let _: serde_json::Map<String, Value> = read(progress, reply)?;
                let end = reply.header("github-authentication-token-expiration");
                let end = end.and_then(|text| text.strip_suffix(" UTC").map(|text| text.replace(' ', "T") + "Z"));
                Ok(ApiStep::Done(
                    HostReply::OwnCredential(end.and_then(|end| end.parse().ok())),
                    None,
                ))
            }
            HostQuery::FindByPath { scope, .. } | HostQuery::FindById { scope, .. } => {
                if let Outcome::Missing(_) = outcome {
                    return Ok(ApiStep::Done(HostReply::Found(None), None));
                }
                let found = match scope {
                    Scope::Project => found_repository(read(progress, reply)?),
                    Scope::Group => {
                        let Organization { id, login } = read(progress, reply)?;
                        found_group(id, login)
                    }
                };
                check_asked(query, found)
            }
            _ => read_keys(query, progress, outcome, reply, "per_page"),
        }
    }
}

/// Returns the capabilities of deploy keys, on GitHub and on Gitea. `last_used`: the host reports the last use.
pub(crate) fn key_capabilities(last_used: bool) -> Capabilities {
    Capabilities {
        overlap: true,
        expiry: false,
        last_used,
        idempotent_create: false,
        group_scope: false,
        listed: true,
    }
}

/// Returns the request for a project or group by path, on GitHub and on Gitea.
pub(crate) fn find_by_path(scope: Scope, path: &str) -> Result<Call, HostError> {
    Ok(match scope {
        Scope::Project => {
            check_path(path, 2..=2)?;
            Call::get(format!("/repos/{path}"))
        }
        Scope::Group => {
            check_path(path, 1..=1)?;
            Call::get(format!("/orgs/{path}"))
        }
    })
}

/// Returns the first request of an order or list about deploy keys. Its answer shows whether the repository at the path still has the target's number.
pub(crate) fn find_first(target: &Target, kind: CredentialKind) -> Result<Call, HostError> {
    match (kind, target.scope) {
        (CredentialKind::DeployKey, Scope::Project) => find_by_path(Scope::Project, &target.path),
        (CredentialKind::DeployKey, Scope::Group) => Err(refuse_unsupported("only repositories have deploy keys here")),
        (CredentialKind::DeployToken, _) => Err(refuse_unsupported("this host has no deploy tokens")),
        (CredentialKind::InstallationToken, _) => Err(refuse_unsupported(
            "tokens of installations are in no list, and end by themselves within an hour",
        )),
    }
}

pub(crate) fn found_repository(repository: Repository) -> TargetDescription {
    TargetDescription {
        target: Target {
            scope: Scope::Project,
            id: repository.id,
            path: repository.full_name,
        },
        http_url: repository.clone_url,
        ssh_url: repository.ssh_url,
        registry_prefix: None,
    }
}

pub(crate) fn found_group(id: u64, path: String) -> TargetDescription {
    TargetDescription {
        target: Target {
            scope: Scope::Group,
            id,
            path,
        },
        http_url: None,
        ssh_url: None,
        registry_prefix: None,
    }
}

/// Checks that the found object is the requested one, because a host may follow a move by itself.
pub(crate) fn check_asked(query: &HostQuery, found: TargetDescription) -> Result<ApiStep, HostError> {
    match query {
        HostQuery::FindByPath { path, .. } if !found.target.path.eq_ignore_ascii_case(path) => Err(HostError::Moved),
        HostQuery::FindById { id, .. } if found.target.id != *id => {
            Err(HostError::NotUnderstood("it is about another number".to_owned()))
        }
        _ => Ok(ApiStep::Done(HostReply::Found(Some(check_found(found)?)), None)),
    }
}

/// Reads answers about deploy keys, on GitHub and on Gitea: first the repository, then the result.
pub(crate) fn read_keys(
    query: &HostQuery,
    progress: &mut Progress,
    outcome: &Outcome,
    reply: &Reply,
    page_name: &str,
) -> Result<ApiStep, HostError> {
    let (HostQuery::List { target, .. }
    | HostQuery::Revoke { target, .. }
    | HostQuery::Mint(tenure_remote_requests::git_host::MintRequest { target, .. })) = query
    else {
        return Err(refuse_unsupported("that is not about deploy keys"));
    };
    let keys = format!("/repos/{}/keys", target.path);
    if progress.calls == 1 {
        refuse_missing(outcome)?;
        let repository: Repository = read(progress, reply)?;
        // Another repository has the path now, or the path is spelled differently.
        if repository.id != target.id || !repository.full_name.eq_ignore_ascii_case(&target.path) {
            return Err(HostError::Moved);
        }
        return Ok(ApiStep::Next(match query {
            HostQuery::Mint(request) => Call::post(
                keys,
                json!({ "title": request.name, "key": request.public_key, "read_only": true }),
            ),
            HostQuery::Revoke { id, .. } => Call::delete(format!("{keys}/{id}")),
            _ => Call::get(format!("{keys}?{page_name}={PAGE}")),
        }));
    }
    if let (HostQuery::Revoke { .. }, Outcome::Missing(_)) = (query, outcome) {
        return Ok(ApiStep::Done(HostReply::Revoked, None));
    }
    refuse_missing(outcome)?;
    match query {
        HostQuery::Mint(request) => {
            let key: Key = read(progress, reply)?;
            read_minted_key(request, (key.id, &key.key, !key.read_only), None)
        }
        HostQuery::Revoke { .. } => Ok(ApiStep::Done(HostReply::Revoked, None)),
        _ => {
            let page: Vec<Key> = read(progress, reply)?;
            let mut listed = Vec::new();
            for key in page {
                listed.push(ListedCredential {
                    id: key.id,
                    name: key.title,
                    expires_at: None,
                    is_revoked: false,
                    is_expired: false,
                    may_write: !key.read_only,
                    last_used_at: read_optional_time(key.last_used.as_deref(), false)?,
                });
            }
            Ok(add_page(progress, listed))
        }
    }
}

/// Returns the order for a token of an installation: for these repositories or for all, with these permissions only.
pub(crate) fn give_token(installation: u64, repositories: Option<&[u64]>, permissions: &Value) -> Call {
    let mut body = json!({ "permissions": permissions });
    if let (Some(repositories), Some(fields)) = (repositories, body.as_object_mut()) {
        fields.insert("repository_ids".to_owned(), json!(repositories));
    }
    Call::post(format!("/app/installations/{installation}/access_tokens"), body).by_app()
}

/// Reads the token from the answer to such an order, with its end.
pub(crate) fn read_token(progress: &Progress, reply: &Reply) -> Result<(SecretBytes, Timestamp), HostError> {
    let TokenAnswer { token, expires_at } = read(progress, reply)?;
    let token = SecretBytes::new(token);
    match read_optional_time(Some(&expires_at), true)? {
        Some(end) => Ok((token, end)),
        None => Err(crate::answer::not_understood(true, "it holds a token without an end")),
    }
}
