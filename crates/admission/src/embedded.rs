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
    /// Changed object by object; who still judges by what was known keeps it, and then what changes is made anew. Whoever writes passes here:
    /// nothing is parsed, judged or waited for under it, as how long that takes depends on objects and roles that tenants wrote.
    facts: RwLock<Arc<Facts>>,
}

impl EmbeddedGuard {
    /// A guard that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            facts: RwLock::new(Arc::new(Facts::new(settings.clone()))),
            settings,
        }
    }

    /// What is known now.
    fn known(&self) -> Arc<Facts> {
        Arc::clone(&self.facts.read())
    }

    /// A Tenant is, from now on, so, or is no more. Most of what is written to one, as its status, changes nothing of what is known.
    fn learn_tenant(&self, name: &str, tenant: Option<TenantFacts>) {
        if self.facts.read().find_tenant(name) != tenant.as_ref() {
            let _told_by_watches = Arc::make_mut(&mut self.facts.write()).change_tenant(name, tenant);
        }
    }

    /// The same of a namespace: what its owner writes to it, how often ever, mostly concerns nobody.
    fn learn_namespace(&self, name: &str, namespace: Option<NamespaceFacts>) {
        if self.facts.read().find_namespace(name) != namespace.as_ref() {
            let _told_by_watches = Arc::make_mut(&mut self.facts.write()).change_namespace(name, namespace);
        }
    }
}

impl Guard for EmbeddedGuard {
    fn follows(&self) -> &[Followed] {
        &FOLLOWED
    }

    fn learn(&self, resource: (&str, &str), name: &str, object: Option<&Value>) {
        let metadata = object.and_then(|object| object.get("metadata")).cloned();
        let metadata = metadata.and_then(|metadata| serde_json::from_value::<ObjectMeta>(metadata).ok());
        match (resource == TENANTS, object, metadata) {
            (true, None, _) => self.learn_tenant(name, None),
            (true, Some(object), metadata) => {
                let tenant = serde_json::from_value::<Tenant>(object.clone()).ok();
                // One that can't be read is there, and nobody owns it.
                let tenant =
                    tenant.map_or_else(|| describe_unread(name, metadata), |tenant| TenantFacts::from(&tenant));
                self.learn_tenant(name, Some(tenant));
            }
            (false, Some(_), Some(metadata)) => self.learn_namespace(name, Some(NamespaceFacts::from(&metadata))),
            (false, _, _) => self.learn_namespace(name, None),
        }
    }

    fn forget(&self) {
        *self.facts.write() = Arc::new(Facts::new(self.settings.clone()));
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
        let decision = admission::decide(&self.known(), &request, &Server(surroundings));
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

/// What is known of a Tenant that can't be read.
fn describe_unread(name: &str, metadata: Option<ObjectMeta>) -> TenantFacts {
    TenantFacts {
        name: name.to_owned(),
        uid: metadata.and_then(|metadata| metadata.uid).unwrap_or_default(),
        ..TenantFacts::default()
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
