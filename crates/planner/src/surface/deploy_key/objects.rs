//! The objects of a deploy key: the Secret in the form that Flux's sources read, and the Role and RoleBinding with which one account may read this Secret. All three
//! have one name. The Surface owns them, so that they are deleted with it.

use serde_json::{Value, json};
use tenure_api::metadata::{
    CREDENTIAL_DEPLOY_KEY, CREDENTIAL_LABEL, KNOWN_HOSTS_ENTRY, MANAGED_BY, MANAGED_BY_TENURE, SURFACE_LABEL,
    SURFACE_SOURCE_LABEL,
};
use tenure_api::{ObjectId, ObjectView, Surface};
use tenure_tenancy::ServiceAccount;

use super::super::children::name_repository;
use crate::dependents::{Verdict, Wanted, is_owned_by};
use crate::plan::{Delete, Propagation, Request, Watched};

use super::Work;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The kind of one of a deploy key's three objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectType {
    Secret,
    Role,
    RoleBinding,
}

impl ObjectType {
    fn kind(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::Secret => "",
            Self::Role | Self::RoleBinding => RBAC,
        }
    }
}

/// Returns the name of the Secret for a source's key, from the name of its Surface.
#[must_use]
pub fn name_key(surface: &str, source: &str) -> String {
    format!("{}-deploy-key", name_repository(surface, source))
}

/// Checks whether an object was written for a key of this Surface: by its ownerReference with the Surface's uid, and by its labels. If the labels were removed,
/// `managedFields` tell.
#[must_use]
pub fn is_ours(object: &Value, surface: &Surface) -> bool {
    let view = ObjectView::new(object);
    let is_labelled = view.find_label(CREDENTIAL_LABEL) == Some(CREDENTIAL_DEPLOY_KEY)
        && view.find_label(SURFACE_LABEL) == surface.metadata.name.as_deref();
    is_owned_by(object, "Surface", &surface.metadata) && (is_labelled || view.is_written_by_tenure())
}

/// Checks whether an object has every label of the objects for a source's key.
#[must_use]
pub fn is_labelled(object: &Value, surface: &Surface, source: &str) -> bool {
    let view = ObjectView::new(object);
    let wanted = write_labels(surface, source);
    let mut wanted = wanted.as_object().into_iter().flatten();
    wanted.all(|(label, value)| view.find_label(label) == value.as_str())
}

fn write_labels(surface: &Surface, source: &str) -> Value {
    json!({
        CREDENTIAL_LABEL: CREDENTIAL_DEPLOY_KEY,
        SURFACE_LABEL: surface.metadata.name,
        SURFACE_SOURCE_LABEL: source,
        MANAGED_BY: MANAGED_BY_TENURE,
    })
}

fn make_id(surface: &Surface, source: &str, sort: ObjectType) -> ObjectId {
    ObjectId {
        namespace: surface.metadata.namespace.clone().unwrap_or_default(),
        name: name_key(surface.metadata.name.as_deref().unwrap_or_default(), source),
        group: sort.group().to_owned(),
        kind: sort.kind().to_owned(),
    }
}

pub(super) fn make_target(surface: &Surface, source: &str, sort: ObjectType) -> Watched {
    Watched {
        id: make_id(surface, source, sort),
        version: "v1".to_owned(),
    }
}

fn write_metadata(surface: &Surface, source: &str) -> Value {
    let id = make_id(surface, source, ObjectType::Secret);
    json!({
        "name": id.name,
        "namespace": id.namespace,
        "labels": write_labels(surface, source),
        "ownerReferences": [{
            "apiVersion": "tenure.dev/v1alpha1",
            "kind": "Surface",
            "name": surface.metadata.name,
            "uid": surface.metadata.uid,
            "controller": true,
        }],
    })
}

/// Writes the Secret, without the pair.
pub(super) fn write_secret(surface: &Surface, source: &str, hosts: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": write_metadata(surface, source),
        "stringData": { KNOWN_HOSTS_ENTRY: hosts },
    })
}

/// Writes the comment behind the public half: a reader of a repository's list of keys has to know the owner of each.
pub(super) fn write_comment(surface: &Surface, source: &str) -> String {
    let namespace = surface.metadata.namespace.as_deref().unwrap_or_default();
    let name = surface.metadata.name.as_deref().unwrap_or_default();
    format!("tenure:{namespace}/{}", name_repository(name, source))
}

/// Writes the patch of the host keys and the labels.
pub(super) fn write_patch(
    surface: &Surface,
    source: &str,
    (uid, resource_version): (&str, &str),
    hosts: &str,
) -> Value {
    json!({
        "metadata": { "uid": uid, "resourceVersion": resource_version, "labels": write_labels(surface, source) },
        "stringData": { KNOWN_HOSTS_ENTRY: hosts },
    })
}

/// Writes the Role and the RoleBinding: nothing but `get` of this one Secret, and for this one account.
pub(super) fn write_access(surface: &Surface, source: &str, reader: &ServiceAccount) -> [Wanted; 2] {
    let metadata = write_metadata(surface, source);
    let name = make_id(surface, source, ObjectType::Secret).name;
    let wanted = |sort: ObjectType, object: Value| Wanted {
        id: make_id(surface, source, sort),
        version: "v1",
        object,
    };
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata,
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"] }],
    });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": reader.name(), "namespace": reader.namespace() }],
    });
    [wanted(ObjectType::Role, role), wanted(ObjectType::RoleBinding, binding)]
}

/// Judges an existing Role or RoleBinding. An object that is being deleted still gives rights, so it is corrected, too, and re-created after it is gone.
pub(super) fn judge_access(live: &Value, wanted: &Wanted, surface: &Surface, source: &str) -> Verdict {
    let same = |field: &str| live.get(field) == wanted.object.get(field);
    if !is_ours(live, surface) {
        Verdict::Foreign("was not made for this source's deploy key: rename the source, or delete it")
    } else if wanted.id.kind == "RoleBinding" && !same("roleRef") {
        Verdict::Foreign("binds another role: delete it, so that the right one can be made")
    } else if same("rules") && same("subjects") && is_labelled(live, surface, source) {
        Verdict::AsWanted
    } else {
        Verdict::Differs
    }
}

/// Returns the deletion of one of the three objects.
pub(super) fn write_end(surface: &Surface, source: &str, sort: ObjectType, uid: &str) -> Work {
    Work::Request(Request::Delete(Delete {
        target: make_target(surface, source, sort),
        uid: Some(uid.to_owned()),
        resource_version: None,
        propagation: Propagation::Background,
        why: "the source has no deploy key any more".to_owned(),
    }))
}
