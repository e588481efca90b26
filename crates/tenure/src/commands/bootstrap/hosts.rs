//! The project at a Git host with an API: its addresses, and its deploy key.

use git_hosts::{AuthoriserCredential, Host as _, RemoteHost, fingerprint_key};
use jiff::Timestamp;
use tenure_inspection::bootstrap::{HostAddress, is_same_host};
use tenure_remote_requests::git_host::{
    CredentialKind, HostError, HostKind, HostQuery, HostReply, MintRequest, Role, Scope, TargetDescription,
};
use tenure_sources::{SecretBytes, TlsOptions};

use super::credential::check_source;
use crate::failure::Failure;
use crate::own_connections::make_connector;

/// The characters of a fingerprint in the name of a key.
const SHORT: usize = 16;

/// A project, and the connection to its host.
pub(super) struct HostProject {
    host: RemoteHost,
    path: String,
    found: TargetDescription,
}

impl HostProject {
    /// Finds a project by its path.
    pub(super) async fn find(
        kind: HostKind,
        address: &HostAddress,
        path: &str,
        token: &SecretBytes,
        ca: Option<Vec<u8>>,
    ) -> Result<Self, Failure> {
        let tls = TlsOptions {
            ca,
            ..TlsOptions::default()
        };
        let credential = AuthoriserCredential::Token(token.clone());
        let host = RemoteHost::new(kind, &address.api, credential, tls, make_connector());
        let host = host.map_err(|why| Failure::usage(format!("--hostname: {why}")))?;
        let query = HostQuery::FindByPath {
            scope: Scope::Project,
            path: path.to_owned(),
        };
        let answer = host
            .ask(&query, Timestamp::now())
            .await
            .map_err(|error| explain(address, &error))?;
        let HostReply::Found(Some(found)) = answer.reply else {
            return Err(Failure::negative(format!(
                "{} has no repository {path}, or your token doesn't show it",
                address.name
            ))
            .hint("create the repository first, empty and private; the token needs the right to it"));
        };
        Ok(Self {
            host,
            path: path.to_owned(),
            found,
        })
    }

    /// Returns the address for the push. It has to be on the host that the user named, since it gets the token.
    pub(super) fn push_url(&self, address: &HostAddress) -> Result<String, Failure> {
        let url = self.found.http_url.as_deref().unwrap_or_default();
        match is_same_host(address, url) {
            true => Ok(url.to_owned()),
            false => Err(Failure::negative(format!(
                "{}: the host reports the address {url:?}, which is not on {}. Your token is not sent there",
                self.path, address.name
            ))
            .hint("name the host by the address at which it serves repositories, with --hostname")),
        }
    }

    /// Returns the address from which the cluster reads.
    pub(super) fn source_url(&self) -> Result<String, Failure> {
        let url = self.found.ssh_url.as_deref();
        let url = url.ok_or_else(|| {
            Failure::negative(format!("{}: the host reports no ssh address", self.path))
                .hint("name it: --source-url ssh://git@git.example/platform.git")
        })?;
        check_source(url)
    }

    /// Adds a deploy key to the project, for reading only. A key that was added before stays.
    pub(super) async fn allow_key(&self, public: &str) -> Result<(), Failure> {
        let fingerprint = fingerprint_key(public);
        let name = format!("tenure platform {}", fingerprint.get(..SHORT).unwrap_or(&fingerprint));
        let target = self.found.target.clone();
        let failed = |error: HostError| {
            Failure::environment(format!("{}: the deploy key can't be added: {error}", self.path))
                .hint("the token needs the right to manage deploy keys; run the same command again to continue")
        };
        let query = HostQuery::List {
            target: target.clone(),
            kind: CredentialKind::DeployKey,
        };
        let listed = self.host.ask(&query, Timestamp::now()).await.map_err(failed)?;
        if let HostReply::Listed(keys) = listed.reply
            && keys.iter().any(|key| key.name == name && !key.is_revoked)
        {
            return Ok(());
        }
        let order = HostQuery::Mint(MintRequest {
            target,
            kind: CredentialKind::DeployKey,
            role: Role::ReadRepository,
            name,
            username: None,
            expires_at: None,
            public_key: Some(public.to_owned()),
        });
        self.host.ask(&order, Timestamp::now()).await.map_err(failed)?;
        Ok(())
    }
}

fn explain(address: &HostAddress, error: &HostError) -> Failure {
    let failure = Failure::environment(format!("{}: {error}", address.api));
    match error {
        HostError::Unauthenticated | HostError::Forbidden(_) => {
            failure.hint("the token has expired, or lacks the right to this repository")
        }
        _ => failure,
    }
}
