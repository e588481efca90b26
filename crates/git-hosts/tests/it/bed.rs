//! Fake hosts with content, and helpers that all tests use.

use std::path::PathBuf;
use std::process::Output;

use git_hosts::{AuthoriserCredential, Host, HostResponse, RemoteHost, make_deploy_key};
use jiff::Timestamp;
use tempfile::TempDir;
use tenure_forge_server::{ForgeServer, Kind, Owner};
use tenure_remote_requests::git_host::{
    CredentialKind, HostError, HostKind, HostQuery, HostReply, ListedCredential, MintRequest, Role, Scope, Target,
    TargetDescription,
};
use tenure_sources::{Connector, Policy, SecretBytes, TlsOptions};
use tokio::process::Command;

/// A fake host with a project, a group above it, and an owner of both.
pub(crate) struct Bed {
    pub(crate) folder: TempDir,
    pub(crate) forge: ForgeServer,
    pub(crate) host: RemoteHost,
    pub(crate) owner: u64,
    pub(crate) project: u64,
    pub(crate) group: u64,
    pub(crate) token: String,
}

pub(crate) const PROJECT: &str = "group-1/project-a";

impl Bed {
    pub(crate) async fn new(kind: HostKind) -> Self {
        let folder = TempDir::new().unwrap();
        let forge = ForgeServer::start(folder.path().join("repositories"), fake_kind(kind))
            .await
            .unwrap();
        let group = forge.add_group("group-1");
        let project = forge.add_project(PROJECT).await.unwrap();
        let repository = forge.git().repository(PROJECT).unwrap();
        repository.commit([("a.yaml", "a")], "first").await.unwrap();
        let owner = forge.add_person("owner");
        forge.set_level(owner, Owner::Group(group), 50);
        let token = forge.authorise(owner, &["api"], None);
        let host = connect(kind, forge.url(), &token);
        Self {
            folder,
            forge,
            host,
            owner,
            project,
            group,
            token,
        }
    }

    pub(crate) fn target(&self) -> Target {
        Target {
            scope: Scope::Project,
            id: self.project,
            path: PROJECT.to_owned(),
        }
    }

    pub(crate) fn group_target(&self) -> Target {
        Target {
            scope: Scope::Group,
            id: self.group,
            path: "group-1".to_owned(),
        }
    }

    /// Runs git in the bed's folder, with the given configuration only.
    pub(crate) async fn git(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0");
        for (key, value) in environment {
            command.env(key, value);
        }
        command.output().await.unwrap()
    }
}

fn fake_kind(kind: HostKind) -> Kind {
    match kind {
        HostKind::Gitlab => Kind::Gitlab,
        HostKind::Github => Kind::Github,
        HostKind::Gitea => Kind::Gitea,
        HostKind::Static => panic!("nobody speaks for what is written by hand"),
    }
}

/// Returns a host at a loopback address.
pub(crate) fn connect(kind: HostKind, url: &str, token: &str) -> RemoteHost {
    let authoriser = AuthoriserCredential::Token(SecretBytes::new(token));
    RemoteHost::new(kind, url, authoriser, TlsOptions::default(), allow_addresses(&[url])).unwrap()
}

/// Returns the addresses that an administrator has allowed.
pub(crate) fn allow_addresses(urls: &[&str]) -> Connector {
    let endpoint = |url: &&str| {
        let end = url.find("://").map_or(0, |at| at + 3);
        let host = url[end..].split('/').next().unwrap();
        let host = host.rsplit('@').next().unwrap();
        format!("{}{host}", &url[..end]).parse().unwrap()
    };
    Connector::Here(Policy {
        allow: urls.iter().map(endpoint).collect(),
        cluster: Vec::new(),
    })
}

/// Makes an order for a credential, with the private half of a key beside it.
pub(crate) fn make_order(target: &Target, kind: CredentialKind, name: &str) -> (MintRequest, Option<SecretBytes>) {
    let pair = (kind == CredentialKind::DeployKey).then(|| make_deploy_key(name).unwrap());
    let request = MintRequest {
        target: target.clone(),
        kind,
        role: Role::ReadRepository,
        name: name.to_owned(),
        username: None,
        expires_at: None,
        public_key: pair.as_ref().map(|pair| pair.public.clone()),
    };
    (request, pair.map(|pair| pair.private))
}

pub(crate) async fn ask(host: &dyn Host, ask: HostQuery) -> Result<HostResponse, HostError> {
    host.ask(&ask, Timestamp::now()).await
}

pub(crate) async fn find(host: &dyn Host, what: HostQuery) -> Option<TargetDescription> {
    match ask(host, what).await.unwrap().reply {
        HostReply::Found(found) => found,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn list(host: &dyn Host, target: &Target, kind: CredentialKind) -> Vec<ListedCredential> {
    let target = target.clone();
    match ask(host, HostQuery::List { target, kind }).await.unwrap().reply {
        HostReply::Listed(listed) => listed,
        other => panic!("{other:?}"),
    }
}

/// Orders a credential; returns its number and, of a token, its user name and value.
pub(crate) async fn mint(host: &dyn Host, request: &MintRequest) -> (u64, Option<(String, String)>) {
    let answered = ask(host, HostQuery::Mint(request.clone())).await.unwrap();
    let HostReply::Minted(minted) = answered.reply else {
        panic!("{:?}", answered.reply);
    };
    let value = answered.value.map(|value| value.reveal().to_owned());
    (minted.id.unwrap_or_default(), minted.username.zip(value))
}

pub(crate) async fn revoke(
    host: &dyn Host,
    target: &Target,
    kind: CredentialKind,
    id: u64,
) -> Result<HostResponse, HostError> {
    let target = target.clone();
    ask(host, HostQuery::Revoke { target, kind, id }).await
}

/// Finds a program on `PATH`, or in a folder of `TENURE_BESIDE`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let folders = ["PATH", "TENURE_BESIDE"].into_iter().filter_map(std::env::var_os);
    let mut folders = folders.flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}
