//! The rule for hand edits of fields that Git manages.
//!
//! A field is Git's if the object's owner applied it, as the object's managedFields show under Flux's manager. The owner is the
//! Kustomization that the object's labels name and that has the object in its inventory. Any writer can choose the name of its manager, so
//! it proves nothing. Messages therefore name the owner only to users that may know it ([`owner::decide_precedence`]).
//!
//! The check reads no more than it needs: an object without an owner, a change of no field of Git, and the applying account are allowed at
//! once. Subresources (`scale`, `status`), finalizers, ownerReferences and deletions are free.

pub(super) mod difference;

use serde_json::Value;
use structured_merge::{Managed, Operation as FieldOperation};
use tenure_api::metadata::{
    HAND_EDITS, HAND_EDITS_REFUSE, HAND_EDITS_REVERT, KUSTOMIZE_CONTROLLER, OTHER_WRITERS, SURFACE_LABEL,
};
use tenure_api::source_url::SourceUrl;
use tenure_api::{ObjectId, ObjectView};

use super::kubernetes::{self, is_api_server_or_tenure};
use super::request::SERVICE_ACCOUNT_PREFIX;
use super::{Case, Findings, Operation, Refusal, Rule, account};
use tenure_tenancy::flux_account::{ActingKind, name_account};
use tenure_tenancy::owner::{self, Precedence};
use tenure_tenancy::placement::Placement;
use tenure_tenancy::{identity, inventory};

/// The greatest length of an object's text in a message.
const LONGEST_OBJECT_TEXT: usize = 256;

pub(super) fn check(case: Case<'_>, findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    if request.operation != Operation::Update || !request.resource.subresource.is_empty() {
        return Ok(());
    }
    let (Some(old), Some(new)) = (request.old_object, request.object) else {
        return Ok(());
    };
    // Read from the old object: a removal of the label at the same time hides nothing.
    let Some((namespace, name)) = owner::read_owner_labels(old) else {
        return Ok(());
    };
    if is_api_server_or_tenure(case) || is_usual_account(case, namespace) {
        return Ok(());
    }
    let Some(field) = find_changed(old, new) else {
        return Ok(());
    };
    let without_exempt = kubernetes::undo_exempt_changes(case, Rule::GitManaged, (old, new));
    let field = without_exempt.map_or(Some(field), |new| find_changed(old, &new));
    let Some(field) = field else { return Ok(()) };
    let Some(kustomization) = case.find("kustomize.toolkit.fluxcd.io", "kustomizations", namespace, name) else {
        return Ok(());
    };
    let kustomization = ObjectView::new(&kustomization);
    if !is_at_work(kustomization) || is_its_account(case, namespace, kustomization) {
        return Ok(());
    }
    let placement = case.facts.find_placement(namespace);
    let Ok(id) = ObjectId::from_object(old) else {
        return Ok(());
    };
    if !is_believed(&placement, kustomization, &id) {
        return Ok(());
    }
    let surface = find_surface(case, namespace, kustomization);
    let surface = surface.as_ref().map(|surface| ObjectView::new(surface));
    if surface.is_some_and(is_resting) {
        return Ok(());
    }
    let find_annotation = |annotation: &str| {
        let own = kustomization.find_annotation(annotation);
        own.or_else(|| surface.and_then(|surface| surface.find_annotation(annotation)))
    };
    let writers = find_annotation(OTHER_WRITERS).unwrap_or_default();
    if writers.split(',').any(|writer| writer.trim() == request.actor.user) {
        return Ok(());
    }
    let what = format!("{field} is managed by Git");
    let described = describe(case, (&placement, namespace, name), &id, kustomization);
    match find_annotation(HAND_EDITS) {
        Some(HAND_EDITS_REVERT) => Ok(()),
        Some(HAND_EDITS_REFUSE) => Err(Refusal {
            rule: Rule::GitManaged,
            why: format!("{what}{described}"),
            remedy: "change it in Git, or suspend the Kustomization or Surface first".to_owned(),
        }),
        _ => {
            findings.warnings.push(format!(
                "{what}{described}: it will be put back; change it there ({})",
                Rule::GitManaged
            ));
            Ok(())
        }
    }
}

/// Checks whether the user is the account with which Kustomizations of a tenant's namespace act, unless an administrator named another one. This
/// is checked first: this account writes most, and a Kustomization with a large inventory is expensive to read.
fn is_usual_account(case: Case<'_>, namespace: &str) -> bool {
    let named = case.request.actor.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
    let Some((of, account)) = named.and_then(|named| named.split_once(':')) else {
        return false;
    };
    let Some(tenant) = case.facts.tenant_of(namespace).filter(|_| of == namespace) else {
        return false;
    };
    let own = account::account_of(tenant);
    let own = own.as_ref().map(|(_, own)| own.as_str());
    let (settings, kind) = (case.facts.settings(), ActingKind::Kustomization);
    name_account(settings, kind, namespace, (tenant.home(), own)) == Some(account)
}

/// Returns the first changed field of Git, in the notation of a user.
fn find_changed(old: &Value, new: &Value) -> Option<String> {
    let managed = Managed::of_object(old).ok()?;
    let entries = managed.entries().into_iter();
    let mut own = entries.filter(|entry| {
        entry.manager == KUSTOMIZE_CONTROLLER
            && entry.operation == FieldOperation::Apply
            && entry.subresource.is_empty()
    });
    own.find_map(|entry| difference::find_first(&entry.fields, old, new, difference::MapOwnership::Whole))
        .map(|field| shorten_object_text(&field))
}

/// Checks whether the Kustomization applies now: in this cluster, and neither suspended nor being
/// deleted.
pub(super) fn is_at_work(kustomization: ObjectView<'_>) -> bool {
    !kustomization.is_true("/spec/suspend")
        && !kustomization.is_being_deleted()
        && !kustomization.has("/spec/kubeConfig")
}

/// Checks whether nothing of a Surface is applied any more: it is suspended, or being deleted with its
/// generated objects.
pub(super) fn is_resting(surface: ObjectView<'_>) -> bool {
    surface.is_true("/spec/suspend") || surface.is_being_deleted()
}

/// Checks whether the user of the request is the account with which the Kustomization applies.
fn is_its_account(case: Case<'_>, namespace: &str, kustomization: ObjectView<'_>) -> bool {
    let placement = case.facts.find_placement(namespace);
    let named = kustomization.find_text("/spec/serviceAccountName");
    let account = identity::decide_for_kustomization(&placement, namespace, named);
    account.is_ok_and(|account| account.to_string() == case.request.actor.user)
}

/// Checks whether the Kustomization's inventory has the object, and its namespace may write the object.
fn is_believed(placement: &Placement, kustomization: ObjectView<'_>, id: &ObjectId) -> bool {
    let wanted = id.to_string();
    let mut entries = kustomization.list_views("/status/inventory/entries");
    !matches!(placement, Placement::Disputed { .. })
        && inventory::check_entry(placement, id).is_ok()
        && entries.any(|entry| entry.find_text("/id") == Some(&wanted))
}

/// Returns the Surface that generated the Kustomization.
fn find_surface(case: Case<'_>, namespace: &str, kustomization: ObjectView<'_>) -> Option<std::sync::Arc<Value>> {
    let name = kustomization.find_label(SURFACE_LABEL)?;
    case.find("tenure.dev", "surfaces", namespace, name)
}

/// Describes where the object comes from, for users that may know it: repository, path and commit.
fn describe(
    case: Case<'_>,
    (placement, namespace, name): (&Placement, &str, &str),
    id: &ObjectId,
    kustomization: ObjectView<'_>,
) -> String {
    let here = case.facts.find_placement(&id.namespace);
    let is_shared = match (&here, placement) {
        // An object without a namespace is the platform's.
        _ if id.namespace.is_empty() => true,
        (Placement::Unclaimed { .. }, Placement::Platform { .. }) => true,
        _ => owner::decide_precedence((&here, &id.namespace), (placement, namespace)) == Precedence::OwnerByName,
    };
    if !is_shared {
        return ", in a repository of another owner".to_owned();
    }
    let mut text = format!(": Kustomization {namespace}/{name}");
    let kind = kustomization.read_text("/spec/sourceRef/kind");
    let plural = match kind {
        "GitRepository" => "gitrepositories",
        "OCIRepository" => "ocirepositories",
        "Bucket" => "buckets",
        _ => "externalartifacts",
    };
    let source_namespace = kustomization
        .find_text("/spec/sourceRef/namespace")
        .unwrap_or(namespace);
    let source_name = kustomization.read_text("/spec/sourceRef/name");
    // A source in another namespace is named and not read.
    let source = case.find("source.toolkit.fluxcd.io", plural, source_namespace, source_name);
    let source = source.filter(|_| source_namespace == namespace);
    let url = source
        .as_ref()
        .and_then(|source| ObjectView::new(source).find_text("/spec/url"));
    match url {
        Some(url) => text.push_str(&format!(", {}", shorten_object_text(&SourceUrl::new(url).shown()))),
        None => text.push_str(&format!(", {kind} {source_namespace}/{source_name}")),
    }
    let path = kustomization.find_text("/spec/path").unwrap_or("./");
    text.push_str(&format!(", path {}", shorten_object_text(path)));
    if let Some(revision) = kustomization.find_text("/status/lastAppliedRevision") {
        text.push_str(&format!(", {}", shorten_object_text(revision)));
    }
    text
}

/// Returns an object's text, shortened for a message.
pub(super) fn shorten_object_text(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_control())
        .take(LONGEST_OBJECT_TEXT)
        .collect()
}
