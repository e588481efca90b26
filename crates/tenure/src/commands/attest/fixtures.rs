//! The objects and actors of an attestation, and their removal. The Tenants are created first, so all other objects belong to a Tenant from their creation on.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kubernetes_reach::{Cluster, list_beyond};
use serde_json::{Value, json};
use tenure_api::Tenant;
use tenure_api::access::FluxAccessStatus;
use tenure_api::condition::{ConditionStatus, READY};
use tenure_api::metadata::{ATTEST_LABEL, CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE, TENANT_LABEL};
use tenure_inspection::attestation::{
    Attack, AttackRequest, AttackResult, CONTROLLER, ImpersonationRight, Names, Sender, Verb, assess_pattern,
    assess_reach, find_pattern_status, list_attack_targets, list_fixtures, list_managed_attack_targets,
    list_pattern_attack_targets,
};
use tenure_planner::Request;
use tenure_planner::attestation_cleanup;

use super::super::reach::read_cluster;
use super::{SenderClients, ask_attack};
use crate::client::open_client;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{caller, output};

/// The field manager of the objects.
const MANAGER: &str = "tenure-attest";
/// The timeouts for the controllers, and for the removal. A garbage collector looks for new kinds every half minute.
const PATIENCE: Duration = Duration::from_secs(60);
const GOING: Duration = Duration::from_secs(60);
/// The timeout for the preconditions of some attacks.
pub(super) const SETTING: Duration = Duration::from_secs(10);
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// The number of Tenants of earlier attestations that are examined.
const MOST_REMAINS: u32 = 500;
/// The lifetime of a token.
const TOKEN_SECONDS: u32 = 3600;

/// The objects and their creator.
pub(super) struct Fixtures {
    config: kube::Config,
    client: kube::Client,
    tenants: Api<Tenant>,
    names: Names,
}

impl Fixtures {
    /// Chooses the names, without creating anything.
    pub(super) fn name(config: kube::Config, client: kube::Client, expires_after: u32) -> Self {
        // The random keys of the standard library.
        let chance = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let now = Timestamp::now();
        let end = now.checked_add(SignedDuration::from_secs(i64::from(expires_after)));
        Self {
            config,
            tenants: Api::all(client.clone()),
            client,
            names: Names {
                suffix: format!("{:08x}", chance & 0xffff_ffff),
                platform: PLATFORM_NAMESPACE.to_owned(),
                tenant_uid: String::new(),
                neighbour_uid: String::new(),
                expires: end.unwrap_or(now).strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            },
        }
    }

    /// Creates the Tenants, waits until they are ready, and creates the rest.
    pub(super) async fn make(&self, progress: &Progress) -> Result<Names, Failure> {
        let mut uids = Vec::new();
        for tenant in self.names.write_tenants() {
            let tenant: Tenant =
                serde_json::from_value(tenant).map_err(|error| Failure::internal(error.to_string()))?;
            let parameters = PostParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PostParams::default()
            };
            let made = self.tenants.create(&parameters, &tenant).await?;
            uids.push(made.metadata.uid.unwrap_or_default());
            output::print_note(format!(
                "created Tenant {}, which expires at {}",
                made.metadata.name.unwrap_or_default(),
                self.names.expires
            ));
        }
        let [tenant_uid, neighbour_uid]: [String; 2] = uids
            .try_into()
            .map_err(|_| Failure::internal("there are two Tenants"))?;
        let names = Names {
            tenant_uid,
            neighbour_uid,
            ..self.names.clone()
        };
        for tenant in [names.tenant(), names.neighbour()] {
            let _waiting = progress.wait(format!("Tenant/{tenant} to be ready"));
            self.wait_for_tenant(&tenant).await?;
        }
        progress.print_action("creating the targets of the attacks");
        for (path, object) in list_fixtures(&names) {
            self.create(&path, &object).await?;
        }
        for (path, object) in list_attack_targets(&names) {
            self.create_prop(&path, &object).await;
        }
        self.lay_out(&list_managed_attack_targets(&names)).await;
        Ok(names)
    }

    /// Computes the tenant's reach from all rights of the cluster, while all objects exist.
    pub(super) async fn judge_reach(&self, names: &Names) -> Result<AttackResult, Failure> {
        let (objects, coverage) = read_cluster(&self.client).await?;
        let cluster = Cluster::read(&objects, &coverage);
        let beyond = list_beyond(&cluster, &names.tenant()).map_err(Failure::environment)?;
        let beyond: Vec<String> = beyond.iter().map(ToString::to_string).collect();
        let unread: Vec<String> = coverage.unread.into_iter().collect();
        Ok(assess_reach(&beyond, &unread))
    }

    /// Requests the platform's credential for a namespace that the owner created, and judges the controllers' answer. The burst on the quota created such namespaces.
    pub(super) async fn judge_pattern(&self, names: &Names) -> Result<AttackResult, Failure> {
        let Some(namespace) = self.wait_for_own_namespace(&names.tenant()).await? else {
            let why = "no namespace that the owner made is recorded in its Tenant's status";
            return Ok(assess_pattern(Err(why)));
        };
        let user = caller::ask_who(&self.client).await?;
        for (path, object) in list_pattern_attack_targets(names, &namespace, &user) {
            if let Err(failure) = self.create(&path, &object).await {
                let why = format!("the attestation's objects can't be created: {}", failure.message);
                return Ok(assess_pattern(Err(&why)));
            }
        }
        match self.wait_for_access(names).await? {
            Some(status) => Ok(assess_pattern(Ok(&status.problems))),
            None => {
                let waited = SETTING.as_secs();
                let why = format!(
                    "waited {waited} s: no controller reconciles AccessProviders here, so nothing is delivered"
                );
                Ok(assess_pattern(Err(&why)))
            }
        }
    }

    /// Waits for a namespace besides the home that the Tenant has recorded. The controllers record it a moment after its creation.
    async fn wait_for_own_namespace(&self, home: &str) -> Result<Option<String>, Failure> {
        let deadline = Instant::now() + SETTING;
        loop {
            let spaces = self.tenants.get(home).await?.status.unwrap_or_default().spaces;
            let found = spaces.into_iter().find(|space| space.name != home);
            if found.is_some() || Instant::now() >= deadline {
                return Ok(found.map(|space| space.name));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn wait_for_access(&self, names: &Names) -> Result<Option<FluxAccessStatus>, Failure> {
        let deadline = Instant::now() + SETTING;
        while Instant::now() < deadline {
            let request = http::Request::get(find_pattern_status(names))
                .body(Vec::new())
                .map_err(|error| Failure::internal(error.to_string()))?;
            let mut found: Value = self.client.request(request).await?;
            let status = found.get_mut("status").map(Value::take).unwrap_or_default();
            let status: Option<FluxAccessStatus> =
                serde_json::from_value(status).map_err(|error| Failure::internal(error.to_string()))?;
            if let Some(status) = status.filter(|status| status.observed_generation.is_some()) {
                return Ok(Some(status));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(None)
    }

    async fn create(&self, path: &str, object: &Value) -> Result<(), Failure> {
        let request = http::Request::post(format!("{path}?fieldManager={MANAGER}"))
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .map_err(|error| Failure::internal(error.to_string()))?;
        self.client.request::<Value>(request).await?;
        Ok(())
    }

    /// Creates a Pod, which needs the account `default` of its namespace, made by a controller. If no controller makes the account, attacks on the Pod are reported as
    /// untried.
    async fn create_prop(&self, path: &str, object: &Value) {
        let deadline = Instant::now() + SETTING;
        while let Err(failure) = self.create(path, object).await {
            if Instant::now() >= deadline {
                output::print_note(format!(
                    "the objects of some attacks can't be created: {}",
                    failure.message
                ));
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Creates the objects that Git seems to have applied. After a failed step, the later steps are skipped, and the attacks on them are reported as untried.
    async fn lay_out(&self, steps: &[AttackRequest]) {
        let cast = SenderClients::from([(Sender::Administrator, self.client.clone())]);
        let deadline = Instant::now() + SETTING;
        for step in steps {
            loop {
                let laid = ask_attack(&cast, step, 0, |_| true).await;
                if laid.is_done() {
                    break;
                }
                if Instant::now() >= deadline {
                    output::print_note(format!(
                        "the objects of some attacks can't be created: {}",
                        laid.message
                    ));
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn wait_for_tenant(&self, name: &str) -> Result<(), Failure> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), name);
        let account = format!("{name}-gitops");
        wait_until_found(PATIENCE, async || {
            let tenant = self.tenants.get(name).await?;
            let status = tenant.status.unwrap_or_default();
            let ready = status.conditions.iter().find(|condition| condition.type_ == READY);
            if !ready.is_some_and(|ready| ready.status == ConditionStatus::True) {
                let why = ready.map_or("no condition is reported yet", |ready| ready.message.as_str());
                return Ok(Some(format!("Tenant {name} is not ready: {why}")));
            }
            if !status.spaces.iter().any(|space| space.name == name) {
                return Ok(Some(format!("namespace {name} is not recorded as its")));
            }
            let missing = accounts.get_opt(&account).await?.is_none();
            Ok(missing.then(|| format!("there is no ServiceAccount {name}/{account}")))
        })
        .await
    }

    /// Makes the actors, each with a token of its own, or by impersonation without one. Waits until their rights have reached the API server.
    pub(super) async fn cast(&self, names: &Names, attacks: &[Attack]) -> Result<SenderClients, Failure> {
        let mut cast = SenderClients::new();
        cast.insert(Sender::Administrator, self.client.clone());
        let home = names.tenant();
        let platform = names.platform.as_str();
        let owner = self.speak(platform, &names.owner()).await?;
        let other = self.speak(platform, &names.other_owner()).await?;
        let account = self.speak(&home, &names.account()).await?;
        let author = self.speak(platform, &names.author()).await?;
        let mut as_account = owner.clone();
        as_account.auth_info.impersonate = Some(names.user(&home, &names.account()));
        let mut as_master = owner.clone();
        as_master.auth_info.impersonate = Some(names.user(platform, &names.owner()));
        as_master.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
        let mut controller = self.config.clone();
        controller.auth_info.impersonate = Some(names.user(CONTROLLER.0, CONTROLLER.1));
        let mut tenure = self.config.clone();
        tenure.auth_info.impersonate = Some(names.user(platform, CONTROLLER_SERVICE_ACCOUNT));
        let mut lane = self.config.clone();
        lane.auth_info.impersonate = Some(names.user(platform, &names.lane()));
        for (who, config) in [
            (Sender::Tenure, tenure),
            (Sender::Lane, lane),
            (Sender::Controller, controller),
            (Sender::Owner, owner),
            (Sender::Neighbour, other),
            (Sender::Account, account),
            (Sender::Author, author),
            (Sender::OwnerAsAccount, as_account),
            (Sender::OwnerAsMaster, as_master),
        ] {
            cast.insert(who, open_client(config)?);
        }
        for way in ImpersonationRight::ALL {
            let config = self.speak(platform, &names.approver(way)).await?;
            cast.insert(Sender::Approver(way), open_client(config)?);
        }
        // Waits until each actor's allowed action succeeds, by rights that the controllers or this attestation bound. The time is one for all: where something denies
        // several of them for good, the attestation doesn't wait for each in turn.
        let deadline = Instant::now() + PATIENCE;
        let approvers = ImpersonationRight::ALL.map(|way| (Sender::Approver(way), Verb::Create));
        let others = [
            (Sender::Owner, Verb::Read),
            (Sender::Neighbour, Verb::Read),
            (Sender::Neighbour, Verb::Create),
            (Sender::Account, Verb::Read),
            (Sender::Author, Verb::Read),
            (Sender::Author, Verb::Create),
            (Sender::Owner, Verb::Change),
            (Sender::Controller, Verb::Create),
            (Sender::Lane, Verb::Create),
        ];
        for (who, verb) in others.into_iter().chain(approvers) {
            let mut controls = attacks.iter().map(|attack| &attack.control);
            let Some(control) = controls.find(|control| control.who == who && control.verb == verb) else {
                continue;
            };
            while ask_attack(&cast, control, 0, |_| true).await.code == 403 && Instant::now() < deadline {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(cast)
    }

    async fn speak(&self, namespace: &str, name: &str) -> Result<kube::Config, Failure> {
        let mut config = self.config.clone();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let internal = |error: serde_json::Error| Failure::internal(error.to_string());
        let request =
            serde_json::from_value(json!({"spec": {"expirationSeconds": TOKEN_SECONDS}})).map_err(internal)?;
        let issued = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await;
        match issued.ok().and_then(|issued| issued.status) {
            Some(status) => {
                config.auth_info = serde_json::from_value(json!({"token": status.token})).map_err(internal)?;
            }
            None => config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{name}")),
        }
        Ok(config)
    }

    /// Removes all created objects, and waits until they are gone.
    pub(super) async fn remove(&self) -> Result<(), Failure> {
        let names = [self.names.tenant(), self.names.neighbour()];
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let of_both = ListParams::default().labels(&format!("{TENANT_LABEL} in ({})", names.join(",")));
        wait_until_found(GOING, async || {
            let mut left = Vec::new();
            for name in &names {
                match self.tenants.get_opt(name).await? {
                    Some(tenant) if tenant.metadata.deletion_timestamp.is_none() => {
                        end_tenant(&self.tenants, &tenant).await?;
                        left.push(format!("Tenant {name}"));
                    }
                    Some(_) => left.push(format!("Tenant {name}")),
                    None => {}
                }
            }
            // The last namespaces may be unrecorded, and no controller deletes an unrecorded namespace. The names belong to this attestation.
            let are_tenants_gone = left.is_empty();
            for namespace in namespaces.list(&of_both).await? {
                let name = namespace.metadata.name.unwrap_or_default();
                if are_tenants_gone && namespace.metadata.deletion_timestamp.is_none() {
                    let exactly = DeleteParams {
                        preconditions: Some(Preconditions {
                            uid: namespace.metadata.uid,
                            resource_version: None,
                        }),
                        ..DeleteParams::default()
                    };
                    match namespaces.delete(&name, &exactly).await {
                        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                        deleted => drop(deleted?),
                    }
                }
                left.push(format!("namespace {name}"));
            }
            Ok((!left.is_empty()).then(|| format!("{} is still there", left.join(", "))))
        })
        .await
    }
}

/// Removes expired Tenants of earlier attestations.
pub(super) async fn sweep_left_over(client: &kube::Client) -> Result<(), Failure> {
    let tenants: Api<Tenant> = Api::all(client.clone());
    let made = ListParams::default()
        .labels(&format!("{ATTEST_LABEL}=true"))
        .limit(MOST_REMAINS);
    let now = Timestamp::now();
    for tenant in tenants.list(&made).await? {
        let is_over = attestation_cleanup::find_end(&tenant.metadata).is_some_and(|end| end <= now);
        if !is_over || tenant.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let name = tenant.metadata.name.clone().unwrap_or_default();
        output::print_note(format!("Tenant {name} is left of an earlier attestation, and ends"));
        end_tenant(&tenants, &tenant).await?;
        // The first step only removed the Tenant's protection from deletion.
        if tenant.spec.prevent_deletion.unwrap_or_default()
            && let Some(tenant) = tenants.get_opt(&name).await?
        {
            end_tenant(&tenants, &tenant).await?;
        }
    }
    Ok(())
}

/// Executes the next step of a Tenant's removal.
async fn end_tenant(tenants: &Api<Tenant>, tenant: &Tenant) -> Result<(), kube::Error> {
    let name = tenant.metadata.name.as_deref().unwrap_or_default();
    let done = match attestation_cleanup::end_tenant(tenant) {
        Request::Apply(apply) => {
            let parameters = PatchParams::apply(&apply.manager).force();
            tenants
                .patch(name, &parameters, &Patch::Apply(&apply.object.0))
                .await
                .map(drop)
        }
        Request::Delete(delete) => {
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: delete.uid,
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            tenants.delete(name, &parameters).await.map(drop)
        }
        _ => Ok(()),
    };
    match done {
        // Another process was faster.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}

/// Waits until nothing is missing.
async fn wait_until_found(
    patience: Duration,
    find_missing: impl AsyncFn() -> Result<Option<String>, kube::Error>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + patience;
    while let Some(missing) = find_missing().await? {
        if Instant::now() >= deadline {
            return Err(
                Failure::environment(format!("waited {} s: {missing}", patience.as_secs())).hint(
                    "are the controllers running, and do they reconcile Tenants? The created objects are removed once they do",
                ),
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
