//! Everything that a request's steps depend on, besides the state of single namespaces. After a change, everything is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use tenure_api::access::FluxAccessRequest;
use tenure_git_access::delivery::ProviderState;
use tenure_git_access::request_plan::handover::DeliveryState;
use tenure_git_access::rotation::NamespaceState;
use tenure_git_access::rotation::handover::{Predecessor, Successor};
use tenure_tenancy::access::approval::Verdict;

use super::{AccessHub, Relatives};

/// The facts that a request's steps depend on. After a change, everything is read again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepFacts {
    is_deleted: bool,
    annotations: BTreeMap<String, String>,
    pub(super) verdict: Verdict,
    is_suspended: bool,
    provider: Option<tenure_api::access::AccessProviderSpec>,
    pub(super) deliveries: Option<Arc<BTreeSet<String>>>,
    /// The namespaces in which the request would deliver if it was approved.
    pub(super) reaching: Option<Arc<BTreeSet<String>>>,
    relatives: Relatives,
    /// The holdings of the request's predecessors and successor, by name and namespace.
    holdings: BTreeMap<String, BTreeMap<String, DeliveryState>>,
    namespaces: Vec<(String, NamespaceState)>,
}

impl StepFacts {
    /// Reads the current facts.
    pub(super) fn observe(access_hub: &AccessHub, request: &FluxAccessRequest) -> Self {
        let name = request.metadata.name.as_deref().unwrap_or_default();
        let provider = access_hub.find_provider(&request.spec.provider);
        let deliveries = access_hub.find_deliveries(&request.spec.provider, name);
        let names = list_namespaces(request, deliveries.as_deref());
        let relatives = access_hub.find_relatives(request);
        let holdings = access_hub.list_holdings(relatives.predecessors.iter().chain(&relatives.successor));
        Self {
            is_deleted: request.metadata.deletion_timestamp.is_some(),
            annotations: request.annotations().clone(),
            verdict: access_hub.judge(request),
            is_suspended: access_hub.find_provider_state(provider.as_deref()) != ProviderState::Active,
            provider: provider.map(|provider| provider.spec.clone()),
            reaching: access_hub.find_reach(&request.spec.provider, name),
            relatives,
            holdings,
            namespaces: names
                .into_iter()
                .map(|name| {
                    let seen = access_hub.find_namespace(&name);
                    (name, seen)
                })
                .collect(),
            deliveries,
        }
    }

    fn find_holding(&self, request: &str, namespace: &str) -> Option<&DeliveryState> {
        self.holdings.get(request)?.get(namespace)
    }

    /// Returns the request's predecessors in a namespace.
    pub(super) fn list_predecessors(&self, namespace: &str) -> Vec<Predecessor> {
        let earlier = self.relatives.predecessors.iter().filter_map(|name| {
            let holding = self.find_holding(name, namespace)?;
            Some(Predecessor {
                request_name: name.clone(),
                secret_uid: holding.secret_uid.clone()?,
            })
        });
        earlier.collect()
    }

    /// Returns the request's successor in a namespace.
    pub(super) fn find_successor(&self, namespace: &str) -> Option<Successor> {
        let name = self.relatives.successor.clone()?;
        let is_proven = self
            .find_holding(&name, namespace)
            .is_some_and(|holding| holding.is_proven);
        Some(Successor {
            request_name: name,
            is_proven,
        })
    }
}

/// Returns the namespaces with a credential, and those that should have one.
pub(super) fn list_namespaces(request: &FluxAccessRequest, deliveries: Option<&BTreeSet<String>>) -> BTreeSet<String> {
    let ledgers = request.status.iter().flat_map(|status| &status.credentials);
    let recorded = ledgers.map(|ledger| ledger.namespace.clone());
    recorded.chain(deliveries.into_iter().flatten().cloned()).collect()
}
