//! The account of a lane and its RoleBinding: the wanted objects, and the existing ones.

use serde_json::{Value, json};
use tenure_api::metadata::{LANE_BINDING, LANE_FINALIZER, LANE_LABEL, MANAGED_BY, MANAGED_BY_TENURE};
use tenure_api::{ObjectId, ObjectView};
use tenure_tenancy::lane::{Lane, decide_lane, decide_role};
use tenure_tenancy::{LaneAccount, identity};

use super::{NamespaceState, Release, Snapshot};
use crate::answer::Live;
use crate::dependents::{self, FinalizerRule, Verdict, Wanted};
use crate::plan::Request;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The Tenant that owns a lane's ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOwner {
    /// The name of the Tenant.
    pub name: String,
    /// The uid of the Tenant.
    pub uid: String,
}

/// The live object with the name of the lane's RoleBinding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExistingBinding {
    /// The object isn't known.
    Unknown,
    /// No object exists.
    Nothing,
    /// The wanted object exists.
    AsWanted,
    /// Something else.
    Another,
    /// Tenure's RoleBinding, which is being deleted although the namespace stays.
    Going,
}

/// The wanted ServiceAccount of a lane, and its wanted RoleBinding in one namespace.
pub(super) struct DesiredObjects {
    pub(super) lane: LaneAccount,
    pub(super) account: Wanted,
    pub(super) binding: Wanted,
    is_ending: bool,
    is_shared: bool,
}

impl DesiredObjects {
    pub(super) fn from_snapshot(snapshot: &Snapshot) -> Self {
        let lane = identity::decide_for_lane(&snapshot.placement, &snapshot.namespace);
        let whose = decide_lane(&snapshot.placement, &snapshot.namespace);
        let sort = whose.sort();
        let labels = json!({ LANE_LABEL: sort, MANAGED_BY: MANAGED_BY_TENURE });
        let mut account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": lane.name(), "namespace": lane.namespace(), "labels": labels },
            "automountServiceAccountToken": false,
        });
        if let (Some(owner), Some(metadata)) = (&snapshot.owner, account.pointer_mut("/metadata"))
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.insert(
                "ownerReferences".to_owned(),
                json!([{ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": owner.name, "uid": owner.uid }]),
            );
        }
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": {
                "name": LANE_BINDING, "namespace": snapshot.namespace, "labels": labels, "finalizers": [LANE_FINALIZER],
            },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": decide_role(&snapshot.namespace) },
            "subjects": [{ "kind": "ServiceAccount", "name": lane.name(), "namespace": lane.namespace() }],
        });
        Self {
            account: Wanted {
                id: account_id(&lane),
                version: "v1",
                object: account,
            },
            binding: Wanted {
                id: binding_id(&snapshot.namespace),
                version: "v1",
                object: binding,
            },
            lane,
            is_ending: snapshot.state == NamespaceState::Ending,
            is_shared: matches!(whose, Lane::Pool | Lane::Tenant(_)),
        }
    }

    /// Returns true for a lane whose namespaces are not all of the platform.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Compares the live object with the name of the RoleBinding with the wanted RoleBinding.
    pub(super) fn judge_binding(&self, snapshot: &Snapshot) -> ExistingBinding {
        match snapshot.live.get(&self.binding.id) {
            None | Some(Live::Failed(_)) => ExistingBinding::Unknown,
            Some(Live::Absent | Live::Unserved) => ExistingBinding::Nothing,
            Some(Live::Present(live)) => {
                let is_going = ObjectView::new(&live.0).is_being_deleted() && !self.is_ending;
                match self.judge_live(&live.0, &self.binding) {
                    Verdict::AsWanted if is_going => ExistingBinding::Going,
                    Verdict::AsWanted => ExistingBinding::AsWanted,
                    Verdict::Differs if is_going => ExistingBinding::Going,
                    Verdict::Differs | Verdict::Foreign(_) => ExistingBinding::Another,
                }
            }
        }
    }

    pub(super) fn judge_live(&self, live: &Value, object: &Wanted) -> Verdict {
        let view = ObjectView::new(live);
        let wanted = ObjectView::new(&object.object);
        let has_label = view.find_label(LANE_LABEL) == wanted.find_label(LANE_LABEL);
        if object.id == self.account.id {
            let owners = |object| ObjectView::new(object).list_views("/metadata/ownerReferences");
            let is_owner_there = owners(&object.object)
                .all(|owner| owners(live).any(|found| found.find_text("/uid") == owner.find_text("/uid")));
            return if has_label && is_owner_there {
                Verdict::AsWanted
            } else {
                Verdict::Differs
            };
        }
        if live.get("roleRef") != object.object.get("roleRef") {
            return Verdict::Foreign("binds another role: delete it, so that the lane's own can be made");
        }
        // An object that is being deleted can get no finalizer. It works without one until it is gone.
        let has_finalizer = view
            .list_texts("/metadata/finalizers")
            .any(|found| found == LANE_FINALIZER);
        let same = |path: &str| live.pointer(path) == object.object.pointer(path);
        if has_label && same("/subjects") && (has_finalizer || view.is_being_deleted()) {
            Verdict::AsWanted
        } else {
            Verdict::Differs
        }
    }

    /// Returns the apply that corrects a RoleBinding that is being deleted; none if it is as it should be.
    pub(super) fn correct_going(&self, snapshot: &Snapshot) -> Option<Request> {
        let live = snapshot.live.get(&self.binding.id).and_then(Live::object)?;
        let object = if snapshot.is_worked_in {
            match self.judge_live(live, &self.binding) {
                Verdict::Differs => self.rewrite_going(live),
                Verdict::AsWanted | Verdict::Foreign(_) => return None,
            }
        } else {
            // Without its own finalizer the object is deleted, unless another one holds it.
            self.describe_held(snapshot)?;
            dependents::make_neutral_form(live)?
        };
        let wanted = Wanted {
            id: self.binding.id.clone(),
            version: self.binding.version,
            object,
        };
        Some(wanted.apply("Lane"))
    }

    /// Returns the wanted content for a RoleBinding that is being deleted. It has no finalizer that the live object lacks, since an API server refuses a new one.
    fn rewrite_going(&self, live: &Value) -> Value {
        let view = ObjectView::new(live);
        let mut object = self.binding.object.clone();
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".to_owned(), json!(view.find_text("/metadata/uid")));
            if !view
                .list_texts("/metadata/finalizers")
                .any(|found| found == LANE_FINALIZER)
            {
                metadata.remove("finalizers");
            }
        }
        object
    }

    /// Returns the patch that removes the lane's finalizer, and those that a tenant could have set; nothing if the RoleBinding has none of them.
    pub(super) fn plan_release(&self, snapshot: &Snapshot) -> Option<Release> {
        let live = snapshot.live.get(&self.binding.id).and_then(Live::object)?;
        let rule = FinalizerRule {
            judges_writes: snapshot.is_checked(),
            listed: "",
        };
        let mut removed = rule.list_removable(live);
        removed.push(LANE_FINALIZER.to_owned());
        dependents::make_release(self.binding.make_watched(), live, removed)
    }

    /// Describes a deleted RoleBinding that finalizers other than the lane's hold.
    pub(super) fn describe_held(&self, snapshot: &Snapshot) -> Option<String> {
        let live = snapshot.live.get(&self.binding.id).and_then(Live::object)?;
        let mut finalizers = ObjectView::new(live).list_texts("/metadata/finalizers");
        let is_held = finalizers.any(|found| found != LANE_FINALIZER);
        let state = "It is corrected meanwhile, and re-created when it is gone.";
        is_held.then(|| dependents::describe_held(&self.binding.id, live, state))
    }
}

/// Checks whether a RoleBinding was made for a lane: it has the finalizer, or it bears the labels.
pub(super) fn is_lanes(live: &Value) -> bool {
    let view = ObjectView::new(live);
    let is_labelled = view.find_label(LANE_LABEL).is_some() && view.find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE);
    is_labelled
        || view
            .list_texts("/metadata/finalizers")
            .any(|found| found == LANE_FINALIZER)
}

fn account_id(lane: &LaneAccount) -> ObjectId {
    ObjectId {
        namespace: lane.namespace().to_owned(),
        name: lane.name().to_owned(),
        group: String::new(),
        kind: "ServiceAccount".to_owned(),
    }
}

fn binding_id(namespace: &str) -> ObjectId {
    ObjectId {
        namespace: namespace.to_owned(),
        name: LANE_BINDING.to_owned(),
        group: RBAC.to_owned(),
        kind: "RoleBinding".to_owned(),
    }
}
