//! Gitea and Forgejo: deploy keys.
//!
//! The source is `/api/swagger` of a Gitea. The host also has tokens of people, which open everything that the person may read, and which never end. This module never
//! makes such a token. Requests about keys use the path, after a check that the path still has the number. The API finds no organization by number.

use serde::Deserialize;
use serde_json::{Map, Value};
use tenure_remote_requests::git_host::{
    Capabilities, CredentialKind, HostError, HostKind, HostQuery, HostReply, Role, Scope,
};

use crate::answer::Outcome;
use crate::api::{Api, ApiStep, PAGE, Progress, read, read_public_key, refuse_missing, refuse_unsupported};
use crate::call::{Call, Reply};
use crate::github::{
    check_asked, find_by_path, find_first, found_group, found_repository, key_capabilities, read_keys,
};

/// Gitea's API of version 1.
pub(crate) struct Gitea;

#[derive(Deserialize)]
struct Organization {
    #[serde(deserialize_with = "crate::api::read_number")]
    id: u64,
    name: String,
}

impl Api for Gitea {
    fn kind(&self) -> HostKind {
        HostKind::Gitea
    }

    fn prefix(&self) -> &'static str {
        "/api/v1"
    }

    fn capabilities(&self, kind: CredentialKind) -> Option<Capabilities> {
        (kind == CredentialKind::DeployKey).then(|| key_capabilities(false))
    }

    /// Finds the next page by the total count. Lists of deploy keys have `X-Total-Count` and no `Link` (`ListDeployKeys` of `routers/api/v1/repo/key.go`), and shorter
    /// pages than requested.
    fn find_next_by_count(&self, progress: &Progress, reply: &Reply) -> Option<Call> {
        let total: usize = reply.header("x-total-count")?.parse().ok()?;
        let path = progress.call.below.split('?').next()?;
        // The first request is about the repository, so the number of requests is the number of the next page.
        let below = format!("{path}?limit={PAGE}&page={}", progress.calls);
        (progress.listed.len() < total).then(|| Call::get(below))
    }

    fn first_call(&self, query: &HostQuery) -> Result<Call, HostError> {
        Ok(match query {
            HostQuery::FindByPath { scope, path } => find_by_path(*scope, path)?,
            HostQuery::FindById {
                scope: Scope::Project,
                id,
            } => Call::get(format!("/repositories/{id}")),
            HostQuery::FindById {
                scope: Scope::Group, ..
            } => {
                return Err(refuse_unsupported(
                    "Gitea can't be asked for an organization by its number",
                ));
            }
            HostQuery::List { target, kind } | HostQuery::Revoke { target, kind, .. } => find_first(target, *kind)?,
            HostQuery::Mint(request) => {
                read_public_key(request)?;
                if request.role != Role::ReadRepository {
                    return Err(refuse_unsupported("a deploy key opens no container registry"));
                }
                find_first(&request.target, request.kind)?
            }
            HostQuery::ReadOwnCredential => Call::get("/user"),
            HostQuery::FindMember { .. } => {
                return Err(refuse_unsupported("Gitea has no credentials of a group"));
            }
            HostQuery::FindIssue { .. } | HostQuery::OpenIssue { .. } | HostQuery::CloseIssue { .. } => {
                return Err(refuse_unsupported("Gitea has no confidential issues"));
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
        match query {
            HostQuery::ReadOwnCredential => {
                refuse_missing(outcome)?;
                let _: Map<String, Value> = read(progress, reply)?;
                Ok(ApiStep::Done(HostReply::OwnCredential(None), None))
            }
            HostQuery::FindByPath { .. } | HostQuery::FindById { .. } if matches!(outcome, Outcome::Missing(_)) => {
                Ok(ApiStep::Done(HostReply::Found(None), None))
            }
            HostQuery::FindByPath {
                scope: Scope::Group, ..
            } => {
                let Organization { id, name } = read(progress, reply)?;
                check_asked(query, found_group(id, name))
            }
            HostQuery::FindByPath { .. } | HostQuery::FindById { .. } => {
                check_asked(query, found_repository(read(progress, reply)?))
            }
            _ => read_keys(query, progress, outcome, reply, "limit"),
        }
    }
}
