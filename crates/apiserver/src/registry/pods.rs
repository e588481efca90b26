//! The subresources of a pod: eviction as far as its disruption budgets allow, binding to a node, and connections,
//! which are refused. No pod runs here, so there is never a kubelet to connect to.

use serde_json::{Value, json};
use tenure_auth::identity::UserInfo;
use tenure_kinds::kind::selector_text;
use tenure_store::{Change, Expect, Write, WriteError};

use super::format_timestamp;
use super::state::storage_error;
use super::{DeleteOptions, OWN_MANAGER, ObjectExt, Operation, RACE_ATTEMPTS, Registry, Selectors};
use crate::admission::Attributes;
use crate::catalog::Resource;
use crate::http::{ApiError, FieldError};
use crate::stored::encode;

/// Limit for concurrent evictions below one budget.
const DISRUPTED: usize = 2000;
const VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// A request for a connection to a running pod, or for its log.
pub(crate) struct Connection<'a> {
    /// The named container.
    pub(crate) container: &'a str,
    /// Whether the request needs a container. Port forwarding does not.
    pub(crate) needs_container: bool,
    /// Whether the request wants only the log. A pod without a node has an empty log.
    pub(crate) log: bool,
}

impl Registry {
    /// Evicts a pod: deletes it, if its budgets allow.
    pub(crate) async fn evict(&self, op: &Operation, name: &str, eviction: &Value) -> Result<(), ApiError> {
        if eviction.name() != name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let options = match eviction.get("deleteOptions") {
            Some(options) if !options.is_null() => DeleteOptions::from_value(options)?,
            _ => DeleteOptions::default(),
        };
        let options = DeleteOptions {
            dry_run: options.dry_run || op.dry_run,
            ..options
        };
        self.admission()
            .admit_unstored(&Attributes::create(op, name), eviction.clone())
            .await?;
        let pods = Operation {
            subresource: None,
            ..op.clone()
        };
        let pod = self.get(&pods, name).await?;
        if uses_no_budget(&pod) {
            return self.disrupt_pod(&pods, name, &options).await;
        }
        let budgets = self.budgets_over(op, &pod)?;
        let [budget] = budgets.as_slice() else {
            if budgets.is_empty() {
                return self.disrupt_pod(&pods, name, &options).await;
            }
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::new(500, "", why));
        };
        let spared = !is_ready(&pod) && allows_unready_eviction(budget);
        if spared {
            // A pod that is not ready uses no budget, but may become ready: so the deletion requires this version.
            let unchanged = options.resource_version.is_none();
            let exact = DeleteOptions {
                resource_version: Some(
                    options
                        .resource_version
                        .clone()
                        .unwrap_or(pod.resource_version().to_owned()),
                ),
                ..options
            };
            return match self.disrupt_pod(&pods, name, &exact).await {
                Err(error) if unchanged && error.reason == "Conflict" => Err(make_processing_error(budget.name())),
                other => other,
            };
        }
        self.take_disruption(op, budget.name(), name, options.dry_run).await?;
        self.disrupt_pod(&pods, name, &options).await
    }

    /// Writes the reason into the pod's status, and deletes the pod.
    async fn disrupt_pod(&self, pods: &Operation, name: &str, options: &DeleteOptions) -> Result<(), ApiError> {
        let mut options = options.clone();
        if !options.dry_run && !pods.dry_run {
            let now = format_timestamp(self.now());
            let changed = self
                .rewrite_object(pods, name, |pod| {
                    super::delete::check_preconditions(pods, name, &options, pod)?;
                    set_condition(
                        pod,
                        json!({
                            "type": "DisruptionTarget", "status": "True", "lastTransitionTime": now,
                            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                        }),
                    );
                    Ok(())
                })
                .await?;
            if options.resource_version.is_some() {
                options.resource_version = Some(changed.resource_version().to_owned());
            }
        }
        self.delete(pods, name, &options).await?;
        Ok(())
    }

    /// Returns the budgets whose selectors match the pod.
    fn budgets_over(&self, op: &Operation, pod: &Value) -> Result<Vec<Value>, ApiError> {
        let budgets = self.find_budget_resource()?;
        let mut found = Vec::new();
        for budget in self
            .view()
            .list("policy", "poddisruptionbudgets", op.namespace.as_deref())
        {
            let Some(selector) = budget.pointer("/spec/selector").filter(|selector| selector.is_object()) else {
                continue;
            };
            if Selectors::parse(&budgets, Some(&selector_text(selector)), None)?.matches(pod) {
                found.push(budget);
            }
        }
        Ok(found)
    }

    fn find_budget_resource(&self) -> Result<std::sync::Arc<Resource>, ApiError> {
        let catalog = self.catalog();
        let found = catalog.find("policy", "v1", "poddisruptionbudgets");
        found
            .cloned()
            .ok_or_else(|| ApiError::internal("poddisruptionbudgets are not in the table of resources"))
    }

    /// Takes one disruption from a budget. An error says why the budget has none.
    async fn take_disruption(&self, op: &Operation, budget: &str, pod: &str, dry_run: bool) -> Result<(), ApiError> {
        let namespace = op.namespace.clone();
        let budgets = Operation {
            dry_run,
            ..Operation::new(
                self.find_budget_resource()?,
                namespace,
                UserInfo::loopback(),
                OWN_MANAGER,
            )
        };
        let budgets = budgets.subresource("status");
        let now = format_timestamp(self.now());
        self.change_object(&budgets, budget, |live| {
            let live = live.ok_or_else(|| ApiError::not_found(&budgets.resource, budget))?;
            let mut object = live.clone();
            let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
            if number("/status/observedGeneration") < number("/metadata/generation") {
                return Err(make_processing_error(budget));
            }
            let refused = |why: &str| Err(ApiError::denied(&budgets.resource, budget, why));
            let allowed = number("/status/disruptionsAllowed");
            if allowed < 0 {
                return refused("pdb disruptions allowed is negative");
            }
            let disrupted = live.pointer("/status/disruptedPods").and_then(Value::as_object);
            if disrupted.is_some_and(|pods| pods.len() > DISRUPTED) {
                return refused("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
            }
            if allowed == 0 {
                return Err(make_violation_error(0, &describe_exhausted_budget(budget, live)));
            }
            if allowed == 1 {
                set_condition(
                    &mut object,
                    json!({
                        "type": "DisruptionAllowed", "status": "False", "lastTransitionTime": now,
                        "reason": "InsufficientPods", "message": "",
                        "observedGeneration": number("/status/observedGeneration"),
                    }),
                );
            }
            if let Some(status) = object.pointer_mut("/status").and_then(Value::as_object_mut) {
                status.insert("disruptionsAllowed".to_owned(), json!(allowed - 1));
                let pods = status.entry("disruptedPods").or_insert_with(|| json!({}));
                if let Some(pods) = pods.as_object_mut() {
                    pods.insert(pod.to_owned(), Value::from(now.as_str()));
                }
            }
            Ok(self.manage_fields(&budgets, Some(live), object))
        })
        .await?;
        Ok(())
    }

    /// Binds a pod to a node.
    pub(crate) async fn bind(&self, op: &Operation, name: &str, binding: &Value) -> Result<(), ApiError> {
        if binding.name() != name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
        let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let faults = [
            (!["", "Node"].contains(&text("/target/kind"))).then(|| {
                FieldError::not_supported("target.kind", text("/target/kind"), &["Node", "<empty>"]).to_string()
            }),
            text("/target/name")
                .is_empty()
                .then(|| FieldError::required("target.name", "").to_string()),
        ];
        let faults: Vec<String> = faults.into_iter().flatten().collect();
        if let [only] = faults.as_slice() {
            return Err(ApiError::new(500, "", only.clone()));
        }
        if !faults.is_empty() {
            return Err(ApiError::new(500, "", format!("[{}]", faults.join(", "))));
        }
        self.admission()
            .admit_unstored(&Attributes::create(op, name), binding.clone())
            .await?;
        let catalog = self.catalog();
        let pods = catalog
            .find("", "v1", "pods")
            .ok_or_else(|| ApiError::internal("pods are not in the table of resources"))?;
        let pods = Operation {
            resource: pods.clone(),
            subresource: None,
            ..op.clone()
        };
        let now = format_timestamp(self.now());
        self.rewrite_object(&pods, name, |pod| {
            super::update::check_uid(&pods, name, pod, binding)?;
            let (sent, version) = (binding.resource_version(), pod.resource_version());
            super::update::check_precondition(&pods, name, "ResourceVersion", sent, version)?;
            if let Some(why) = find_binding_obstacle(pod) {
                return Err(make_binding_error(name, &why));
            }
            if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("nodeName".to_owned(), Value::from(text("/target/name")));
            }
            if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
                status.remove("nominatedNodeName");
            }
            for key in ["annotations", "labels"] {
                let Some(sent) = binding.metadata().and_then(|metadata| metadata.get(key)) else {
                    continue;
                };
                let Some(metadata) = pod.metadata_mut() else { continue };
                let kept = metadata.entry(key).or_insert_with(|| json!({}));
                if let (Some(kept), Some(sent)) = (kept.as_object_mut(), sent.as_object()) {
                    kept.extend(sent.iter().map(|(key, value)| (key.clone(), value.clone())));
                }
            }
            set_condition(
                pod,
                json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now}),
            );
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Returns the error of a connection to a pod; `None` for an empty log.
    pub(crate) async fn connect(
        &self,
        op: &Operation,
        name: &str,
        wanted: &Connection<'_>,
    ) -> Result<Option<ApiError>, ApiError> {
        let pod = self.get(op, name).await?;
        if wanted.needs_container {
            check_container(&pod, wanted.container)?;
        }
        let node = pod
            .pointer("/spec/nodeName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Ok(if !node.is_empty() {
            Some(if self.view().exists("", "nodes", None, node) {
                ApiError::internal(format!(
                    "no kubelet answers for node {node:?}: this server stores pods and runs none"
                ))
            } else {
                // kube-apiserver reports the missing node under the resource of the request: pods "NODE" not found.
                ApiError::not_found(&op.resource, node)
            })
        } else if wanted.log {
            None
        } else {
            Some(ApiError::bad_request(format!(
                "pod {name} does not have a host assigned"
            )))
        })
    }

    /// Changes an object as the server itself, without the rules for clients.
    async fn rewrite_object(
        &self,
        op: &Operation,
        name: &str,
        change: impl Fn(&mut Value) -> Result<(), ApiError>,
    ) -> Result<Value, ApiError> {
        let key = op.key(name);
        for _ in 0..RACE_ATTEMPTS {
            let snapshot = self.store().snapshot();
            let entry = snapshot
                .get(&key)
                .ok_or_else(|| ApiError::not_found(&op.resource, name))?;
            let mut object = self.present(op, entry).await?;
            change(&mut object)?;
            if op.dry_run {
                return Ok(object);
            }
            let write = Write {
                key: key.clone().into(),
                expect: Expect::Revision(entry.revision),
                change: Change::Put(encode(&self.contents().for_storage(object, &op.resource).await?)?),
                frees: false,
            };
            match self.commit(&op.resource, write).await {
                Ok(entry) => return self.present(op, &entry).await,
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(storage_error(&error)),
            }
        }
        Err(ApiError::modified(&op.resource, name))
    }
}

/// Checks whether the pod uses no budget: it has ended, has not begun, or is being deleted.
fn uses_no_budget(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.is_deleting()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let text = |key: &str| condition.get(key).and_then(Value::as_str);
        text("type") == Some("Ready") && text("status") == Some("True")
    })
}

/// Checks whether the budget lets pods that are not ready be evicted.
fn allows_unready_eviction(budget: &Value) -> bool {
    let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let policy = budget
        .pointer("/spec/unhealthyPodEvictionPolicy")
        .and_then(Value::as_str);
    let (current, desired) = (number("/status/currentHealthy"), number("/status/desiredHealthy"));
    policy == Some("AlwaysAllow") || (current >= desired && desired > 0)
}

/// Returns the 429 of an eviction that a budget does not allow, with the seconds until a retry (zero for none).
fn make_violation_error(seconds: u64, cause: &str) -> ApiError {
    let mut error = ApiError::new(429, "TooManyRequests", VIOLATED);
    if seconds > 0 {
        error
            .details
            .insert("retryAfterSeconds".to_owned(), Value::from(seconds));
    }
    error.details.insert(
        "causes".to_owned(),
        json!([{"reason": "DisruptionBudget", "message": cause}]),
    );
    error
}

/// Returns the error for a budget whose status is older than its spec.
fn make_processing_error(budget: &str) -> ApiError {
    make_violation_error(
        10,
        &format!("The disruption budget {budget} is still being processed by the server."),
    )
}

/// Returns the cause of a budget's zero allowed disruptions, in kube-apiserver's words.
fn describe_exhausted_budget(name: &str, budget: &Value) -> String {
    let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let (current, desired) = (number("/status/currentHealthy"), number("/status/desiredHealthy"));
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, key: &str| {
        let value = condition.get(key).and_then(Value::as_str).unwrap_or_default();
        value.to_owned()
    };
    let condition = conditions.into_iter().flatten().find(|condition| {
        text(condition, "type") == "DisruptionAllowed"
            && text(condition, "status") == "False"
            && !text(condition, "message").is_empty()
    });
    match condition {
        Some(condition) if text(condition, "reason") == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            text(condition, "message")
        ),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            text(condition, "reason"),
            text(condition, "message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// Replaces the condition of the same type. The transition time stays if the status does.
fn set_condition(object: &mut Value, mut condition: Value) {
    let kind = condition.get("type").cloned().unwrap_or_default();
    let Some(object) = object.as_object_mut() else { return };
    let status = object.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    match conditions.iter_mut().find(|known| known.get("type") == Some(&kind)) {
        Some(known) => {
            if known.get("status") == condition.get("status")
                && let (Some(time), Some(map)) = (known.get("lastTransitionTime"), condition.as_object_mut())
            {
                map.insert("lastTransitionTime".to_owned(), time.clone());
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

/// Returns the reason why a pod can't be bound to a node; `None` if it can.
fn find_binding_obstacle(pod: &Value) -> Option<String> {
    let name = pod.name();
    let node = pod
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if pod.is_deleting() {
        Some(format!("pod {name} is being deleted, cannot be assigned to a host"))
    } else if !node.is_empty() {
        Some(format!("pod {name} is already assigned to node {node:?}"))
    } else if gates.is_some_and(|gates| !gates.is_empty()) {
        Some(format!("pod {name} has non-empty .spec.schedulingGates"))
    } else {
        None
    }
}

/// Returns the 409 for a pod that can't be bound.
fn make_binding_error(name: &str, why: &str) -> ApiError {
    let mut error = ApiError::new(
        409,
        "Conflict",
        format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}"),
    );
    error.details.insert("name".to_owned(), Value::from(name));
    error.details.insert("kind".to_owned(), Value::from("pods/binding"));
    error
}

/// Checks the named container, or finds the only one.
fn check_container(pod: &Value, wanted: &str) -> Result<(), ApiError> {
    let name = pod.name();
    let names = |key: &str| -> Vec<&str> {
        let list = pod.pointer(&format!("/spec/{key}")).and_then(Value::as_array);
        let name = |container| Value::get(container, "name").and_then(Value::as_str);
        list.into_iter().flatten().filter_map(name).collect()
    };
    let [containers, starters, guests] = ["containers", "initContainers", "ephemeralContainers"].map(names);
    if !wanted.is_empty() {
        let known = [&containers, &starters, &guests]
            .iter()
            .any(|names| names.contains(&wanted));
        return if known {
            Ok(())
        } else {
            Err(ApiError::bad_request(format!(
                "container {wanted} is not valid for pod {name}"
            )))
        };
    }
    if containers.len() == 1 {
        return Ok(());
    }
    let all = [starters, containers, guests].concat();
    let why = format!(
        "a container name must be specified for pod {name}, choose one of: [{}]",
        all.join(" ")
    );
    Err(ApiError::bad_request(why))
}
