//! The requests of one host: this module derives them from all entries, and decides which request delivers to which namespace.
//!
//! Each entry whose number is known gets a request. An earlier approval stays in effect until more is approved. A request ends after no entry asks for it, or after
//! another request has taken over from it (`handover`). A missing answer ends no request: an unreadable object, or a path that could not be looked up, changes
//! nothing.

pub mod handover;

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::access::flux_access::EntryRequest;
use tenure_api::access::request::AskedIn;
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestSpec, FluxAccessTargetSpec, name_target};
use tenure_api::names::LONGEST_LABEL_VALUE;
use tenure_tenancy::access::NamespacePattern;
use tenure_tenancy::access::approval::{ServedRequest, Verdict, choose_request};

use self::handover::list_predecessors;
use super::configuration::assignment::{Asker, Claim, assign_secrets};
use super::configuration::{Entry, Place, Problem, Unread};
use super::request::{RequestOrigin, make_request, name_request, name_scope};
use tenure_remote_requests::git_host::{Scope, Target};

/// The maximum of requests for one asker: a Tenant, a namespace without a tenant, or the platform.
pub const MOST_OF_AN_ASKER: usize = 1_000;
/// The maximum of paths that are looked up at once.
pub const MOST_LOOK_UPS: usize = 16;

/// A valid entry of a configuration, with its place in the cluster and its author.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedEntry {
    /// The place of the entry.
    pub asked_in: AskedIn,
    /// The user who wrote the entry. Unset for an agent's configuration.
    pub author: Option<String>,
    /// The project or group with its settings.
    pub entry: Entry,
}

impl RequestedEntry {
    fn asker(&self) -> Asker {
        match self.asked_in.kind.as_str() {
            "Agent" => Asker::Agent(self.asked_in.name.clone()),
            _ => Asker::Object(self.asked_in.namespace.clone(), self.asked_in.name.clone()),
        }
    }
}

/// The host's answer to the question which project or group has a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathLookup {
    /// The target exists.
    Known(Target),
    /// The target is missing or invisible: the host's answer is the same in both cases.
    Nothing,
    /// The answer is unknown, for this reason.
    Unknown(String),
}

/// The facts from which the requests of one AccessProvider are planned.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Name of the AccessProvider.
    pub provider: &'a str,
    /// Uid of this cluster's namespace `kube-system`.
    pub cluster_uid: &'a str,
    /// The platform namespace.
    pub platform: &'a str,
    /// All readable entries.
    pub asked: &'a [RequestedEntry],
    /// The unreadable parts, by their object or agent.
    pub unread: &'a [(AskedIn, Unread)],
    /// The host's group that all targets must be in.
    pub group: &'a str,
    /// The known answers of the host about paths.
    pub looked_up: &'a BTreeMap<(Scope, String), PathLookup>,
    /// The requests for this provider that don't end, each with its verdict.
    pub requests: &'a [(FluxAccessRequest, Verdict)],
    /// All namespaces.
    pub namespaces: &'a BTreeSet<&'a str>,
    /// Names of the FluxAccessTargets for this provider.
    pub targets: &'a BTreeSet<String>,
    /// Names among them for requests that are being deleted.
    pub ending: &'a BTreeSet<String>,
}

/// The decisions for all requests of one AccessProvider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Paths to look up at the host.
    pub look_up: Vec<(Scope, String)>,
    /// Requests to create, by name.
    pub make: BTreeMap<String, FluxAccessRequestSpec>,
    /// Names of requests without an entry.
    pub end: BTreeSet<String>,
    /// The namespaces in which each request has its Secret, by the request's name.
    pub deliveries: BTreeMap<String, BTreeSet<String>>,
    /// The requests that deliver until another request of their entry has taken over, each with the name of that request.
    pub handovers: BTreeMap<String, String>,
    /// The namespaces in which a request would have its Secret after an approval, by the request's name. They exist, and the asker may reach them.
    pub reaching: BTreeMap<String, BTreeSet<String>>,
    /// The targets of all requests, by name.
    pub targets: BTreeMap<String, FluxAccessTargetSpec>,
    /// Names of targets without a request.
    pub forget: BTreeSet<String>,
    /// The problems of single entries.
    pub problems: Vec<Problem>,
    /// The request of each entry, by the entry's place.
    pub outcomes: Vec<(Place, EntryRequest)>,
}

/// Plans the requests and deliveries. `may_reach` checks whether an entry may have its Secret in a namespace, and returns the reason if not. For the credential of
/// a group, it gets the group's number.
#[must_use]
pub fn plan(seen: Snapshot<'_>, may_reach: impl Fn(&AskedIn, Option<u64>, &str) -> Result<(), String>) -> Plan {
    let mut plan = Plan::default();
    let mut unread: UnreadParts<'_> = BTreeMap::new();
    for (asked_in, part) in seen.unread {
        unread.entry(make_key(asked_in)).or_default().join(part);
    }
    let mut by_entry: ByEntry<'_> = BTreeMap::new();
    for (request, verdict) in seen.requests {
        let key = (request.spec.target.id, request.spec.secret_name.as_str());
        by_entry.entry(key).or_default().push((request, verdict.clone()));
    }
    let mut resolved: Vec<(&RequestedEntry, FluxAccessRequestSpec)> = Vec::new();
    let mut counts: BTreeMap<(Option<&str>, &str), usize> = BTreeMap::new();
    for asked in seen.asked {
        let count = counts
            .entry((
                asked.asked_in.tenant.as_deref(),
                if asked.asked_in.tenant.is_some() {
                    ""
                } else {
                    &asked.asked_in.namespace
                },
            ))
            .or_default();
        *count += 1;
        if *count > MOST_OF_AN_ASKER {
            plan.add_problem(&asked.entry, format!("{MOST_OF_AN_ASKER} entries of one tenant are the most: this one and those behind it are left out; ask for groups, or use patterns"));
            let part = unread.entry(make_key(&asked.asked_in)).or_default();
            part.add(Some(&asked.entry.path));
            continue;
        }
        if let Some(target) = resolve_target(seen, asked, &mut plan) {
            let asking = RequestOrigin {
                provider: seen.provider.to_owned(),
                asked_in: asked.asked_in.clone(),
                author: asked.author.clone(),
                cluster_uid: seen.cluster_uid.to_owned(),
            };
            let wanted = make_request(&asked.entry, &target, &asking);
            let name = name_request(&wanted);
            if name.len() > LONGEST_LABEL_VALUE {
                plan.add_problem(&asked.entry, format!("the FluxAccessRequest would be called {name}, and its Secrets get the name as a label, which holds at most {LONGEST_LABEL_VALUE} characters: create the AccessProvider with a shorter name than {}", seen.provider));
                continue;
            }
            resolved.push((asked, wanted));
        }
    }
    let claims: Vec<Claim<'_>> = resolved
        .iter()
        .map(|(asked, _)| Claim {
            asker: asked.asker(),
            entry: &asked.entry,
        })
        .collect();
    let assignment = assign_secrets(&claims, seen.namespaces, seen.platform, |index, _, namespace| {
        let Some((asked, spec)) = resolved.get(index) else {
            return Err("it is not known".to_owned());
        };
        let group = (asked.entry.scope == Scope::Group).then_some(spec.target.id);
        may_reach(&asked.asked_in, group, namespace)
    });
    plan.problems.extend(assignment.problems);
    let mut kept: BTreeSet<String> = BTreeSet::new();
    let mut serving: Vec<ServedRequest<'_>> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (asked, wanted) in &resolved {
        let none = Vec::new();
        let candidates = by_entry
            .get(&(wanted.target.id, wanted.secret_name.as_str()))
            .unwrap_or(&none);
        let own = candidates
            .iter()
            .find(|(request, _)| request.spec.spec_hash == wanted.spec_hash);
        let served = choose_request(wanted, candidates, seen.platform);
        let (request, is_whole) = (find_served(&served), matches!(served, ServedRequest::By(_)));
        let name = match (own, request) {
            (Some((own, _)), _) => name_of(own),
            (None, Some(request)) if is_whole => name_of(request),
            (None, _) => {
                let name = name_request(wanted);
                plan.make.insert(name.clone(), wanted.clone());
                name
            }
        };
        kept.insert(name.clone());
        names.push(name.clone());
        kept.extend(request.map(name_of));
        serving.push(served);
        plan.targets
            .insert(name_target(seen.provider, wanted.target.id), describe_target(wanted));
        let state = match (own, is_whole) {
            (_, true) => "Approved",
            (Some((_, Verdict::Denied(_))), _) => "Denied",
            _ => "Pending",
        };
        let outcome = EntryRequest {
            entry: asked.entry.place.entry.clone(),
            request: name,
            state: state.to_owned(),
        };
        plan.outcomes.push((asked.entry.place.clone(), outcome));
    }
    for delivery in &assignment.deliveries {
        if let Some(name) = names.get(delivery.claim) {
            let reaching = plan.reaching.entry(name.clone()).or_default();
            reaching.insert(delivery.namespace.clone());
        }
        let Some(request) = serving.get(delivery.claim).and_then(find_served) else {
            continue;
        };
        // The approved namespaces may be fewer than the entry asks for now.
        let patterns = request
            .spec
            .namespaces
            .iter()
            .filter_map(|text| text.parse::<NamespacePattern>().ok());
        if patterns
            .into_iter()
            .any(|pattern| pattern.matches(&delivery.namespace, seen.platform))
        {
            plan.deliveries
                .entry(name_of(request))
                .or_default()
                .insert(delivery.namespace.clone());
        }
    }
    plan.keep_predecessors(&resolved, &serving, &by_entry, &mut kept);
    for (request, _) in seen.requests {
        let name = name_of(request);
        if kept.contains(&name) {
            plan.targets.insert(
                name_target(seen.provider, request.spec.target.id),
                describe_target(&request.spec),
            );
        } else if may_be_asked_for(&unread, seen.group, &request.spec) {
            // The earlier deliveries stay where the asker may still reach them.
            if let Some(status) = request.status.as_ref().filter(|status| status.notice.is_some()) {
                // The status of an earlier version has no receivers.
                let before = match status.receivers.is_empty() {
                    true => &request.spec.namespaces,
                    false => &status.receivers,
                };
                plan.reaching.insert(name.clone(), before.iter().cloned().collect());
            }
            let spec = &request.spec;
            let group = (spec.target.scope == name_scope(Scope::Group)).then_some(spec.target.id);
            let ledgers = request.status.iter().flat_map(|status| &status.credentials);
            let there = ledgers.map(|ledger| ledger.namespace.as_str()).filter(|namespace| {
                seen.namespaces.contains(namespace) && may_reach(&spec.asked_in, group, namespace).is_ok()
            });
            plan.deliveries.insert(name, there.map(str::to_owned).collect());
            plan.targets.insert(
                name_target(seen.provider, request.spec.target.id),
                describe_target(&request.spec),
            );
        } else {
            plan.end.insert(name);
        }
    }
    plan.forget = list_forgotten(seen, &plan);
    plan
}

/// The unreadable parts, by kind, namespace, name and tenant of their object or agent.
type UnreadParts<'a> = BTreeMap<(&'a str, &'a str, &'a str, Option<&'a str>), Unread>;

fn make_key(asked_in: &AskedIn) -> (&str, &str, &str, Option<&str>) {
    (
        &asked_in.kind,
        &asked_in.namespace,
        &asked_in.name,
        asked_in.tenant.as_deref(),
    )
}

/// Checks whether a request may belong to an unreadable entry.
fn may_be_asked_for(unread: &UnreadParts<'_>, group: &str, spec: &FluxAccessRequestSpec) -> bool {
    let path = spec.target.path.as_str();
    let first = path.split('/').next().unwrap_or_default();
    let part = unread.get(&make_key(&spec.asked_in));
    first.eq_ignore_ascii_case(group) && part.is_some_and(|part| part.may_name(path))
}

/// Lists the targets that no entry and no request uses. While the targets of some entries are unknown, returns none. A request that is ending keeps its target
/// until the request is gone.
fn list_forgotten(seen: Snapshot<'_>, plan: &Plan) -> BTreeSet<String> {
    // An unreadable entry of a tenant keeps no unused target. Its existing requests keep their targets.
    let mut unread = seen.unread.iter();
    if !plan.look_up.is_empty() || unread.any(|(asked_in, part)| asked_in.kind == "Agent" && part.is_open()) {
        return BTreeSet::new();
    }
    let requested = seen.requests.iter().map(|(request, _)| request.spec.target.id);
    let requested: BTreeSet<String> = requested.map(|id| name_target(seen.provider, id)).collect();
    let is_spare = |name: &&String| {
        !plan.targets.contains_key(*name) && !requested.contains(*name) && !seen.ending.contains(*name)
    };
    seen.targets.iter().filter(is_spare).cloned().collect()
}

/// Returns the request that serves an entry now, if there is one.
fn find_served<'a>(serving: &ServedRequest<'a>) -> Option<&'a FluxAccessRequest> {
    match serving {
        ServedRequest::By(request) | ServedRequest::Meanwhile(request) => Some(request),
        ServedRequest::Nobody => None,
    }
}

/// The requests, each with its verdict, by the number of their target and the name of their Secret.
type ByEntry<'a> = BTreeMap<(u64, &'a str), Vec<(&'a FluxAccessRequest, Verdict)>>;

impl Plan {
    /// Keeps the requests from which others are taking over, and lets them deliver meanwhile.
    fn keep_predecessors(
        &mut self,
        resolved: &[(&RequestedEntry, FluxAccessRequestSpec)],
        serving: &[ServedRequest<'_>],
        by_entry: &ByEntry<'_>,
        kept: &mut BTreeSet<String>,
    ) {
        for ((_, wanted), serving) in resolved.iter().zip(serving) {
            let Some(successor) = find_served(serving) else {
                continue;
            };
            let name = name_of(successor);
            let Some(deliveries) = self.deliveries.get(&name).cloned() else {
                continue;
            };
            let candidates = by_entry.get(&(wanted.target.id, wanted.secret_name.as_str()));
            let candidates = candidates.map(Vec::as_slice).unwrap_or_default();
            for (request, places) in list_predecessors(successor, candidates, &deliveries) {
                let earlier = name_of(request);
                // A request that another entry asks for continues anyway.
                if kept.insert(earlier.clone()) {
                    self.deliveries.insert(earlier.clone(), places);
                    self.handovers.insert(earlier, name.clone());
                }
            }
        }
    }

    fn add_problem(&mut self, entry: &Entry, message: String) {
        self.problems.push(Problem {
            place: entry.place.clone(),
            message,
        });
    }
}

fn name_of(request: &FluxAccessRequest) -> String {
    request.metadata.name.clone().unwrap_or_default()
}

fn describe_target(spec: &FluxAccessRequestSpec) -> FluxAccessTargetSpec {
    FluxAccessTargetSpec {
        provider: spec.provider.clone(),
        scope: spec.target.scope.clone(),
        id: spec.target.id,
    }
}

/// Returns the target of an entry. A target that a request had before keeps its number until the host reports another one.
fn resolve_target(seen: Snapshot<'_>, asked: &RequestedEntry, plan: &mut Plan) -> Option<Target> {
    let entry = &asked.entry;
    let key = (entry.scope, entry.path.clone());
    let before = || {
        let mut requests = seen.requests.iter().map(|(request, _)| &request.spec);
        let found = requests.find(|spec| {
            spec.asked_in == asked.asked_in
                && spec.secret_name == entry.secret_name
                && spec.target.scope == name_scope(entry.scope)
                && spec.target.path == entry.path
        })?;
        Some(Target {
            scope: entry.scope,
            id: found.target.id,
            path: entry.path.clone(),
        })
    };
    let kind = name_scope(entry.scope);
    match seen.looked_up.get(&key) {
        Some(PathLookup::Known(target)) => Some(target.clone()),
        Some(PathLookup::Nothing) => {
            let message = format!(
                "there is no {kind} of this path, or the authoriser may not see it: look at the path, or ask its owner to add the authoriser"
            );
            plan.add_problem(entry, message);
            before()
        }
        Some(PathLookup::Unknown(why)) => {
            let message = format!("the host could not be asked about this {kind}: {why}");
            plan.add_problem(entry, message);
            before()
        }
        None => {
            if plan.look_up.len() < MOST_LOOK_UPS && !plan.look_up.contains(&key) {
                plan.look_up.push(key);
            }
            before()
        }
    }
}

#[cfg(test)]
mod tests;
