//! Statuses of commits at GitHub, GitLab and Gitea: the repository of an address, the commit of an event, the content of the status, and the check whether the host has
//! it already.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_api::reason;

use super::check::ProviderType;
use crate::alert_event::{AlertEvent, Severity};
use tenure_remote_requests::address::{Address, encode_part, read_server};

/// The number of statuses of a commit that are read (Flux's).
const PER_PAGE: usize = 50;
/// The most parts in the path of a repository.
const PARTS: usize = 20;

/// A repository at a Git host: the server, and the path.
#[derive(Debug)]
pub(super) struct Repository {
    server: Address,
    parts: Vec<String>,
}

impl Repository {
    /// Reads the address of a repository, as for a fetch over HTTPS or ssh.
    pub(super) fn read(text: &str, kind: ProviderType) -> Result<Self, &'static str> {
        let text = text.trim();
        let (server, path) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ssh") => {
                let (authority, path) = rest.split_once('/').ok_or("it names no repository")?;
                (make_server(authority)?, path.to_owned())
            }
            Some(_) => {
                let mut server = Address::read(text)?;
                if server.query.is_some() {
                    return Err("it has a query, and a repository has none");
                }
                let path = std::mem::replace(&mut server.path, "/".to_owned());
                // The token is the credential instead.
                server.user = None;
                (server, path)
            }
            None => {
                let (authority, path) = text
                    .split_once(':')
                    .ok_or("write the address of a repository, such as https://host/owner/repository")?;
                (make_server(authority)?, path.to_owned())
            }
        };
        let path = path.trim_start_matches('/').trim_end_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        let is_part = |part: &String| {
            let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !part.is_empty() && !part.starts_with("..") && part != "." && part.bytes().all(is_known)
        };
        if parts.len() > PARTS || !parts.iter().all(is_part) {
            return Err("its path can't be that of a repository");
        }
        if kind != ProviderType::GitLab && parts.len() != 2 {
            return Err("its path must be an owner and a repository");
        }
        Ok(Self { server, parts })
    }

    /// Returns the address of the host's API.
    pub(super) fn locate_api(&self, kind: ProviderType) -> Address {
        self.make_address(kind, "", None)
    }

    /// Returns the address of a resource of the repository in the host's API.
    fn make_address(&self, kind: ProviderType, behind: &str, query: Option<String>) -> Address {
        let path = match kind {
            ProviderType::GitLab => format!("/api/v4/projects/{}/{behind}", encode_part(&self.parts.join("/"))),
            ProviderType::Gitea => format!("/api/v1/repos/{}/{behind}", self.parts.join("/")),
            _ => {
                let host = self.server.host.as_str();
                if host == "github.com" {
                    let mut api = self
                        .server
                        .with_path(&format!("/repos/{}/{behind}", self.parts.join("/")), query);
                    api.host = "api.github.com".to_owned();
                    return api;
                }
                let is_api = host.starts_with("api.") || host.contains(".api.");
                let base = if is_api { "" } else { "/api/v3" };
                format!("{base}/repos/{}/{behind}", self.parts.join("/"))
            }
        };
        self.server.with_path(&path, query)
    }
}

/// Returns the HTTPS server for an address that is fetched over ssh, on its usual port: the port of ssh doesn't apply.
fn make_server(authority: &str) -> Result<Address, &'static str> {
    let server = authority.rsplit_once('@').map_or(authority, |(_, server)| server);
    let (host, _) = read_server(server)?;
    Address::read(&format!("https://{host}/"))
}

/// Finds the commit of a revision, such as `main@sha1:…`.
pub(super) fn find_commit(revision: &str) -> Option<&str> {
    let digest = revision.rsplit_once('@').map_or(revision, |(_, digest)| digest);
    let (hash, length) = match digest.split_once(':') {
        Some(("sha1", hash)) => (hash, 40),
        Some(("sha256", hash)) => (hash, 64),
        Some(_) => return None,
        // Flux's earlier form of revisions: main/….
        None => (digest.rsplit_once('/').map_or(digest, |(_, hash)| hash), 40),
    };
    let is_hash = hash.len() == length && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(hash)
}

/// The status to set on a commit at a Git host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommitStatus {
    kind: ProviderType,
    commit: String,
    name: String,
    state: &'static str,
    description: String,
}

/// Checks whether an event has news about a commit for its host (Flux's rules).
pub(super) fn is_about_commit(kind: ProviderType, news: &AlertEvent, metadata: &BTreeMap<String, String>) -> bool {
    let has_commit = news
        .metadata
        .get("event.toolkit.fluxcd.io/commit")
        .is_some_and(|commit| !commit.is_empty());
    let is_error = news.severity == Severity::Error;
    // A warning about a successful apply is no failure.
    let is_remark = is_error && news.reason == reason::RECONCILIATION_SUCCEEDED;
    let is_under_way = news.reason == reason::PROGRESSING && kind != ProviderType::Gitea;
    (has_commit || is_error || news.is_commit_status())
        && !is_remark
        && !is_under_way
        && find_revision(metadata).is_some()
}

/// Finds the revision of an event in Flux's order: the commit in the object's annotation, the origin of the artifact, the artifact.
fn find_revision(metadata: &BTreeMap<String, String>) -> Option<&str> {
    let mut keys = ["commit", "originRevision", "revision"].into_iter();
    keys.find_map(|key| metadata.get(key)).map(String::as_str)
}

impl CommitStatus {
    /// Makes the status of a commit from an event; `name` is the status's name from an expression.
    pub(super) fn from_event(
        kind: ProviderType,
        news: &AlertEvent,
        metadata: &BTreeMap<String, String>,
        (name, provider_uid): (Option<String>, &str),
    ) -> Result<Self, String> {
        let revision = find_revision(metadata).ok_or("missing revision metadata")?;
        let commit = find_commit(revision).ok_or("failed to extract commit hash from the revision")?;
        let is_error = news.severity == Severity::Error;
        let state = match kind {
            ProviderType::GitLab if is_error => "failed",
            ProviderType::Gitea if news.reason == reason::PROGRESSING => "pending",
            _ if is_error => "failure",
            _ => "success",
        };
        let name = name.unwrap_or_else(|| {
            let first = provider_uid.split('-').next().unwrap_or_default();
            format!("{}/{}/{first}", news.object.kind, news.object.name).to_lowercase()
        });
        Ok(Self {
            kind,
            commit: commit.to_owned(),
            name,
            state,
            description: split_camel_case(&news.reason).join(" ").to_lowercase(),
        })
    }

    /// Returns the address that lists the statuses of the commit.
    pub(super) fn locate_list(&self, repository: &Repository) -> Address {
        let commit = &self.commit;
        match self.kind {
            ProviderType::GitLab => {
                let query = format!("name={}", encode_part(&self.name));
                repository.make_address(self.kind, &format!("repository/commits/{commit}/statuses"), Some(query))
            }
            ProviderType::Gitea => {
                let query = format!("limit={PER_PAGE}&page=1");
                repository.make_address(self.kind, &format!("commits/{commit}/statuses"), Some(query))
            }
            _ => {
                let query = format!("per_page={PER_PAGE}");
                repository.make_address(self.kind, &format!("commits/{commit}/statuses"), Some(query))
            }
        }
    }

    /// Returns the address for a new status.
    pub(super) fn find_status_address(&self, repository: &Repository) -> Address {
        repository.make_address(self.kind, &format!("statuses/{}", self.commit), None)
    }

    /// Writes the body of the status.
    pub(super) fn write(&self) -> Value {
        let (state, name, description) = (self.state, &self.name, &self.description);
        match self.kind {
            ProviderType::GitLab => json!({ "state": state, "name": name, "description": description }),
            ProviderType::Gitea => {
                json!({ "state": state, "target_url": "", "description": description, "context": name })
            }
            _ => json!({ "state": state, "description": description, "context": name }),
        }
    }

    /// Writes the headers with the credential for the host.
    pub(super) fn write_headers(&self, token: &str) -> Vec<(String, String)> {
        let header = |name: &str, value: String| (name.to_owned(), value);
        match self.kind {
            ProviderType::GitLab => vec![header("private-token", token.to_owned())],
            ProviderType::Gitea => vec![header("authorization", format!("token {token}"))],
            _ => vec![
                header("authorization", format!("Bearer {token}")),
                header("accept", "application/vnd.github+json".to_owned()),
                header("x-github-api-version", "2022-11-28".to_owned()),
            ],
        }
    }

    /// Checks whether a list of the commit's statuses has it already, as the last one of its name.
    pub(super) fn is_in(&self, list: &[u8]) -> bool {
        let Ok(Value::Array(list)) = serde_json::from_slice(list) else {
            return false;
        };
        let has = |status: &Value, field: &str, value: &str| status.get(field).and_then(Value::as_str) == Some(value);
        let is_same = |status: &Value, state: &str| {
            has(status, state, self.state) && has(status, "description", &self.description)
        };
        match self.kind {
            ProviderType::GitLab => list.iter().any(|status| {
                has(status, "sha", &self.commit) && has(status, "name", &self.name) && is_same(status, "status")
            }),
            ProviderType::Gitea => {
                let last = list.iter().find(|status| has(status, "context", &self.name));
                last.is_some_and(|status| is_same(status, "status"))
            }
            _ => {
                let last = list.iter().find(|status| has(status, "context", &self.name));
                last.is_some_and(|status| is_same(status, "state"))
            }
        }
    }
}

/// Splits a CamelCase reason into words: `InvalidCELExpression` has three.
fn split_camel_case(text: &str) -> Vec<String> {
    let class = |letter: char| match letter {
        letter if letter.is_lowercase() => 1,
        letter if letter.is_uppercase() => 2,
        letter if letter.is_numeric() => 3,
        _ => 4,
    };
    let mut words: Vec<String> = Vec::new();
    let mut last = 0;
    for letter in text.chars() {
        let this = class(letter);
        match words.last_mut() {
            Some(word) if this == last => word.push(letter),
            // A large letter before small ones begins their word.
            Some(word) if last == 2 && this == 1 => {
                let first = word.pop();
                let is_spent = word.is_empty();
                let begun: String = first.into_iter().chain([letter]).collect();
                if is_spent {
                    *word = begun;
                } else {
                    words.push(begun);
                }
            }
            _ => words.push(letter.to_string()),
        }
        last = this;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_read_as_it_is_fetched_from() {
        let check = |text: &str, kind: ProviderType, expected: &str| {
            let found = match Repository::read(text, kind) {
                Ok(repository) => {
                    let address = repository.make_address(kind, "x", None);
                    format!("{}{}", address.describe_server(), address.target())
                }
                Err(problem) => problem.to_owned(),
            };
            assert_eq!(found, expected, "{text}");
        };
        let github = ProviderType::GitHub;
        check("https://github.com/a/b", github, "https://api.github.com/repos/a/b/x");
        check(
            "https://github.com/a/b.git",
            github,
            "https://api.github.com/repos/a/b/x",
        );
        check("ssh://git@github.com/a/b", github, "https://api.github.com/repos/a/b/x");
        check(
            "ssh://git@github.com:2222/a/b",
            github,
            "https://api.github.com/repos/a/b/x",
        );
        check("git@github.com:a/b.git", github, "https://api.github.com/repos/a/b/x");
        check(
            "http://git.example:8080/a/b",
            github,
            "http://git.example:8080/api/v3/repos/a/b/x",
        );
        check(
            "https://api.git.example/a/b",
            github,
            "https://api.git.example/repos/a/b/x",
        );
        check(
            "https://user:sesame@git.example/a/b/",
            ProviderType::Gitea,
            "https://git.example/api/v1/repos/a/b/x",
        );
        check(
            "https://gitlab.com/a/b/c",
            ProviderType::GitLab,
            "https://gitlab.com/api/v4/projects/a%2Fb%2Fc/x",
        );
        check(
            "https://gitlab.com/1234",
            ProviderType::GitLab,
            "https://gitlab.com/api/v4/projects/1234/x",
        );
        check(
            "https://github.com/a",
            github,
            "its path must be an owner and a repository",
        );
        check(
            "https://github.com/a/b/c",
            github,
            "its path must be an owner and a repository",
        );
        check(
            "https://gitlab.com/a/../b",
            ProviderType::GitLab,
            "its path can't be that of a repository",
        );
        check(
            "https://gitlab.com/a%2Fb",
            ProviderType::GitLab,
            "its path can't be that of a repository",
        );
        check(
            "https://github.com/a/b?x=y",
            github,
            "it has a query, and a repository has none",
        );
        check("file:///a/b", github, "it must begin with https:// or http://");
    }

    #[test]
    fn a_commit_is_found_in_a_revision() {
        let sha1 = "5394cb7f48332b2de7c17dd8b8384bbc84b7e738";
        for revision in [
            format!("main@sha1:{sha1}"),
            format!("sha1:{sha1}"),
            format!("a/b@sha1:{sha1}"),
            format!("main/{sha1}"),
        ] {
            assert_eq!(find_commit(&revision), Some(sha1), "{revision}");
        }
        let sha256 = "0".repeat(64);
        assert_eq!(find_commit(&format!("v1@sha256:{sha256}")), Some(sha256.as_str()));
        for wrong in ["", "main", "main@sha1:5394", "main@md5:0", "main@sha1:../../x"] {
            assert_eq!(find_commit(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_reason_is_written_in_words() {
        let check =
            |reason: &str, expected: &str| assert_eq!(split_camel_case(reason).join(" ").to_lowercase(), expected);
        check("ReconciliationSucceeded", "reconciliation succeeded");
        check("InvalidCELExpression", "invalid cel expression");
        check("Progressing", "progressing");
        check("URLInvalid", "url invalid");
        check("OCIArtifactPullFailed", "oci artifact pull failed");
        check("", "");
    }
}
