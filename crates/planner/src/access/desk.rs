//! What is made of everything that is asked of one host: which requests are there, and which of them delivers to which namespace.
//!
//! Owns that a request is made of each entry whose number is known, that what was approved before goes on until more is approved, and that a request ends
//! which nobody asks for any more. Refuses to end one for want of an answer: what couldn't be read, or looked up, leaves everything as it was.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::access::asked::EntryRequest;
use tenure_api::access::request::AskedIn;
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestSpec, FluxAccessTargetSpec, name_target};
use tenure_tenancy::access::NamespacePattern;
use tenure_tenancy::access::approval::{Serving, Verdict, choose};

use super::configuration::assignment::{Claim, Source, assign};
use super::configuration::{Entry, Place, Problem};
use super::host::{Scope, Target};
use super::request::{Asking, make_request, name_request, name_scope};

/// The most requests of one who asks: a Tenant, a namespace that is none's, or the platform.
pub const MOST_OF_AN_ASKER: usize = 1_000;
/// The most paths that are looked up at once.
pub const MOST_LOOK_UPS: usize = 16;

/// An entry, and who asks by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Where it stands.
    pub asked_in: AskedIn,
    /// The user who wrote it; none of an agent's configuration.
    pub author: Option<String>,
    /// What is asked for.
    pub entry: Entry,
}

impl Asked {
    fn source(&self) -> Source {
        match self.asked_in.kind.as_str() {
            "Agent" => Source::Agent(self.asked_in.name.clone()),
            _ => Source::Object(self.asked_in.namespace.clone(), self.asked_in.name.clone()),
        }
    }
}

/// What the host says of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookedUp {
    /// It is there.
    Known(Target),
    /// It isn't, or may not be seen: both read alike.
    Nothing,
    /// Nobody knows, and why.
    Unknown(String),
}

/// What was observed.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Name of the AccessProvider.
    pub provider: &'a str,
    /// Uid of this cluster's namespace `kube-system`.
    pub cluster_uid: &'a str,
    /// The platform namespace.
    pub platform: &'a str,
    /// All entries that could be read.
    pub asked: &'a [Asked],
    /// Where entries may stand that could not be read.
    pub unread: &'a [AskedIn],
    /// What the host has said of paths.
    pub looked_up: &'a BTreeMap<(Scope, String), LookedUp>,
    /// The requests that there are for this provider and don't end, each with what holds for it.
    pub requests: &'a [(FluxAccessRequest, Verdict)],
    /// All namespaces.
    pub namespaces: &'a BTreeSet<&'a str>,
    /// Names of the FluxAccessTargets that were made for this provider.
    pub targets: &'a BTreeSet<String>,
    /// Of these, those of requests that are on their way out.
    pub ending: &'a BTreeSet<String>,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Paths that the host is to be asked about.
    pub look_up: Vec<(Scope, String)>,
    /// Requests to be made, by name.
    pub make: BTreeMap<String, FluxAccessRequestSpec>,
    /// Names of requests that nobody asks for any more.
    pub end: BTreeSet<String>,
    /// The namespaces of each request, by its name: there its Secret is.
    pub deliveries: BTreeMap<String, BTreeSet<String>>,
    /// Names of requests that would have their Secret in some namespace if they were let through: who asks may reach one, and it is there.
    pub reaching: BTreeSet<String>,
    /// The targets of all requests, by name.
    pub targets: BTreeMap<String, FluxAccessTargetSpec>,
    /// Names of targets that no request is about any more.
    pub forget: BTreeSet<String>,
    /// What is wrong with single entries.
    pub problems: Vec<Problem>,
    /// The request of each entry, by where it stands.
    pub outcomes: Vec<(Place, EntryRequest)>,
}

/// What to do. `may_reach` says whether an entry may have its Secret in a namespace, or why not; it is given the number of a group whose credential is asked for.
#[must_use]
pub fn plan(seen: Snapshot<'_>, may_reach: impl Fn(&Asked, Option<u64>, &str) -> Result<(), String>) -> Plan {
    let mut plan = Plan::default();
    let mut by_entry: BTreeMap<(u64, &str), Vec<(&FluxAccessRequest, Verdict)>> = BTreeMap::new();
    for (request, verdict) in seen.requests {
        let key = (request.spec.target.id, request.spec.secret_name.as_str());
        by_entry.entry(key).or_default().push((request, verdict.clone()));
    }
    let mut resolved: Vec<(&Asked, FluxAccessRequestSpec)> = Vec::new();
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
            plan.complain(&asked.entry, format!("{MOST_OF_AN_ASKER} entries of one tenant are the most: this one and those behind it are left out; ask for groups, or use patterns"));
            continue;
        }
        if let Some(target) = resolve(seen, asked, &mut plan) {
            let asking = Asking {
                provider: seen.provider.to_owned(),
                asked_in: asked.asked_in.clone(),
                author: asked.author.clone(),
                cluster_uid: seen.cluster_uid.to_owned(),
            };
            resolved.push((asked, make_request(&asked.entry, &target, &asking)));
        }
    }
    let claims: Vec<Claim<'_>> = resolved
        .iter()
        .map(|(asked, _)| Claim {
            source: asked.source(),
            entry: &asked.entry,
        })
        .collect();
    let assignment = assign(&claims, seen.namespaces, seen.platform, |index, _, namespace| {
        let Some((asked, spec)) = resolved.get(index) else {
            return Err("it is not known".to_owned());
        };
        let group = (asked.entry.scope == Scope::Group).then_some(spec.target.id);
        may_reach(asked, group, namespace)
    });
    plan.problems.extend(assignment.problems);
    let mut kept: BTreeSet<String> = BTreeSet::new();
    let mut serving: Vec<Option<&FluxAccessRequest>> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (asked, wanted) in &resolved {
        let none = Vec::new();
        let candidates = by_entry
            .get(&(wanted.target.id, wanted.secret_name.as_str()))
            .unwrap_or(&none);
        let own = candidates
            .iter()
            .find(|(request, _)| request.spec.spec_hash == wanted.spec_hash);
        let served = choose(wanted, candidates, seen.platform);
        let (request, is_whole) = match served {
            Serving::By(request) => (Some(request), true),
            Serving::Meanwhile(request) => (Some(request), false),
            Serving::Nobody => (None, false),
        };
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
        serving.push(request);
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
        plan.reaching.extend(names.get(delivery.claim).cloned());
        let Some(request) = serving.get(delivery.claim).copied().flatten() else {
            continue;
        };
        // What was approved before may be for less than what is asked for now.
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
    for (request, _) in seen.requests {
        let name = name_of(request);
        if kept.contains(&name) {
            plan.targets.insert(
                name_target(seen.provider, request.spec.target.id),
                describe_target(&request.spec),
            );
        } else if seen.unread.contains(&request.spec.asked_in) {
            // As it was.
            let was_shown = request.status.as_ref().is_some_and(|status| status.notice.is_some());
            plan.reaching.extend(was_shown.then(|| name.clone()));
            let ledgers = request.status.iter().flat_map(|status| &status.credentials);
            let there = ledgers.filter(|ledger| seen.namespaces.contains(ledger.namespace.as_str()));
            plan.deliveries
                .insert(name, there.map(|ledger| ledger.namespace.clone()).collect());
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

/// Those that nothing is about. While it isn't known what all entries are about, none; what has just ended keeps its own until it is gone.
fn list_forgotten(seen: Snapshot<'_>, plan: &Plan) -> BTreeSet<String> {
    if !plan.look_up.is_empty() || !seen.unread.is_empty() {
        return BTreeSet::new();
    }
    let requested = seen.requests.iter().map(|(request, _)| request.spec.target.id);
    let requested: BTreeSet<String> = requested.map(|id| name_target(seen.provider, id)).collect();
    let is_spare = |name: &&String| {
        !plan.targets.contains_key(*name) && !requested.contains(*name) && !seen.ending.contains(*name)
    };
    seen.targets.iter().filter(is_spare).cloned().collect()
}

impl Plan {
    fn complain(&mut self, entry: &Entry, message: String) {
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

/// The number of what an entry names. What was asked for before keeps its number while the host doesn't say anything else.
fn resolve(seen: Snapshot<'_>, asked: &Asked, plan: &mut Plan) -> Option<Target> {
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
        Some(LookedUp::Known(target)) => Some(target.clone()),
        Some(LookedUp::Nothing) => {
            let message = format!(
                "there is no {kind} of this path, or the authoriser may not see it: look at the path, or ask its owner to add the authoriser"
            );
            plan.complain(entry, message);
            before()
        }
        Some(LookedUp::Unknown(why)) => {
            let message = format!("which {kind} this is could not be asked: {why}");
            plan.complain(entry, message);
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
mod tests {
    use tenure_api::access::request::{CredentialLedger, FluxAccessRequestStatus};
    use tenure_tenancy::access::approval::Word;

    use super::super::configuration::{File, Reading, read_file};
    use super::*;

    fn entries(list: &str) -> Vec<Asked> {
        let file = File {
            path: "config.yaml",
            is_own: false,
        };
        let text = format!("flux_access: {{ role: read_repository, projects: [{list}] }}");
        let Reading::Read(configuration) = read_file(file, text.as_bytes(), "group-1") else {
            panic!("{text}")
        };
        assert_eq!(configuration.problems, []);
        let asked = |entry| Asked {
            asked_in: agent(),
            author: None,
            entry,
        };
        configuration.entries.into_iter().map(asked).collect()
    }

    fn agent() -> AskedIn {
        AskedIn {
            kind: "Agent".to_owned(),
            name: "prod".to_owned(),
            ..AskedIn::default()
        }
    }

    fn known(path: &str, id: u64) -> ((Scope, String), LookedUp) {
        let target = Target {
            scope: Scope::Project,
            id,
            path: path.to_owned(),
        };
        ((Scope::Project, path.to_owned()), LookedUp::Known(target))
    }

    fn approved() -> Verdict {
        Verdict::Approved(Word {
            object: "grant".to_owned(),
            by: "alice".to_owned(),
            reason: None,
            not_after: None,
            is_standing: false,
        })
    }

    fn stored(name: &str, spec: &FluxAccessRequestSpec) -> FluxAccessRequest {
        let mut request = FluxAccessRequest::new(name, spec.clone());
        request.status = Some(FluxAccessRequestStatus {
            credentials: vec![CredentialLedger {
                namespace: "team-a".to_owned(),
                ..CredentialLedger::default()
            }],
            ..FluxAccessRequestStatus::default()
        });
        request
    }

    struct Bed {
        asked: Vec<Asked>,
        unread: Vec<AskedIn>,
        looked_up: BTreeMap<(Scope, String), LookedUp>,
        requests: Vec<(FluxAccessRequest, Verdict)>,
        targets: BTreeSet<String>,
        ending: BTreeSet<String>,
    }

    impl Bed {
        fn plan(&self) -> Plan {
            let namespaces: BTreeSet<&str> = ["team-a", "team-b", "other"].into();
            let seen = Snapshot {
                provider: "work",
                cluster_uid: "c0ffee00-0000",
                platform: "tenure-system",
                asked: &self.asked,
                unread: &self.unread,
                looked_up: &self.looked_up,
                requests: &self.requests,
                namespaces: &namespaces,
                targets: &self.targets,
                ending: &self.ending,
            };
            plan(seen, |_, _, namespace| match namespace {
                "other" => Err("namespace other is not the agent's".to_owned()),
                _ => Ok(()),
            })
        }
    }

    fn bed(list: &str) -> Bed {
        Bed {
            asked: entries(list),
            unread: Vec::new(),
            looked_up: [known("group-1/a", 42)].into(),
            requests: Vec::new(),
            targets: BTreeSet::new(),
            ending: BTreeSet::new(),
        }
    }

    const ENTRY: &str = "{ id: group-1/a, namespaces: [\"team-*\", other] }";

    #[test]
    fn an_entry_becomes_a_request_and_delivers_once_it_is_approved() {
        let mut bed = bed(ENTRY);
        bed.looked_up.clear();
        let plan = bed.plan();
        assert_eq!(plan.look_up, [(Scope::Project, "group-1/a".to_owned())]);
        assert!(plan.make.is_empty() && plan.problems.is_empty());

        bed.looked_up = [known("group-1/a", 42)].into();
        let plan = bed.plan();
        let (name, spec) = plan.make.first_key_value().unwrap();
        assert_eq!((plan.make.len(), spec.target.id), (1, 42));
        assert!(plan.targets.contains_key("work-42") && plan.deliveries.is_empty());
        assert_eq!(plan.outcomes[0].1.state, "Pending");
        assert_eq!(plan.reaching, [name.clone()].into());
        assert!(
            plan.problems[0].message.contains("other is not the agent's"),
            "{:?}",
            plan.problems
        );

        bed.requests = vec![(stored(name, spec), Verdict::Pending(Vec::new()))];
        let plan = bed.plan();
        assert!(plan.make.is_empty() && plan.end.is_empty() && plan.deliveries.is_empty());
        bed.requests[0].1 = approved();
        let plan = bed.plan();
        assert_eq!(plan.outcomes[0].1.state, "Approved");
        let there: Vec<&str> = plan.deliveries.values().flatten().map(String::as_str).collect();
        assert_eq!(there, ["team-a", "team-b"]);
    }

    #[test]
    fn what_was_approved_goes_on_until_more_is() {
        let narrow = bed("{ id: group-1/a, namespaces: [team-a] }");
        let (name, spec) = narrow.plan().make.pop_first().unwrap();
        let mut wide = bed(ENTRY);
        wide.requests = vec![(stored(&name, &spec), approved())];
        let plan = wide.plan();
        assert_eq!((plan.make.len(), plan.end.len()), (1, 0));
        assert_eq!(plan.deliveries, [(name.clone(), ["team-a".to_owned()].into())].into());
        // Once more is approved, nobody asks for the first any more.
        let (wider, spec) = plan.make.first_key_value().unwrap();
        wide.requests.push((stored(wider, spec), approved()));
        let plan = wide.plan();
        assert_eq!(plan.end, [name].into());
        assert_eq!(plan.deliveries.keys().collect::<Vec<_>>(), [wider]);
    }

    #[test]
    fn nothing_ends_for_want_of_an_answer() {
        let mut bed = bed(ENTRY);
        let (name, spec) = bed.plan().make.pop_first().unwrap();
        bed.requests = vec![(stored(&name, &spec), approved())];
        let key = (Scope::Project, "group-1/a".to_owned());
        for (looked_up, problems) in [
            (None, 1),
            (Some(LookedUp::Nothing), 2),
            (Some(LookedUp::Unknown("502".to_owned())), 2),
        ] {
            bed.looked_up = looked_up.into_iter().map(|said| (key.clone(), said)).collect();
            let plan = bed.plan();
            assert!(plan.end.is_empty() && plan.make.is_empty(), "{plan:?}");
            assert_eq!(plan.deliveries.get(&name).map(BTreeSet::len), Some(2));
            assert_eq!(plan.problems.len(), problems, "{:?}", plan.problems);
        }
        // The whole file can't be read, since the start.
        bed.asked.clear();
        bed.unread = vec![agent()];
        let plan = bed.plan();
        assert_eq!((plan.end.len(), plan.deliveries[&name].len()), (0, 1));
        // The control: it is read, and asks for nothing.
        bed.unread.clear();
        let plan = bed.plan();
        assert_eq!(plan.end, [name].into());
        assert!(plan.deliveries.is_empty());
    }

    #[test]
    fn a_target_goes_once_nothing_is_about_it() {
        let mut bed = bed(ENTRY);
        let (name, spec) = bed.plan().make.pop_first().unwrap();
        bed.targets = ["work-41".to_owned(), "work-42".to_owned(), "work-43".to_owned()].into();
        bed.ending = ["work-43".to_owned()].into();
        assert_eq!(bed.plan().forget, ["work-41".to_owned()].into());
        // Nobody asks any more: its target stays until it has ended.
        bed.requests = vec![(stored(&name, &spec), approved())];
        bed.asked.clear();
        let plan = bed.plan();
        assert_eq!((plan.end.len(), &plan.forget), (1, &["work-41".to_owned()].into()));
        bed.requests.clear();
        assert_eq!(bed.plan().forget.len(), 2);
        // As long as it isn't known what is asked for, nothing goes.
        bed.unread = vec![agent()];
        assert!(bed.plan().forget.is_empty());
        bed.unread.clear();
        bed.asked = entries(ENTRY);
        bed.looked_up.clear();
        assert!(bed.plan().forget.is_empty());
    }

    #[test]
    fn another_project_under_the_path_is_another_request() {
        let mut bed = bed(ENTRY);
        let (name, spec) = bed.plan().make.pop_first().unwrap();
        bed.requests = vec![(stored(&name, &spec), approved())];
        bed.looked_up = [known("group-1/a", 43)].into();
        let plan = bed.plan();
        assert_eq!(plan.make.values().next().map(|spec| spec.target.id), Some(43));
        assert!(plan.end.contains(&name) && plan.deliveries.is_empty());
    }

    #[test]
    fn one_who_asks_for_very_much_is_bounded() {
        let mut bed = bed(ENTRY);
        let one = bed.asked[0].clone();
        bed.asked = (0..MOST_OF_AN_ASKER + 2)
            .map(|number| {
                let mut asked = one.clone();
                asked.entry.secret_name = format!("s{number}");
                asked
            })
            .collect();
        let plan = bed.plan();
        assert_eq!(plan.make.len(), MOST_OF_AN_ASKER);
        let left_out = plan
            .problems
            .iter()
            .filter(|problem| problem.message.contains("are the most"));
        assert_eq!(left_out.count(), 2);
    }
}
