//! The door of the embedded control plane: asked in its process, with everything known that was acknowledged.

use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;
use tenure_api::{ObjectMeta, Tenant};
use tenure_apiserver::{Asked, Followed, Guard, GuardQuestion, GuardSurroundings, Review, Ruling};
use tenure_tenancy::admission::{self, Decision, Question, Request, Resource, Surroundings};
use tenure_tenancy::{Facts, NamespaceFacts, Settings, TenantFacts};

const TENANTS: Followed = ("capsule.clastix.io", "tenants");
const NAMESPACES: Followed = ("", "namespaces");
const FOLLOWED: [Followed; 2] = [TENANTS, NAMESPACES];

/// Judges what is written to the embedded control plane.
#[derive(Debug)]
pub struct EmbeddedGuard {
    settings: Settings,
    /// Changed object by object. Whoever writes passes here: nothing is read, parsed or waited for under it.
    facts: RwLock<Facts>,
}

impl EmbeddedGuard {
    /// A guard that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            facts: RwLock::new(Facts::new(settings.clone())),
            settings,
        }
    }
}

impl Guard for EmbeddedGuard {
    fn follows(&self) -> &[Followed] {
        &FOLLOWED
    }

    fn learn(&self, resource: (&str, &str), name: &str, object: Option<&Value>) {
        if resource == TENANTS {
            // One that can't be read owns nothing.
            let tenant = object.and_then(|object| serde_json::from_value::<Tenant>(object.clone()).ok());
            match tenant {
                Some(tenant) => self.facts.write().set_tenant(TenantFacts::from(&tenant)),
                None => self.facts.write().remove_tenant(name),
            }
            return;
        }
        let metadata = object.and_then(|object| object.get("metadata")).cloned();
        let metadata = metadata.and_then(|metadata| serde_json::from_value::<ObjectMeta>(metadata).ok());
        match metadata {
            Some(metadata) => self.facts.write().set_namespace(NamespaceFacts::from(&metadata)),
            None => self.facts.write().remove_namespace(name),
        }
    }

    fn forget(&self) {
        *self.facts.write() = Facts::new(self.settings.clone());
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        let resource = Resource {
            group: asked.group,
            name: asked.resource,
            subresource: asked.subresource,
        };
        admission::concerns(
            &self.facts.read(),
            asked.user,
            resource,
            asked.namespace,
            asked.old_object,
        )
    }

    fn judge(&self, review: &Review<'_>, surroundings: &dyn GuardSurroundings) -> Ruling {
        let request = match Request::read_with(review.request, review.object, review.old_object) {
            Ok(request) => request,
            Err(error) => return Ruling::Deny(error.to_string()),
        };
        let decision = admission::decide(&self.facts.read(), &request, &Server(surroundings));
        match decision {
            Decision::Deny(refusal) => Ruling::Deny(refusal.to_string()),
            Decision::Allow { changes, warnings } => {
                let object = review.object.filter(|_| !changes.is_empty()).cloned();
                let object = object.map(|mut object| {
                    for change in &changes {
                        change.make(&mut object);
                    }
                    object
                });
                Ruling::Allow { object, warnings }
            }
        }
    }
}

/// The server, as rules ask it.
struct Server<'a>(&'a dyn GuardSurroundings);

impl Surroundings for Server<'_> {
    fn may(&self, question: &Question<'_>) -> bool {
        self.0.may(&GuardQuestion {
            verb: question.verb,
            group: question.group,
            resource: question.resource,
            namespace: question.namespace,
            name: question.name,
        })
    }

    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.find(group, plural, namespace, name)
    }
}
