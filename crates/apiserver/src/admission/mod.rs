//! The rules about a write that need other objects, the caller or other programs, in Kubernetes' order.
//!
//! A request goes through two phases. [`Admission::mutate`] may change the object, before it is made complete and checked;
//! [`Admission::validate`] sees the object as it will be stored, and may only refuse. Both run outside of the store's locks, and
//! again whenever a write was overtaken by another. What a mutation changed is owned by nobody, as in Kubernetes:
//! owners are settled before it.
//!
//! What the objects of one kind meet is in that kind's value (`tenure_kinds::kind::Rule`); here is what all kinds meet. Owns the order,
//! and which rules are left out.

mod asking;
mod attributes;
mod cache;
mod escalation;
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
use tenure_access::identity::UserInfo;
use tenure_kinds::kind::{Awaited, Plugin, Rule};

pub(crate) use attributes::{Action, Attributes};

use crate::catalog::Origin;
use crate::contents::Contents;
use crate::http::ApiError;
use crate::keys;

/// The rules that can be left out, by the names that Kubernetes has for them.
pub const OPTIONAL_PLUGINS: [&str; 4] = [
    Plugin::ServiceAccount.name(),
    Plugin::LimitRanger.name(),
    Plugin::Priority.name(),
    Plugin::DefaultTolerationSeconds.name(),
];

/// How long a new namespace may take to get what every namespace gets.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Who admits what is written to a cluster, with what it keeps between requests.
#[derive(Debug)]
pub(crate) struct Admission {
    contents: Contents,
    /// Those of [`OPTIONAL_PLUGINS`] that are left out.
    left_out: OnceLock<Vec<String>>,
    hooks: webhooks::HookTable,
    policies: policies::Policies,
    turns: quota::Turns,
    /// Who guards it beside webhooks.
    post: guard::Post,
    /// Whether the server has started. What it writes until then is its own, and asks nobody: it would not start
    /// without those that it is to serve.
    open: AtomicBool,
}

impl Admission {
    pub(crate) fn new(contents: Contents) -> Self {
        Self {
            contents,
            left_out: OnceLock::new(),
            hooks: webhooks::HookTable::default(),
            policies: policies::Policies::default(),
            turns: quota::Turns::default(),
            post: guard::Post::default(),
            open: AtomicBool::new(false),
        }
    }

    /// From now on every write is everybody's business.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Sets who guards it beside webhooks; once, before anything is asked.
    pub(crate) fn set_guard(&self, guard: Arc<dyn guard::Guard>) {
        self.post.set(guard);
    }

    /// Leaves rules out; said once, before anything is asked.
    pub(crate) fn leave_out(&self, mut plugins: Vec<String>) {
        plugins.retain(|plugin| OPTIONAL_PLUGINS.contains(&plugin.as_str()));
        let _said_before = self.left_out.set(plugins);
    }

    /// The rules of the kind that is written, but for those that are left out.
    fn rules_of(&self, attributes: &Attributes<'_>) -> impl Iterator<Item = &'static Rule> {
        let left_out = self.left_out.get().map(Vec::as_slice).unwrap_or_default();
        let rules = attributes.resource().behavior.admission.iter();
        rules.filter(|rule| !left_out.iter().any(|name| name == rule.plugin.name()))
    }

    /// The tenant that somebody belongs to, as the guard knows it.
    pub(crate) fn find_tenant(&self, user: &UserInfo) -> Option<String> {
        self.post.find_tenant(self.contents.store(), user)
    }

    /// The turns of the namespaces that have quotas.
    pub(crate) fn turns(&self) -> &quota::Turns {
        &self.turns
    }

    fn policies(&self) -> Vec<policies::InForce> {
        if self.is_open() {
            self.policies.in_force(&self.contents.view())
        } else {
            Vec::new()
        }
    }

    fn hooks(&self, phase: webhooks::Phase) -> Vec<Arc<webhooks::Hook>> {
        if self.is_open() {
            self.hooks.of(&self.contents.view(), phase)
        } else {
            Vec::new()
        }
    }

    /// The object as it goes on, changed by who may change it.
    pub(crate) async fn mutate(&self, attributes: &Attributes<'_>, object: Value) -> Result<Value, ApiError> {
        let mut object = Some(object);
        self.mutate_any(attributes, &mut object).await?;
        let object = object.unwrap_or_default();
        escalation::check(self.contents.rights(), attributes, &object)?;
        Ok(object)
    }

    /// The mutating phase; of a deletion, without an object. If a webhook changed the object, there is a second round.
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

    /// The mutating rules that are part of this server.
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
            let awaited = attributes.ask(&self.contents, &view, |admitted| (rule.awaits)(admitted, object));
            if let Some(Awaited { group, plural, name }) = awaited {
                let namespace = Some(attributes.namespace());
                if !view.exists(group, plural, namespace, &name) {
                    self.wait_for(&keys::of_object(group, plural, namespace, &name)).await;
                    view = self.contents.view();
                }
            }
            attributes
                .ask(&self.contents, &view, |admitted| (rule.mutate)(admitted, object))
                .map_err(|why| attributes.denied(Some(object), &why))?;
        }
        Ok(())
    }

    /// Waits a moment for an object that may be on its way.
    async fn wait_for(&self, key: &str) {
        let store = self.contents.store();
        if let Ok(mut watcher) = store.watch(key, store.revision())
            && !self.contents.view().exists_key(key)
        {
            let _came_or_not = tokio::time::timeout(PATIENCE, watcher.next()).await;
        }
    }

    /// Whether [`Self::validate`] may wait for others: for another program, or for another request's turn. Then it must not be
    /// called by who has something that those may be waiting for.
    pub(crate) fn waits_for_others(&self, attributes: &Attributes<'_>) -> bool {
        webhooks::asked_to_validate(self, attributes) || quota::may_charge(&self.contents, attributes)
    }

    /// Refuses an object as it would be stored, or none if one is deleted; otherwise says what it owes to quotas. Without `waits`,
    /// what came up since [`Self::waits_for_others`] was asked is passed over.
    pub(crate) async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        waits: bool,
    ) -> Result<Option<quota::Owed>, ApiError> {
        if let Some(object) = object {
            let view = self.contents.view();
            for rule in self.rules_of(attributes) {
                attributes
                    .ask(&self.contents, &view, |admitted| (rule.validate)(admitted, object))
                    .map_err(|why| attributes.denied(Some(object), &why))?;
            }
        }
        guard::validate(self, attributes, object)?;
        policies::validate(self, attributes, object).await?;
        if !waits {
            return Ok(None);
        }
        webhooks::validate(self, attributes, object).await?;
        match object {
            Some(object) => quota::reckon(self, attributes, object).await,
            None => Ok(None),
        }
    }

    /// Both phases of a deletion, which owes nothing.
    pub(crate) async fn admit_delete(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        self.mutate_any(attributes, &mut None).await?;
        self.validate(attributes, None, true).await.map(drop)
    }

    /// Both phases of a request whose object is answered and not stored; it may come back changed, and pays nothing.
    pub(crate) async fn admit_unstored(&self, attributes: &Attributes<'_>, object: Value) -> Result<Value, ApiError> {
        let object = self.mutate(attributes, object).await?;
        self.validate(attributes, Some(&object), true).await.map(drop)?;
        Ok(object)
    }
}
