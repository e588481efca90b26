//! Sends each object of a folder to the API server as the account that would apply it. The module decides the order and the concurrency; `tenure_inspection::check`
//! interprets the answers.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use http::Request;
use kube::api::Api;
use kustomize::BuiltResource;
use serde_json::{Value, json};
use tenure_api::metadata::KUSTOMIZE_CONTROLLER;
use tenure_api::{ObjectId, ObjectView};
use tenure_cluster::{Applied, ApplyOptions, Client, ClientPool, ClusterError, Connection, LaneAccess, Resource};
use tenure_inspection::check::{
    CheckedObject, Finding, Prerequisites, Rights, Verdict, check_placement, interpret_refusal, make_encrypted_finding,
    make_warning_finding,
};
use tenure_planner::Origin;
use tenure_planner::refusal::Failure as Refused;
use tenure_tenancy::placement::TenantPlacement;
use tenure_tenancy::write_scope::{Scope, claim_namespace, find_new_namespace};
use tenure_tenancy::{Identity, identity};
use tokio::time::error::Elapsed;

use super::ApplyingAccount;
use crate::client::open_client;
use crate::failure::{Failure, write_chain};

/// The number of concurrent dry runs.
const AT_ONCE: usize = 8;
/// The timeout for one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest number of reported warnings for one object.
const MOST_WARNINGS: usize = 10;
/// The field that SOPS writes into an encrypted file.
const ENCRYPTED: &str = "sops";
const RIGHTS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The configuration of the account that would apply the objects, and the client of the user who runs the check.
pub(super) struct DryRunClients {
    /// The configuration of the account.
    config: kube::Config,
    /// The client of the user who runs the check.
    own: kube::Client,
    dry_run: bool,
}

impl DryRunClients {
    /// Returns the clients for a real cluster, where all writes are dry runs.
    pub(super) fn dry(config: kube::Config, own: kube::Client) -> Self {
        Self {
            config,
            own,
            dry_run: true,
        }
    }

    /// Returns the clients for a temporary control plane, where writes are real.
    pub(super) fn wet(config: kube::Config, own: kube::Client) -> Self {
        Self {
            config,
            own,
            dry_run: false,
        }
    }
}

/// Sends each object as the account that would apply it, and asks for the account's rights after a refusal.
struct ObjectChecker<'a> {
    client: Client,
    /// The same account's client for questions about its rights.
    rights: kube::Client,
    identity: Identity,
    whom: &'a ApplyingAccount,
    awaited: Prerequisites,
    dry_run: bool,
}

/// The result of the check of one object: findings, or the reason why the check has no answer.
enum Answer {
    Found(Vec<Finding>),
    Unanswered(String),
}

/// Checks all objects. Returns the findings, in the order of the objects, and the objects without an answer.
pub(super) async fn check_objects(
    objects: &[BuiltResource],
    whom: &ApplyingAccount,
    clients: &DryRunClients,
) -> Result<(Vec<Finding>, Vec<String>), Failure> {
    let awaited = Prerequisites::collect_from(objects.iter().map(|built| &built.object));
    let missing = find_missing(&clients.own, awaited.namespaces()).await?;
    let connection = Connection::of_account(clients.config.clone(), whom.account.clone())
        .map_err(|error| Failure::usage(format!("the cluster can't be reached: {}", write_chain(&error))))?;
    let account_clients = ClientPool::new(connection);
    let lane = LaneAccess {
        account: identity::decide_for_lane(&whom.placement, whom.account.namespace()),
        turns: account_clients.turns().of_lane(),
    };
    let client = account_clients.for_account(&whom.account, &lane).await;
    let asker = ObjectChecker {
        client: client.map_err(|error| Failure::environment(write_chain(&error)))?,
        rights: open_client(clients.config.clone())?,
        identity: whom.account.clone().into(),
        whom,
        awaited: awaited.keep_missing(&missing),
        dry_run: clients.dry_run,
    };
    // Real writes depend on earlier writes, so they run one after the other.
    let at_once = if clients.dry_run { AT_ONCE } else { 1 };
    let mut answers = futures::stream::iter(objects.iter().map(|built| asker.ask(built))).buffered(at_once);
    let (mut findings, mut unanswered) = (Vec::new(), Vec::new());
    while let Some(answer) = answers.next().await {
        match answer {
            Answer::Found(more) => findings.extend(more),
            Answer::Unanswered(why) => unanswered.push(why),
        }
    }
    Ok((findings, unanswered))
}

/// Returns the namespaces that don't exist; a namespace that the user may not read counts as missing.
async fn find_missing(client: &kube::Client, names: &BTreeSet<String>) -> Result<BTreeSet<String>, Failure> {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let reads = names.iter().map(|name| {
        let namespaces = namespaces.clone();
        async move {
            match namespaces.get_opt(name).await {
                Ok(Some(_)) => Ok(None),
                Ok(None) => Ok(Some(name.clone())),
                Err(kube::Error::Api(status)) if status.code == 403 => Ok(Some(name.clone())),
                Err(error) => Err(Failure::from(error)),
            }
        }
    });
    let mut reads = futures::stream::iter(reads).buffered(AT_ONCE);
    let mut missing = BTreeSet::new();
    while let Some(read) = reads.next().await {
        missing.extend(read?);
    }
    Ok(missing)
}

impl ObjectChecker<'_> {
    async fn ask(&self, built: &BuiltResource) -> Answer {
        let locate = |pointer: &str| find_origin(built, pointer);
        let mut object = built.object.clone();
        let is_encrypted = open_object(&mut object);
        let mut id = match ObjectId::from_object(&object) {
            Ok(id) => id,
            Err(error) => return self.refuse_name(built, &error.to_string()),
        };
        let resource = self.client.resource_of(&object).await;
        if let Ok(resource) = &resource
            && resource.namespaced
            && id.namespace.is_empty()
            && let Some(namespace) = &self.whom.default_namespace
        {
            id.namespace.clone_from(namespace);
            set_namespace(&mut object, namespace);
        }
        let full_name = resource.as_ref().map(name_resource).unwrap_or_default();
        let subject = CheckedObject {
            id: &id,
            resource: &full_name,
            identity: &self.identity,
            object: &object,
            is_confidential: built.is_confidential() || is_encrypted,
            locate: &locate,
        };
        if let Some(note) = self.awaited.find_missing(&id, resource.is_ok(), locate("")) {
            return Answer::Found(vec![note]);
        }
        let resource = match resource {
            Ok(resource) => resource,
            Err(error) => return make_answer(interpret_refusal(&subject, Refused::from(&error), &Rights::Unknown)),
        };
        let scope = match resource.namespaced {
            true => Scope::Namespaced,
            false => Scope::Cluster,
        };
        if let Some(tenant) = find_new_namespace(&self.whom.placement, scope, &id) {
            return self.try_namespace(&subject, &resource, tenant).await;
        }
        if let Some(finding) = check_placement(&subject, &self.whom.placement, scope) {
            return Answer::Found(vec![finding]);
        }
        let mut found = self.apply(&subject, &resource).await;
        if let (Answer::Found(findings), true) = (&mut found, is_encrypted) {
            findings.push(make_encrypted_finding(&subject));
        }
        found
    }

    /// Refuses an object without a valid name, which can't be sent.
    fn refuse_name(&self, built: &BuiltResource, why: &str) -> Answer {
        let id = ObjectId {
            namespace: String::new(),
            name: ObjectView::new(&built.object).read_text("/metadata/name").to_owned(),
            group: String::new(),
            kind: ObjectView::new(&built.object).read_text("/kind").to_owned(),
        };
        let subject = CheckedObject {
            id: &id,
            resource: "",
            identity: &self.identity,
            object: &built.object,
            is_confidential: false,
            locate: &|pointer| find_origin(built, pointer),
        };
        let failure = Refused {
            reason: tenure_planner::refusal::Reason::BadObject,
            message: why.to_owned(),
            ..Refused::default()
        };
        make_answer(interpret_refusal(&subject, failure, &Rights::Unknown))
    }

    /// Tries to create a namespace that the tenant doesn't have, as a reconciliation does before everything else.
    async fn try_namespace(
        &self,
        subject: &CheckedObject<'_>,
        resource: &Resource,
        tenant: &TenantPlacement,
    ) -> Answer {
        let mut object = subject.object.clone();
        claim_namespace(&mut object, tenant);
        let tried = tokio::time::timeout(PATIENCE, self.client.try_creation(&object, KUSTOMIZE_CONTROLLER)).await;
        let refused = match read_answer(tried) {
            Ok(warnings) => return note_warnings(subject, &warnings),
            Err(refused) => refused,
        };
        let rights = match refused.code {
            403 => match self.has_right("create", subject.id, resource).await {
                Some(true) => Rights::Held,
                Some(false) => Rights::Lacking(vec!["create"]),
                None => Rights::Unknown,
            },
            _ => Rights::Held,
        };
        make_answer(interpret_refusal(subject, refused, &rights))
    }

    /// Applies first without force, to report other managers' fields, and then with force, as a reconciliation does.
    async fn apply(&self, subject: &CheckedObject<'_>, resource: &Resource) -> Answer {
        let mut findings = match self.send(subject.object, false).await {
            Ok(warnings) => return note_warnings(subject, &warnings),
            Err(refused @ Refused { code: 409, .. }) => match interpret_refusal(subject, refused, &Rights::Held) {
                Verdict::Findings(findings) => findings,
                Verdict::Unanswered(why) => return Answer::Unanswered(why),
            },
            Err(refused) => return self.judge(subject, resource, refused).await,
        };
        match self.send(subject.object, true).await {
            Ok(_) | Err(Refused { code: 409, .. }) => {}
            Err(refused) => match self.judge(subject, resource, refused).await {
                Answer::Found(more) => findings.extend(more),
                unanswered @ Answer::Unanswered(_) => return unanswered,
            },
        }
        Answer::Found(findings)
    }

    async fn send(&self, object: &Value, force: bool) -> Result<Vec<String>, Refused> {
        let options = ApplyOptions {
            manager: KUSTOMIZE_CONTROLLER,
            force,
            dry_run: self.dry_run,
            subresource: None,
        };
        read_answer(tokio::time::timeout(PATIENCE, self.client.apply(object, &options)).await)
    }

    async fn judge(&self, subject: &CheckedObject<'_>, resource: &Resource, refused: Refused) -> Answer {
        let rights = match refused.code {
            403 => self.ask_rights(subject.id, resource).await,
            _ => Rights::Held,
        };
        make_answer(interpret_refusal(subject, refused, &rights))
    }

    /// Returns the rights for an apply that the account lacks. The right to create counts only for a missing object.
    async fn ask_rights(&self, id: &ObjectId, resource: &Resource) -> Rights {
        let mut lacking = Vec::new();
        for verb in ["patch", "create"] {
            match self.has_right(verb, id, resource).await {
                Some(true) => {}
                Some(false) => lacking.push(verb),
                None => return Rights::Unknown,
            }
        }
        if lacking == ["create"] {
            let found = self.client.find(resource, &id.namespace, &id.name).await;
            if matches!(found, Ok(Some(_))) {
                return Rights::Held;
            }
            // If the account may not read the object, the review of the right decides.
            if !matches!(found, Ok(None) | Err(ClusterError::Forbidden { .. })) {
                return Rights::Unknown;
            }
        }
        match lacking.is_empty() {
            true => Rights::Held,
            false => Rights::Lacking(lacking),
        }
    }

    async fn has_right(&self, verb: &str, id: &ObjectId, resource: &Resource) -> Option<bool> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb, "group": resource.group, "version": resource.version, "resource": resource.plural,
                "namespace": resource.scope(&id.namespace).unwrap_or_default(), "name": id.name,
            } }
        });
        let request = Request::post(RIGHTS).header("content-type", "application/json");
        let request = request.body(review.to_string().into_bytes()).ok()?;
        let asked = tokio::time::timeout(PATIENCE, self.rights.request::<Value>(request)).await;
        let reviewed = asked.ok()?.ok()?;
        Some(ObjectView::new(&reviewed).is_true("/status/allowed"))
    }
}

/// Returns the warnings of an accepted request, or the refusal.
fn read_answer(answer: Result<Result<Applied, ClusterError>, Elapsed>) -> Result<Vec<String>, Refused> {
    match answer {
        Ok(Ok(applied)) => Ok(applied.warnings),
        Ok(Err(error)) => Err(Refused::from(&error)),
        Err(_) => Err(Refused {
            message: format!("there was no answer within {} s", PATIENCE.as_secs()),
            reason: tenure_planner::refusal::Reason::Unanswered,
            ..Refused::default()
        }),
    }
}

fn note_warnings(subject: &CheckedObject<'_>, warnings: &[String]) -> Answer {
    let notes = warnings.iter().take(MOST_WARNINGS);
    let notes = notes.filter_map(|warning| make_warning_finding(subject, warning));
    Answer::Found(notes.collect())
}

fn make_answer(judgement: Verdict) -> Answer {
    match judgement {
        Verdict::Findings(findings) => Answer::Found(findings),
        Verdict::Unanswered(why) => Answer::Unanswered(why),
    }
}

fn name_resource(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => resource.plural.clone(),
        group => format!("{}.{group}", resource.plural),
    }
}

fn find_origin(built: &BuiltResource, pointer: &str) -> Option<Origin> {
    let location = built.locate(pointer).or_else(|| Some(built.origin.location.clone()))?;
    Some(Origin {
        path: location.path,
        line: location.line,
    })
}

fn set_namespace(object: &mut Value, namespace: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
}

/// Removes the fields that SOPS has encrypted, and its metadata. Returns whether the object was encrypted.
pub(super) fn open_object(object: &mut Value) -> bool {
    let Some(fields) = object.as_object_mut() else {
        return false;
    };
    let is_encrypted = fields.get(ENCRYPTED).is_some_and(Value::is_object);
    if is_encrypted {
        for field in [ENCRYPTED, "data", "stringData"] {
            fields.remove(field);
        }
    }
    is_encrypted
}
