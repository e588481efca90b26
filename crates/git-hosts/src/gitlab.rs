//! GitLab: deploy tokens of projects and groups, deploy keys of projects, confidential issues.
//!
//! The sources are `doc/api/{projects,groups,deploy_tokens,deploy_keys,issues,personal_access_tokens}.md`. Requests use the number of a project or group if the number
//! is known, since another project can get the path later. The module never uses `rotate` of access tokens, because `rotate` ends the old token at once. Deploy tokens
//! have no time of last use, and their names are not unique, so a credential needs a distinctive name to be found later.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tenure_remote_requests::git_host::{
    Capabilities, CredentialKind, HostError, HostKind, HostQuery, HostReply, Issue, ListedCredential, MintRequest,
    Role, Scope, Target, TargetDescription,
};

use crate::answer::Outcome;
use crate::api::{
    Api, ApiStep, PAGE, Progress, add_page, check_found, check_path, read, read_minted_key, read_minted_token,
    read_optional_time, read_public_key, refuse_missing, refuse_unsupported,
};
use crate::call::{Call, Reply, encode};

/// The API of GitLab, version 4.
pub(crate) struct Gitlab;

#[derive(Deserialize)]
struct Project {
    #[serde(deserialize_with = "crate::api::read_number")]
    id: u64,
    path_with_namespace: String,
    http_url_to_repo: Option<String>,
    ssh_url_to_repo: Option<String>,
    container_registry_image_prefix: Option<String>,
    repository_access_level: Option<String>,
    container_registry_access_level: Option<String>,
}

/// The number of a group's projects that are searched for one to test a credential.
const MEMBERS: usize = 20;

#[derive(Deserialize)]
struct Group {
    #[serde(deserialize_with = "crate::api::read_number")]
    id: u64,
    full_path: String,
}

#[derive(Deserialize)]
struct DeployToken {
    #[serde(deserialize_with = "crate::api::read_number")]
    id: u64,
    name: String,
    username: String,
    expires_at: Option<String>,
    #[serde(default)]
    revoked: bool,
    #[serde(default)]
    expired: bool,
    scopes: Vec<String>,
    /// Only the answer to the order for the token has this field.
    token: Option<String>,
}

#[derive(Deserialize)]
struct DeployKey {
    #[serde(deserialize_with = "crate::api::read_number")]
    id: u64,
    title: String,
    key: String,
    expires_at: Option<String>,
    last_used_at: Option<String>,
    can_push: bool,
}

#[derive(Deserialize)]
struct OwnToken {
    #[serde(default)]
    revoked: bool,
    active: Option<bool>,
    expires_at: Option<String>,
}

#[derive(Deserialize)]
struct IssueAnswer {
    #[serde(deserialize_with = "crate::api::read_number")]
    iid: u64,
    title: String,
    description: Option<String>,
    web_url: String,
    #[serde(default)]
    confidential: bool,
}

impl Api for Gitlab {
    fn kind(&self) -> HostKind {
        HostKind::Gitlab
    }

    fn prefix(&self) -> &'static str {
        "/api/v4"
    }

    fn capabilities(&self, kind: CredentialKind) -> Option<Capabilities> {
        match kind {
            CredentialKind::DeployToken => Some(Capabilities {
                overlap: true,
                expiry: true,
                last_used: false,
                idempotent_create: false,
                group_scope: true,
                listed: true,
            }),
            CredentialKind::DeployKey => Some(Capabilities {
                overlap: true,
                expiry: true,
                last_used: true,
                idempotent_create: true,
                group_scope: false,
                listed: true,
            }),
            CredentialKind::InstallationToken => None,
        }
    }

    fn first_call(&self, query: &HostQuery) -> Result<Call, HostError> {
        Ok(match query {
            HostQuery::FindByPath { scope, path } => {
                // GitLab reads a name of digits alone as a number.
                let least = if *scope == Scope::Project { 2 } else { 1 };
                check_path(path, least..=21)?;
                if path.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(refuse_unsupported("a path of digits alone would be taken for a number"));
                }
                find(*scope, &encode(path))
            }
            HostQuery::FindById { scope, id } => find(*scope, &id.to_string()),
            HostQuery::FindMember { group, .. } => Call::get(format!(
                "/groups/{}/projects?per_page={MEMBERS}&include_subgroups=true&with_shared=false&archived=false&order_by=id&sort=asc",
                group.id
            )),
            HostQuery::List { target, kind } => {
                Call::get(format!("{}?per_page={PAGE}", credentials_path(target, *kind)?))
            }
            HostQuery::Mint(request) => mint_call(request)?,
            HostQuery::Revoke { target, kind, id } => {
                Call::delete(format!("{}/{id}", credentials_path(target, *kind)?))
            }
            HostQuery::ReadOwnCredential => Call::get("/personal_access_tokens/self"),
            HostQuery::FindIssue { target, title, .. } => Call::get(format!(
                "{}?state=opened&in=title&per_page={PAGE}&search={}",
                issues_path(target)?,
                encode(title)
            )),
            HostQuery::OpenIssue { target, title, body } => Call::post(
                issues_path(target)?,
                json!({ "title": title, "description": body, "confidential": true }),
            ),
            HostQuery::CloseIssue { target, number } => Call::put(
                format!("{}/{number}", issues_path(target)?),
                json!({ "state_event": "close" }),
            ),
        })
    }

    fn read(
        &self,
        query: &HostQuery,
        progress: &mut Progress,
        outcome: &Outcome,
        reply: &Reply,
    ) -> Result<ApiStep, HostError> {
        match (query, outcome) {
            (HostQuery::FindByPath { .. } | HostQuery::FindById { .. }, Outcome::Missing(_)) => {
                return Ok(ApiStep::Done(HostReply::Found(None), None));
            }
            // For a missing credential, GitLab's message names the credential. A missing project can mean that the authoriser may not see the project any more.
            (HostQuery::Revoke { .. }, Outcome::Missing(message)) if !is_about_owner(message) => {
                return Ok(ApiStep::Done(HostReply::Revoked, None));
            }
            (HostQuery::CloseIssue { .. }, Outcome::Missing(message)) if !is_about_owner(message) => {
                return Ok(ApiStep::Done(HostReply::IssueClosed, None));
            }
            _ => refuse_missing(outcome)?,
        }
        Ok(match query {
            HostQuery::FindByPath { scope, path } => {
                let found = read_found(*scope, progress, reply)?;
                if !found.target.path.eq_ignore_ascii_case(path) {
                    return Err(HostError::Moved);
                }
                ApiStep::Done(HostReply::Found(Some(found)), None)
            }
            HostQuery::FindById { scope, id } => {
                let found = read_found(*scope, progress, reply)?;
                if found.target.id != *id {
                    return Err(HostError::NotUnderstood("it is about another number".to_owned()));
                }
                ApiStep::Done(HostReply::Found(Some(found)), None)
            }
            HostQuery::FindMember { group, role } => {
                let page: Vec<Project> = read(progress, reply)?;
                let mut fitting = page.into_iter().filter(|project| is_member(project, group, *role));
                let found = fitting
                    .next()
                    .map(|project| check_found(describe_project(project)))
                    .transpose()?;
                ApiStep::Done(HostReply::Found(found), None)
            }
            HostQuery::List { kind, .. } => {
                let page = read_page(*kind, progress, reply)?;
                add_page(progress, page)
            }
            HostQuery::Mint(request) => read_minted(request, progress, reply)?,
            HostQuery::Revoke { .. } => ApiStep::Done(HostReply::Revoked, None),
            HostQuery::ReadOwnCredential => {
                let own: OwnToken = read(progress, reply)?;
                if own.revoked || own.active == Some(false) {
                    return Err(HostError::Unauthenticated);
                }
                let end = read_optional_time(own.expires_at.as_deref(), false)?;
                ApiStep::Done(HostReply::OwnCredential(end), None)
            }
            HostQuery::FindIssue { title, body, .. } => {
                let page: Vec<IssueAnswer> = read(progress, reply)?;
                let says = |issue: &IssueAnswer| issue.description.as_deref().unwrap_or_default().trim() == body.trim();
                let mut same = page
                    .into_iter()
                    .filter(|issue| issue.title == *title && issue.confidential && says(issue));
                let issue = same.next().map(read_issue).transpose()?;
                ApiStep::Done(HostReply::Issue(issue), None)
            }
            HostQuery::OpenIssue { .. } => {
                let issue: IssueAnswer = read(progress, reply)?;
                ApiStep::Done(HostReply::Issue(Some(read_issue(issue)?)), None)
            }
            HostQuery::CloseIssue { .. } => ApiStep::Done(HostReply::IssueClosed, None),
        })
    }
}

/// Requests a project or group by its number or path. A group comes without its projects, since a group can have many.
fn find(scope: Scope, name: &str) -> Call {
    let query = match scope {
        Scope::Project => "",
        Scope::Group => "?with_projects=false",
    };
    Call::get(format!("{}/{name}{query}", collection_path(scope)))
}

fn collection_path(scope: Scope) -> &'static str {
    match scope {
        Scope::Project => "/projects",
        Scope::Group => "/groups",
    }
}

/// Returns the path of the credentials of a kind.
fn credentials_path(target: &Target, kind: CredentialKind) -> Result<String, HostError> {
    let name = match (kind, target.scope) {
        (CredentialKind::DeployToken, _) => "deploy_tokens",
        (CredentialKind::DeployKey, Scope::Project) => "deploy_keys",
        (CredentialKind::DeployKey, Scope::Group) => {
            return Err(refuse_unsupported("GitLab's groups have no deploy keys"));
        }
        (CredentialKind::InstallationToken, _) => {
            return Err(refuse_unsupported("GitLab has no tokens of installations"));
        }
    };
    Ok(format!("{}/{}/{name}", collection_path(target.scope), target.id))
}

fn issues_path(target: &Target) -> Result<String, HostError> {
    match target.scope {
        Scope::Project => Ok(format!("/projects/{}/issues", target.id)),
        Scope::Group => Err(refuse_unsupported("GitLab's groups have no issues of their own")),
    }
}

/// Returns the request that makes a deploy token or a deploy key.
fn mint_call(request: &MintRequest) -> Result<Call, HostError> {
    let place = credentials_path(&request.target, request.kind)?;
    let expires_at = request.expires_at.map(|end| end.to_string());
    if request.kind == CredentialKind::DeployKey {
        if request.role != Role::ReadRepository {
            return Err(refuse_unsupported("a deploy key opens no container registry"));
        }
        let key = read_public_key(request)?;
        let body = json!({ "title": request.name, "key": key, "can_push": false, "expires_at": expires_at });
        return Ok(Call::post(place, body));
    }
    let scope = match request.role {
        Role::ReadRepository => "read_repository",
        Role::ReadRegistry => "read_registry",
    };
    let mut body = json!({ "name": request.name, "scopes": [scope], "expires_at": expires_at });
    if let (Some(username), Some(fields)) = (&request.username, body.as_object_mut()) {
        fields.insert("username".to_owned(), json!(username));
    }
    Ok(Call::post(place, body))
}

/// Checks whether a message is about the owner. GitLab answers `404 Project Not Found` and `404 Group Not Found` for an owner, and `404 Not found` for its content.
fn is_about_owner(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("project not found") || message.contains("group not found")
}

fn read_found(scope: Scope, progress: &Progress, reply: &Reply) -> Result<TargetDescription, HostError> {
    check_found(match scope {
        Scope::Project => describe_project(read(progress, reply)?),
        Scope::Group => {
            let group: Group = read(progress, reply)?;
            TargetDescription {
                target: Target {
                    scope,
                    id: group.id,
                    path: group.full_path,
                },
                http_url: None,
                ssh_url: None,
                registry_prefix: None,
            }
        }
    })
}

fn describe_project(project: Project) -> TargetDescription {
    TargetDescription {
        target: Target {
            scope: Scope::Project,
            id: project.id,
            path: project.path_with_namespace,
        },
        http_url: project.http_url_to_repo,
        ssh_url: project.ssh_url_to_repo,
        registry_prefix: project.container_registry_image_prefix,
    }
}

/// Checks whether a project is in a group and has the content that a role reads. A project that reports another place is not tried.
fn is_member(project: &Project, group: &Target, role: Role) -> bool {
    let path = project.path_with_namespace.to_ascii_lowercase();
    let above = format!("{}/", group.path.to_ascii_lowercase());
    let (place, level) = match role {
        Role::ReadRepository => (&project.http_url_to_repo, &project.repository_access_level),
        Role::ReadRegistry => (
            &project.container_registry_image_prefix,
            &project.container_registry_access_level,
        ),
    };
    path.starts_with(&above) && place.is_some() && level.as_deref() != Some("disabled")
}

fn read_page(kind: CredentialKind, progress: &Progress, reply: &Reply) -> Result<Vec<ListedCredential>, HostError> {
    let time = |text: Option<&str>| read_optional_time(text, false);
    if kind == CredentialKind::DeployKey {
        let page: Vec<DeployKey> = read(progress, reply)?;
        let mut listed = Vec::new();
        for key in page {
            listed.push(ListedCredential {
                id: key.id,
                name: key.title,
                expires_at: time(key.expires_at.as_deref())?,
                is_revoked: false,
                is_expired: false,
                may_write: key.can_push,
                last_used_at: time(key.last_used_at.as_deref())?,
            });
        }
        return Ok(listed);
    }
    let page: Vec<DeployToken> = read(progress, reply)?;
    let mut listed = Vec::new();
    for token in page {
        listed.push(ListedCredential {
            id: token.id,
            name: token.name,
            expires_at: time(token.expires_at.as_deref())?,
            is_revoked: token.revoked,
            is_expired: token.expired,
            may_write: token.scopes.iter().any(|scope| !scope.starts_with("read_")),
            last_used_at: None,
        });
    }
    Ok(listed)
}

/// Reads the answer to the order for a credential.
fn read_minted(request: &MintRequest, progress: &Progress, reply: &Reply) -> Result<ApiStep, HostError> {
    let end = |text: Option<&str>| read_optional_time(text, true);
    if request.kind == CredentialKind::DeployKey {
        let key: DeployKey = read(progress, reply)?;
        let expires_at: Option<Timestamp> = end(key.expires_at.as_deref())?;
        return read_minted_key(request, (key.id, &key.key, key.can_push), expires_at);
    }
    let token: DeployToken = read(progress, reply)?;
    let expires_at = end(token.expires_at.as_deref())?;
    // Clients send the user name that GitLab assigned, which can differ from the requested one.
    let value = token.token.unwrap_or_default();
    read_minted_token(Some(token.id), Some(token.username), expires_at, value)
}

fn read_issue(issue: IssueAnswer) -> Result<Issue, HostError> {
    let is_url = issue.web_url.len() <= 2048 && issue.web_url.starts_with("http");
    if !is_url || issue.web_url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(HostError::NotUnderstood("an issue without an address".to_owned()));
    }
    Ok(Issue {
        number: issue.iid,
        url: issue.web_url,
    })
}
