//! Admission: the rules about a write that need other objects, the requesting user or other programs, in Kubernetes'
//! order.
//!
//! A request passes two phases. [`Admission::mutate`] may change the object, before defaults and validation.
//! [`Admission::validate`] sees the object as it will be stored, and may only refuse. Both run outside of the store's
//! locks, and run again whenever another write came first. Fields that a mutation changed have no owner, as in
//! Kubernetes: owners are settled before the mutation.
//!
//! Rules for one kind are in that kind's value (`tenure_kinds::kind::Rule`). This module has the rules for all kinds,
//! their order, and the list of disabled rules.

mod attributes;
mod cache;
mod escalation;
mod expression_inputs;
pub(crate) mod guard;
mod matching;
mod namespace_lifecycle;
pub(crate) mod policies;
pub(crate) mod quota;
mod subject;
mod webhooks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tenure_auth::identity::UserInfo;
use tenure_kinds::kind::{Awaited, Plugin, Rule};

pub(crate) use attributes::{Action, Attributes};

use crate::catalog::Origin;
use crate::contents::Contents;
use crate::http::ApiError;
use crate::keys;

/// The rules that can be disabled, by their Kubernetes names.
pub const OPTIONAL_PLUGINS: [&str; 4] = [
    Plugin::ServiceAccount.name(),
    Plugin::LimitRanger.name(),
    Plugin::Priority.name(),
    Plugin::DefaultTolerationSeconds.name(),
];

/// Longest wait for an object that every new namespace gets, such as the ServiceAccount `default`.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Admission of writes to a cluster, with its caches between requests.
#[derive(Debug)]
pub(crate) struct Admission {
    contents: Contents,
    /// The disabled rules of [`OPTIONAL_PLUGINS`].
    left_out: OnceLock<Vec<String>>,
    hooks: webhooks::HookTable,
    policies: policies::Policies,
    turns: quota::NamespaceLocks,
    /// The guard, if the embedding program has set one, and the state of its learning.
    post: guard::GuardState,
    /// Whether the server has started. Until then its own writes skip webhooks, policies and guard: the server could
    /// not start if it had to ask programs that depend on it.
    open: AtomicBool,
}

impl Admission {
    pub(crate) fn new(contents: Contents) -> Self {
        Self {
            contents,
            left_out: OnceLock::new(),
            hooks: webhooks::HookTable::default(),
            policies: policies::Policies::default(),
            turns: quota::NamespaceLocks::default(),
            post: guard::GuardState::default(),
            open: AtomicBool::new(false),
        }
    }

    /// Ends the start: after this call every write passes all of admission.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Sets the guard, once, before any request.
    pub(crate) fn set_guard(&self, guard: Arc<dyn guard::Guard>) {
        self.post.set(guard);
    }

    /// Disables rules, once, before any request.
    pub(crate) fn disable_plugins(&self, mut plugins: Vec<String>) {
        plugins.retain(|plugin| OPTIONAL_PLUGINS.contains(&plugin.as_str()));
        let _already_set = self.left_out.set(plugins);
    }

    /// Returns the rules of the written kind, except the disabled ones.
    fn rules_of(&self, attributes: &Attributes<'_>) -> impl Iterator<Item = &'static Rule> {
        let left_out = self.left_out.get().map(Vec::as_slice).unwrap_or_default();
        let rules = attributes.resource().behavior.admission.iter();
        rules.filter(|rule| !left_out.iter().any(|name| name == rule.plugin.name()))
    }

    /// Returns the tenant of a user, as the guard knows it.
    pub(crate) fn find_tenant(&self, user: &UserInfo) -> Option<String> {
        self.post.find_tenant(self.contents.store(), user)
    }

    /// Returns the locks of the namespaces with quotas.
    pub(crate) fn namespace_locks(&self) -> &quota::NamespaceLocks {
        &self.turns
    }

    fn policies(&self) -> Vec<policies::InForce> {
        if self.is_open() {
            self.policies.list_in_force(&self.contents.view())
        } else {
            Vec::new()
        }
    }

    fn hooks(&self, phase: webhooks::Phase) -> Vec<Arc<webhooks::Hook>> {
        if self.is_open() {
            self.hooks.list_hooks(&self.contents.view(), phase)
        } else {
            Vec::new()
        }
    }

    /// Returns the object after the mutating phase.
    pub(crate) async fn mutate(&self, attributes: &Attributes<'_>, object: Value) -> Result<Value, ApiError> {
        let mut object = Some(object);
        self.mutate_any(attributes, &mut object).await?;
        let object = object.unwrap_or_default();
        escalation::check(self.contents.rights(), attributes, &object)?;
        Ok(object)
    }

    /// Runs the mutating phase; for a deletion, without an object. If a webhook changed the object, a second round
    /// follows.
    async fn mutate_any(&self, attributes: &Attributes<'_>, object: &mut Option<Value>) -> Result<(), ApiError> {
        let mut rounds = webhooks::Rounds::default();
        for reinvoke in [false, true] {
            self.apply_own_rules(attributes, object.as_mut()).await?;
            guard::mutate(self, attributes, object.as_mut())?;
            if !webhooks::mutate(self, attributes, object, &mut rounds, reinvoke).await? {
                break;
            }
        }
        Ok(())
    }

    /// Applies the mutating rules that are part of this server.
    async fn apply_own_rules(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        match attributes.action {
            Action::Create => {
                namespace_lifecycle::on_create(attributes, &self.contents.view())?;
                if let Origin::Custom(custom) = &attributes.resource().origin
                    && custom.terminating
                {
                    let why = "create not allowed while custom resource definition is terminating";
                    return Err(ApiError::new(405, "MethodNotAllowed", why));
                }
            }
            Action::Update => {}
            Action::Delete => namespace_lifecycle::on_delete(attributes)?,
        }
        let Some(object) = object else { return Ok(()) };
        let mut view = self.contents.view();
        for rule in self.rules_of(attributes) {
            let awaited = attributes.ask_kind(&self.contents, &view, |admitted| (rule.awaits)(admitted, object));
            if let Some(Awaited { group, plural, name }) = awaited {
                let namespace = Some(attributes.namespace());
                if !view.exists(group, plural, namespace, &name) {
                    self.wait_for(&keys::object_key(group, plural, namespace, &name)).await;
                    view = self.contents.view();
                }
            }
            attributes
                .ask_kind(&self.contents, &view, |admitted| (rule.mutate)(admitted, object))
                .map_err(|why| attributes.denied_error(Some(object), &why))?;
        }
        Ok(())
    }

    /// Waits up to [`PATIENCE`] until the object under `key` is created.
    async fn wait_for(&self, key: &str) {
        let store = self.contents.store();
        if let Ok(mut watcher) = store.watch(key, store.revision())
            && !self.contents.view().exists_key(key)
        {
            let _came_or_not = tokio::time::timeout(PATIENCE, watcher.next()).await;
        }
    }

    /// Checks whether [`Self::validate`] may wait for another program or another request. The caller must then hold no
    /// lock that those may wait for.
    pub(crate) fn waits_for_others(&self, attributes: &Attributes<'_>) -> bool {
        webhooks::has_validating_webhook(self, attributes) || quota::may_charge(&self.contents, attributes)
    }

    /// Validates an object as it would be stored (`None` for a deletion), and returns its charge to quotas. Without
    /// `waits`, rules that would wait are skipped if they appeared after the call of [`Self::waits_for_others`].
    pub(crate) async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        waits: bool,
    ) -> Result<Option<quota::QuotaCharge>, ApiError> {
        if let Some(object) = object {
            let view = self.contents.view();
            for rule in self.rules_of(attributes) {
                attributes
                    .ask_kind(&self.contents, &view, |admitted| (rule.validate)(admitted, object))
                    .map_err(|why| attributes.denied_error(Some(object), &why))?;
            }
        }
        guard::validate(self, attributes, object)?;
        policies::validate(self, attributes, object).await?;
        if !waits {
            return Ok(None);
        }
        webhooks::validate(self, attributes, object).await?;
        match object {
            Some(object) => quota::find_charge(self, attributes, object).await,
            None => Ok(None),
        }
    }

    /// Runs both phases of a deletion, which charges no quota.
    pub(crate) async fn admit_delete(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        self.mutate_any(attributes, &mut None).await?;
        self.validate(attributes, None, true).await.map(drop)
    }

    /// Runs both phases of a request whose object is returned and not stored. The object may come back changed, and
    /// charges no quota.
    pub(crate) async fn admit_unstored(&self, attributes: &Attributes<'_>, object: Value) -> Result<Value, ApiError> {
        let object = self.mutate(attributes, object).await?;
        self.validate(attributes, Some(&object), true).await.map(drop)?;
        Ok(object)
    }
}
