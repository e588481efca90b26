//! The namespaces that would have a request's Secret now. The rules are elsewhere: `tenure_tenancy::access` decides about receivers, and the assignment decides
//! which request has a Secret that two want. Only namespaces that match the request's patterns are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use tenure_api::access::{AccessProvider, FluxAccessRequest};
use tenure_tenancy::access::approval::is_of_same_entry;
use tenure_tenancy::access::receiver::{EntryAuthor, Installation, ProviderReach, check_receiver};
use tenure_tenancy::access::{NamespacePattern, ReceivingNamespace};
use tenure_tenancy::{Placement, TenancyFacts};

use super::{APPROVED, ObservedFacts, ReadResult, name_of};
use tenure_git_access::configuration::assignment::{Asker, Claim, assign_secrets};
use tenure_git_access::configuration::{Entry, Place};
use tenure_git_access::request::read_target;
use tenure_remote_requests::git_host::Role;

/// The namespaces and Tenants that decide which namespaces may receive a Secret.
#[derive(Clone, Debug, Default)]
pub struct KnownPlacements {
    /// Tenants and namespaces.
    pub tenancy: TenancyFacts,
    /// All known namespaces, as receivers.
    pub namespaces: Vec<ReceivingNamespace>,
}

/// A namespace that a request names, or matches by a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Receiver {
    /// The namespace.
    pub namespace: String,
    /// True if the namespace would have the Secret.
    pub receives: bool,
    /// The reason if not, and the user who can change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Lists all namespaces that a request names or matches, sorted by name.
///
/// # Errors
/// The reason why the list is unknown.
pub fn list(seen: &ObservedFacts, request: &FluxAccessRequest) -> ReadResult<Vec<Receiver>> {
    let surrounding = seen.surrounding.as_ref().map_err(Clone::clone)?;
    let provider = seen.find_provider(&request.spec.provider)?;
    if provider.is_none() {
        return Err(format!(
            "there is no AccessProvider {} in namespace {}",
            request.spec.provider, seen.platform
        ));
    }
    let others = seen.requests.as_deref().unwrap_or_default();
    // Only one request of each entry is served, and a request without an approval has no Secret.
    let others = others.iter().filter(|other| {
        name_of(other) != name_of(request)
            && !is_of_same_entry(&other.spec, &request.spec)
            && seen.find_state(other).word == APPROVED
    });
    let requests: Vec<&FluxAccessRequest> = std::iter::once(request).chain(others).collect();
    let entries: Vec<Entry> = requests.iter().map(|request| read_entry(request)).collect();
    let claims: Vec<Claim<'_>> = requests
        .iter()
        .zip(&entries)
        .map(|(request, entry)| Claim {
            asker: read_asker(request),
            entry,
        })
        .collect();
    let by_name: BTreeMap<&str, &ReceivingNamespace> = surrounding
        .namespaces
        .iter()
        .map(|namespace| (namespace.name.as_str(), namespace))
        .collect();
    let installation = Installation {
        platform: &seen.platform,
        judges_writes: true,
    };
    let mut placements: BTreeMap<&str, Placement> = BTreeMap::new();
    for request in &requests {
        let asked = request.spec.asked_in.namespace.as_str();
        if !asked.is_empty() {
            placements
                .entry(asked)
                .or_insert_with(|| surrounding.tenancy.find_placement(asked));
        }
    }
    let reaches: BTreeMap<&str, ProviderReach> = requests
        .iter()
        .filter_map(|other| {
            Some((
                other.spec.provider.as_str(),
                seen.find_provider(&other.spec.provider).ok()??,
            ))
        })
        .map(|(name, provider)| (name, read_reach(provider)))
        .collect();
    let check = |request: &FluxAccessRequest, namespace: &str| -> Result<(), String> {
        let Some(receiver) = by_name.get(namespace) else {
            return Err(format!(
                "namespace {namespace} does not exist: it is delivered there once it does"
            ));
        };
        let asked = &request.spec.asked_in;
        let asker = match placements.get(asked.namespace.as_str()) {
            Some(placement) if asked.kind != "Agent" => EntryAuthor::Object(&asked.namespace, placement),
            _ => EntryAuthor::Agent,
        };
        let group = (request.spec.target.scope == "group").then_some(request.spec.target.id);
        let Some(reach) = reaches.get(request.spec.provider.as_str()) else {
            return Err(format!("there is no AccessProvider {}", request.spec.provider));
        };
        let holder = surrounding.tenancy.find_holder(namespace);
        check_receiver(asker, reach, group, (receiver, &holder), installation).map_err(|denial| denial.message)
    };
    let all: BTreeSet<&str> = by_name.keys().copied().collect();
    let may_reach = |position: usize, _: &Claim<'_>, namespace: &str| match requests.get(position) {
        Some(request) => check(request, namespace),
        None => Err(String::new()),
    };
    let assigned = assign_secrets(&claims, &all, &seen.platform, may_reach);
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for pattern in entries.first().into_iter().flat_map(|entry| &entry.namespaces) {
        match pattern.is_name() {
            true => {
                names.insert(pattern.as_str());
            }
            false => names.extend(all.iter().filter(|name| pattern.matches(name, &seen.platform))),
        }
    }
    let of_others = |namespace: &str| {
        let delivery = assigned.deliveries.iter().find(|delivery| {
            delivery.namespace == namespace
                && entries
                    .get(delivery.claim)
                    .is_some_and(|entry| entry.secret_name == request.spec.secret_name)
        });
        delivery
            .filter(|delivery| delivery.claim != 0)
            .and_then(|delivery| requests.get(delivery.claim))
    };
    let judge = |namespace: &str| -> Result<(), String> {
        check(request, namespace)?;
        match of_others(namespace) {
            None => Ok(()),
            Some(other) => Err(format!(
                "Secret {} in {namespace} is that of FluxAccessRequest {}: one of both has to choose another secret_name",
                request.spec.secret_name,
                name_of(other)
            )),
        }
    };
    Ok(names
        .into_iter()
        .map(|namespace| {
            let judged = judge(namespace);
            Receiver {
                namespace: namespace.to_owned(),
                receives: judged.is_ok(),
                why: judged.err(),
            }
        })
        .collect())
}

fn read_patterns(texts: &[String]) -> Vec<NamespacePattern> {
    // An invalid pattern allows nothing.
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn read_reach(provider: &AccessProvider) -> ProviderReach {
    ProviderReach {
        name: provider.metadata.name.clone().unwrap_or_default(),
        namespaces: read_patterns(&provider.spec.namespaces),
        group_namespaces: provider.spec.group_namespaces.clone(),
        tenants: provider.spec.tenants.clone(),
    }
}

fn read_asker(request: &FluxAccessRequest) -> Asker {
    let asked = &request.spec.asked_in;
    match asked.kind.as_str() {
        "Agent" => Asker::Agent(asked.name.clone()),
        _ => Asker::Object(asked.namespace.clone(), asked.name.clone()),
    }
}

/// Returns the entry of a request, with the fields that the assignment reads.
fn read_entry(request: &FluxAccessRequest) -> Entry {
    let spec = &request.spec;
    Entry {
        place: Place {
            file: Arc::from(name_of(request)),
            line: None,
            entry: String::new(),
        },
        scope: read_target(&spec.target).scope,
        path: spec.target.path.clone(),
        role: if spec.role == "read_repository" {
            Role::ReadRepository
        } else {
            Role::ReadRegistry
        },
        rotate: spec.rotate.parse().unwrap_or_default(),
        secret_name: spec.secret_name.clone(),
        namespaces: read_patterns(&spec.namespaces),
        service_accounts: spec.service_accounts.clone(),
        is_strict: spec.strict,
        is_for_images: spec.image_pull_secrets,
    }
}
