//! Executes single steps of the rotation machine: reads state, calls the host, writes Secrets, asks sources to fetch. It makes no choice.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use git_hosts::{HostResponse, make_deploy_key};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::access::request::CredentialLedger;
use tenure_api::access::{AccessProvider, FluxAccessRequest};
use tenure_api::metadata::{REQUESTED_AT, TENURE_CONTROLLER};
use tenure_api::{GitRepository, OciRepository};
use tenure_cluster::Client;
use tenure_git_access::credential_kind::{CredentialKindInputs, choose_kind, find_made};
use tenure_git_access::delivery::{Form, order_deadline, read_role};
use tenure_git_access::request::read_target;
use tenure_git_access::rotation::{
    Answer, Listing, NamespaceState, SecretFacts, SecretState, StagedFacts, StagingState, Step, WriteFailure,
};
use tenure_remote_requests::git_host::{
    CredentialKind, HostError, HostKind, HostQuery, HostReply, MintRequest, Role, Target, TargetDescription,
};
use tenure_tenancy::access::readers::{IntendedReaders, check_strict, list_other_readers};
use tenure_tenancy::{Identity, identity};

use super::AccessHub;
use super::hosts::{Connected, HostSlot, find_capabilities, read_kind};
use super::secret_parts::{FoundSecretParts, find_host};
use super::secret_readers;
use super::secrets::{self, SecretPlace};
use super::staging::{self, StagedValue};
use crate::lane::HubApi as _;
use crate::reconcile_loop::reconciled::{Home as _, Reconciled as _};

/// The facts and clients for the steps of one request: its AccessProvider, the host, the role, and the kind of its credentials.
pub(super) struct Actor {
    pub(super) access_hub: Arc<AccessHub>,
    pub(super) request: Arc<FluxAccessRequest>,
    pub(super) provider: Option<Arc<AccessProvider>>,
    pub(super) host: Arc<HostSlot>,
    pub(super) role: Role,
    pub(super) kind: CredentialKind,
    pub(super) host_kind: HostKind,
    /// Why no credential can be made.
    pub(super) obstacle: Option<String>,
}

impl Actor {
    pub(super) async fn new(access_hub: &Arc<AccessHub>, request: Arc<FluxAccessRequest>) -> Self {
        let provider = access_hub.find_provider(&request.spec.provider);
        let host = access_hub.host(&request.spec.provider);
        let role = read_role(&request.spec).unwrap_or(Role::ReadRepository);
        let host_kind = provider.as_deref().and_then(read_kind).unwrap_or(HostKind::Static);
        let mut actor = Self {
            access_hub: Arc::clone(access_hub),
            request,
            provider,
            host,
            role,
            kind: CredentialKind::DeployToken,
            host_kind,
            obstacle: None,
        };
        let made = find_made(&actor.request);
        // Existing credentials are revoked by the kind in the status, even if no kind can be chosen for new ones.
        actor.kind = made.unwrap_or(actor.kind);
        let is_app = match host_kind {
            HostKind::Github if made.is_none() => actor.connect().await.map(|connected| connected.is_app),
            _ => Ok(false),
        };
        let spec = actor.provider.as_ref().map(|provider| &provider.spec);
        let chosen = is_app.and_then(|is_app| {
            choose_kind(CredentialKindInputs {
                host: host_kind,
                is_app,
                role,
                scope: actor.target().scope,
                asked: spec.and_then(|spec| spec.repository_credential.as_deref()),
                made,
                has_known_hosts: spec.is_some_and(|spec| spec.known_hosts.is_some()),
            })
        });
        match chosen {
            Ok(kind) => actor.kind = kind,
            Err(why) => actor.obstacle = Some(why),
        }
        actor
    }

    pub(super) fn target(&self) -> Target {
        read_target(&self.request.spec.target)
    }

    pub(super) fn form(&self) -> Form {
        Form::for_role(self.kind, self.role)
    }

    pub(super) fn capabilities(&self) -> tenure_remote_requests::git_host::Capabilities {
        find_capabilities(self.host_kind, self.kind)
    }

    pub(super) fn request_name(&self) -> &str {
        self.request.metadata.name.as_deref().unwrap_or_default()
    }

    fn find_secret_place<'a>(&'a self, namespace: &'a str) -> SecretPlace<'a> {
        SecretPlace {
            request: self.request_name(),
            namespace,
            name: &self.request.spec.secret_name,
        }
    }

    fn staged_key(&self, namespace: &str) -> String {
        staging::name_staged(self.request.metadata.uid.as_deref().unwrap_or_default(), namespace)
    }

    /// Returns the client of the account that writes credentials.
    pub(super) async fn writer(&self) -> Result<Client, String> {
        let name = self
            .provider
            .as_ref()
            .and_then(|provider| provider.spec.writer_service_account_name.clone());
        let who = identity::decide_for_access_writer(name.as_deref()).map_err(|denial| denial.to_string())?;
        self.act_as(&who).await
    }

    /// Returns the client of the account that the AccessProvider names for its authoriser.
    async fn authoriser(&self) -> Result<Client, String> {
        let authoriser = self
            .provider
            .as_ref()
            .and_then(|provider| provider.spec.authoriser.as_ref());
        let Some(authoriser) = authoriser else {
            return Err(
                "spec.authoriser of the AccessProvider is empty: name the account that makes credentials there"
                    .to_owned(),
            );
        };
        let who =
            identity::decide_for_authoriser(&authoriser.service_account_name).map_err(|denial| denial.to_string())?;
        self.act_as(&who.into()).await
    }

    async fn act_as(&self, who: &Identity) -> Result<Client, String> {
        let client = self.access_hub.hub.act_as(who, self.access_hub.platform()).await;
        client.map_err(|error| format!("{who} can't act: {error}"))
    }

    /// Returns the host's client, with the authoriser's credential.
    pub(super) async fn connect(&self) -> Result<Connected, String> {
        let provider = self.provider.as_deref().ok_or("the AccessProvider is gone")?;
        let read = async {
            let client = self.authoriser().await?;
            let name = provider
                .spec
                .authoriser
                .as_ref()
                .map(|authoriser| authoriser.secret_ref.name.clone());
            secrets::read_data(&client, self.access_hub.platform(), &name.unwrap_or_default()).await
        };
        self.host
            .connect(provider, self.access_hub.hub.context.reach(true), read)
            .await
    }

    pub(super) async fn ask(&self, ask: &HostQuery, deadline: Option<Timestamp>) -> Result<HostResponse, HostError> {
        // Without a connection nothing was sent, so a failure here has no effect at the host.
        let connected = self.connect().await.map_err(HostError::Unreachable)?;
        self.host.ask(&connected, ask, deadline).await
    }

    /// Returns the names of the accounts of a namespace that get read access to the Secret: the accounts that the entry names, and the account that
    /// fetches the namespace's sources.
    async fn list_readers(&self, namespace: &str) -> BTreeSet<String> {
        let placement = self.access_hub.hub.read_placement(namespace).await;
        let source = identity::decide_for_source(&placement, namespace).ok();
        let own = source
            .filter(|account| account.namespace() == namespace)
            .map(|account| account.name().to_owned());
        self.request.spec.service_accounts.iter().cloned().chain(own).collect()
    }

    /// Reads the Secret in a namespace.
    pub(super) async fn look_at_secret(&self, namespace: &str) -> SecretState {
        if self.access_hub.find_namespace(namespace) != NamespaceState::Present {
            return SecretState::Absent;
        }
        match self.writer().await {
            Ok(client) => secrets::read_secret_state(&client, self.find_secret_place(namespace), self.form()).await,
            Err(why) => SecretState::Unknown(why),
        }
    }

    /// Reads the staging Secret of a credential.
    pub(super) async fn look_at_staging(&self, namespace: &str) -> StagingState {
        if self.provider.is_none() {
            // Only the AccessProvider names the account that could read the staging Secret.
            return StagingState::Absent;
        }
        match self.authoriser().await {
            Ok(client) => {
                let key = self.staged_key(namespace);
                staging::look_at_staging(&client, self.access_hub.platform(), &self.request.spec.provider, &key).await
            }
            Err(why) => StagingState::Unknown(why),
        }
    }

    pub(super) async fn read_staged(&self, namespace: &str) -> Result<StagedValue, String> {
        let client = self.authoriser().await?;
        let key = self.staged_key(namespace);
        let staged =
            staging::read_staged(&client, self.access_hub.platform(), &self.request.spec.provider, &key).await?;
        staged.ok_or_else(|| "its value is no longer in the staging Secret".to_owned())
    }

    async fn stage(&self, namespace: &str, staged: &StagedValue) -> Result<(), String> {
        let client = self.authoriser().await?;
        let key = self.staged_key(namespace);
        staging::stage_value(
            &client,
            self.access_hub.platform(),
            &self.request.spec.provider,
            &key,
            staged,
        )
        .await
    }

    /// Checks whether only the intended accounts can read the Secret, as far as the namespace's own RBAC says.
    pub(super) async fn check_strict(&self, namespace: &str) -> Result<(), String> {
        let placement = self.access_hub.hub.read_placement(namespace).await;
        let mut others = vec![identity::decide_for_lane(&placement, namespace).to_string()];
        others.extend(
            identity::decide_for_source(&placement, namespace)
                .ok()
                .map(|account| account.to_string()),
        );
        let writer = self.writer().await?;
        others.push(writer.identity().to_string());
        let bindings = secret_readers::list_bindings(self.access_hub.controller(), &writer, namespace).await?;
        let meant = IntendedReaders {
            namespace,
            secret: &self.request.spec.secret_name,
            accounts: &self.request.spec.service_accounts,
            others: &others,
        };
        check_strict(meant, &list_other_readers(meant, &bindings)).map_err(|denial| denial.to_string())
    }

    /// Executes a step in a namespace.
    pub(super) async fn perform(&self, namespace: &str, step: &Step, ledger: &CredentialLedger) -> Option<Answer> {
        Some(match step {
            // A record is written once for all namespaces of a request.
            Step::Record | Step::Begin => return None,
            Step::Preflight => Answer::Preflight(self.try_all(namespace).await),
            Step::MintAndStage(order) => self.mint(namespace, order, ledger).await,
            Step::List(target) => {
                let ask = HostQuery::List {
                    target: target.clone(),
                    kind: self.kind,
                };
                let asked_at = Timestamp::now();
                self.host.record_list(asked_at);
                Answer::Listed(match self.ask(&ask, None).await {
                    Ok(HostResponse {
                        reply: HostReply::Listed(listed),
                        ..
                    }) => {
                        let listing = Listing {
                            asked_at,
                            credentials: listed.clone(),
                        };
                        self.host.keep_listing(target, self.kind, listing);
                        Ok(listed)
                    }
                    Ok(_) => Err(not_understood()),
                    Err(trouble) => Err(trouble),
                })
            }
            Step::Find(target) => Answer::Found(self.find(target).await),
            Step::Revoke { target, id } => {
                let ask = HostQuery::Revoke {
                    target: target.clone(),
                    kind: self.kind,
                    id: *id,
                };
                Answer::Revoked(*id, self.ask(&ask, None).await.map(|_| ()))
            }
            Step::ProbeStaged => self.probe_staged(namespace, ledger).await,
            Step::Spread(seen) => Answer::Spread(self.spread(namespace, seen.as_ref(), ledger).await),
            Step::Mark(seen) => Answer::Spread(self.mark(namespace, seen).await),
            Step::AskSources { sources, token } => {
                self.ask_sources(namespace, sources, token).await;
                Answer::Asked
            }
            Step::ProbeDelivered => self.probe_delivered(namespace, ledger).await,
            Step::DeleteSecret(seen) => Answer::SecretDeleted(match self.writer().await {
                Ok(client) => secrets::delete_secret(&client, self.find_secret_place(namespace), seen).await,
                Err(why) => Err(WriteFailure::Refused(why)),
            }),
            Step::ChangeAccounts(changes) => Answer::Named(self.change_accounts(namespace, changes).await),
            Step::ClearStaging => Answer::StagingCleared(match self.authoriser().await {
                Ok(client) => {
                    let key = self.staged_key(namespace);
                    staging::clear_value(&client, self.access_hub.platform(), &self.request.spec.provider, &key).await
                }
                Err(why) => Err(WriteFailure::Refused(why)),
            }),
        })
    }

    pub(super) async fn find(&self, target: &Target) -> Result<Option<TargetDescription>, HostError> {
        self.ask_for(&HostQuery::FindById {
            scope: target.scope,
            id: target.id,
        })
        .await
    }

    /// Returns a project of a group in which the group's credential can be tried, if one exists.
    pub(super) async fn find_member(&self, group: Target) -> Result<Option<TargetDescription>, HostError> {
        let role = self.role;
        self.ask_for(&HostQuery::FindMember { group, role }).await
    }

    async fn ask_for(&self, ask: &HostQuery) -> Result<Option<TargetDescription>, HostError> {
        match self.ask(ask, None).await? {
            HostResponse {
                reply: HostReply::Found(found),
                ..
            } => Ok(found),
            _ => Err(not_understood()),
        }
    }

    /// Tries, with dry-runs, to stage a value and to deliver the Secret with its read access.
    async fn try_all(&self, namespace: &str) -> Result<(), String> {
        let authoriser = self.authoriser().await?;
        let key = self.staged_key(namespace);
        staging::try_staging(
            &authoriser,
            self.access_hub.platform(),
            &self.request.spec.provider,
            &key,
        )
        .await?;
        let writer = self.writer().await?;
        let readers = self.list_readers(namespace).await;
        secrets::try_delivery(&writer, self.find_secret_place(namespace), self.form(), &readers).await
    }

    /// Orders a credential, and writes its value into the staging Secret. For a key, the private key is staged before the order.
    async fn mint(&self, namespace: &str, order: &MintRequest, ledger: &CredentialLedger) -> Answer {
        let Some(next) = &ledger.next else {
            return Answer::MintFailed(HostError::Unreachable(
                "no recorded credential could be ordered".to_owned(),
            ));
        };
        let mut order = order.clone();
        let mut staged = StagedValue {
            facts: StagedFacts {
                nonce: next.nonce.clone(),
                is_minted: false,
                id: None,
                fingerprint: String::new(),
                expires_at: None,
            },
            username: None,
            value: tenure_sources::SecretBytes::new(""),
            public: None,
        };
        if order.kind == CredentialKind::DeployKey {
            let pair = match make_deploy_key(&order.name) {
                Ok(pair) => pair,
                Err(why) => return Answer::MintFailed(HostError::Unreachable(why.to_owned())),
            };
            staged.facts.fingerprint = git_hosts::fingerprint_key(&pair.public);
            staged.value = pair.private;
            staged.public = Some(pair.public.clone());
            order.public_key = Some(pair.public);
            if let Err(why) = self.stage(namespace, &staged).await {
                return Answer::MintFailed(HostError::Unreachable(why));
            }
        }
        let answered = match self.ask(&HostQuery::Mint(order), Some(order_deadline(next))).await {
            Ok(answered) => answered,
            Err(trouble) => return Answer::MintFailed(trouble),
        };
        let HostReply::Minted(minted) = answered.reply else {
            return Answer::MintFailed(HostError::Unknown("the answer is to another order".to_owned()));
        };
        if let Some(value) = answered.value {
            staged.value = value;
        }
        staged.username.clone_from(&minted.username);
        staged.facts = StagedFacts {
            nonce: next.nonce.clone(),
            is_minted: true,
            id: minted.id,
            fingerprint: minted.fingerprint.clone(),
            expires_at: minted.expires_at.or(next.expires_at.as_ref().map(|at| at.0)),
        };
        match self.stage(namespace, &staged).await {
            Ok(()) => Answer::Minted(minted),
            Err(why) => Answer::MintedOnly(minted, why),
        }
    }

    /// Returns the registry for a Docker Secret, from the AccessProvider or the host.
    async fn find_registry(&self, ledger: &CredentialLedger) -> Result<Option<String>, HostError> {
        if self.form() != Form::Docker {
            return Ok(None);
        }
        let configured = self
            .provider
            .as_ref()
            .and_then(|provider| provider.spec.registry.clone());
        if configured.is_some() {
            return Ok(configured);
        }
        let found = self.find(&self.current_target(ledger)).await?;
        let prefix = found.and_then(|found| found.registry_prefix);
        Ok(prefix.and_then(|prefix| prefix.split('/').next().map(str::to_owned)))
    }

    /// Returns the parts of a Secret besides the value.
    pub(super) async fn find_surroundings(&self, ledger: &CredentialLedger) -> Result<FoundSecretParts, HostError> {
        let connected = self.connect().await.map_err(HostError::Unreachable)?;
        let spec = self.provider.as_ref().map(|provider| &provider.spec);
        Ok(FoundSecretParts {
            form: self.form(),
            registry: self.find_registry(ledger).await?,
            known_hosts: spec.and_then(|spec| spec.known_hosts.clone()),
            authority: connected.authority,
            host: spec.and_then(|spec| find_host(&spec.address)),
        })
    }

    /// Returns the SHA-256 of the host's authority certificates that belong into the Secret; `None` for the Secret of an ssh key.
    pub(super) fn find_authority(&self) -> Option<String> {
        self.host.authority().filter(|_| self.form() != Form::Ssh)
    }

    pub(super) fn current_target(&self, ledger: &CredentialLedger) -> Target {
        let mut target = self.target();
        if let Some(path) = &ledger.path {
            target.path.clone_from(path);
        }
        target
    }

    /// Writes the staged value into the Secret of a namespace. Returns the Secret's uid.
    async fn spread(
        &self,
        namespace: &str,
        seen: Option<&SecretFacts>,
        ledger: &CredentialLedger,
    ) -> Result<String, WriteFailure> {
        let staged = self.read_staged(namespace).await.map_err(WriteFailure::Unknown)?;
        let is_next = ledger
            .next
            .as_ref()
            .is_some_and(|next| next.nonce == staged.facts.nonce);
        if !is_next {
            return Err(WriteFailure::Changed);
        }
        let found = self.find_surroundings(ledger).await;
        let found = found.map_err(|trouble| WriteFailure::Unknown(trouble.to_string()))?;
        let client = self.writer().await.map_err(WriteFailure::Refused)?;
        let readers = self.list_readers(namespace).await;
        let written = (&staged, found.borrow());
        secrets::write_value(&client, self.find_secret_place(namespace), written, seen, &readers).await
    }

    /// Writes Tenure's mark and the host's authority certificates into an existing Secret again.
    async fn mark(&self, namespace: &str, seen: &SecretFacts) -> Result<String, WriteFailure> {
        let authority = match self.find_authority() {
            // Only the fingerprint is stored, so the certificates are read again.
            Some(_) => self.connect().await.map_err(WriteFailure::Unknown)?.authority,
            None => None,
        };
        let authority = authority.as_deref().map(Vec::as_slice);
        let client = self.writer().await.map_err(WriteFailure::Refused)?;
        secrets::renew_mark(&client, self.find_secret_place(namespace), authority, seen).await
    }

    /// Asks sources to fetch now, as the account of their lane.
    async fn ask_sources(&self, namespace: &str, sources: &[String], token: &str) {
        let client = self.access_hub.hub.bookkeeper_of(namespace).await;
        for source in sources {
            let Some((kind, name)) = source.split_once('/') else {
                continue;
            };
            let kind = [GitRepository::KIND, OciRepository::KIND]
                .into_iter()
                .find(|known| known.name == kind);
            let Some(kind) = kind else { continue };
            let patch: Value = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
            let asked = async {
                let resource = client.resource(kind.api_version, kind.name).await?;
                client
                    .merge_patch(&resource, (namespace, name), None, TENURE_CONTROLLER, &patch)
                    .await
            };
            if let Err(error) = asked.await {
                tracing::debug!(namespace, source, %error, "a source could not be asked to fetch with its new credential");
            }
        }
    }

    /// Returns the lead of the host's clock.
    pub(super) fn ahead(&self) -> SignedDuration {
        self.host.ahead()
    }
}

pub(super) fn not_understood() -> HostError {
    HostError::NotUnderstood("the answer is to another question".to_owned())
}

/// Returns a unique string of letters and digits.
pub(super) fn make_nonce() -> String {
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("{:016x}", random() ^ random().rotate_left(17))
}
