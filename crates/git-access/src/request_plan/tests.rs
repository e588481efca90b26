//! The results for entries: requests, deliveries, ends.

use tenure_api::access::request::{CredentialLedger, FluxAccessRequestStatus};
use tenure_tenancy::access::approval::ApproverAnswer;

use super::super::configuration::{File, Reading, read_file};
use super::handover::MOST_PREDECESSORS;
use super::*;

fn parse_entries(list: &str) -> Vec<RequestedEntry> {
    let file = File {
        path: "config.yaml",
        is_own: false,
    };
    let text = format!("flux_access: {{ role: read_repository, projects: [{list}] }}");
    let Reading::Read(configuration) = read_file(file, text.as_bytes(), "group-1") else {
        panic!("{text}")
    };
    assert_eq!(configuration.problems, []);
    let asked = |entry| RequestedEntry {
        asked_in: make_agent(),
        author: None,
        entry,
    };
    configuration.entries.into_iter().map(asked).collect()
}

fn make_agent() -> AskedIn {
    AskedIn {
        kind: "Agent".to_owned(),
        name: "prod".to_owned(),
        ..AskedIn::default()
    }
}

fn make_lookup(path: &str, id: u64) -> ((Scope, String), PathLookup) {
    let target = Target {
        scope: Scope::Project,
        id,
        path: path.to_owned(),
    };
    ((Scope::Project, path.to_owned()), PathLookup::Known(target))
}

fn make_approval() -> Verdict {
    Verdict::Approved(ApproverAnswer {
        object: "grant".to_owned(),
        by: "alice".to_owned(),
        reason: None,
        not_after: None,
        is_standing: false,
    })
}

fn make_stored(name: &str, spec: &FluxAccessRequestSpec) -> FluxAccessRequest {
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
    provider: String,
    asked: Vec<RequestedEntry>,
    unread: Vec<(AskedIn, Unread)>,
    group: &'static str,
    looked_up: BTreeMap<(Scope, String), PathLookup>,
    requests: Vec<(FluxAccessRequest, Verdict)>,
    targets: BTreeSet<String>,
    ending: BTreeSet<String>,
}

impl Bed {
    fn plan(&self) -> Plan {
        let namespaces: BTreeSet<&str> = ["team-a", "team-b", "other"].into();
        let seen = Snapshot {
            provider: &self.provider,
            cluster_uid: "c0ffee00-0000",
            platform: "tenure-system",
            asked: &self.asked,
            unread: &self.unread,
            group: self.group,
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

fn make_bed(list: &str) -> Bed {
    Bed {
        provider: "work".to_owned(),
        asked: parse_entries(list),
        unread: Vec::new(),
        group: "group-1",
        looked_up: [make_lookup("group-1/a", 42)].into(),
        requests: Vec::new(),
        targets: BTreeSet::new(),
        ending: BTreeSet::new(),
    }
}

const ENTRY: &str = "{ id: group-1/a, namespaces: [\"team-*\", other] }";

#[test]
fn entry_becomes_request_and_delivers_after_approval() {
    let mut bed = make_bed(ENTRY);
    bed.looked_up.clear();
    let plan = bed.plan();
    assert_eq!(plan.look_up, [(Scope::Project, "group-1/a".to_owned())]);
    assert!(plan.make.is_empty() && plan.problems.is_empty());

    bed.looked_up = [make_lookup("group-1/a", 42)].into();
    let plan = bed.plan();
    let (name, spec) = plan.make.first_key_value().unwrap();
    assert_eq!((plan.make.len(), spec.target.id), (1, 42));
    assert!(plan.targets.contains_key("work-42") && plan.deliveries.is_empty());
    assert_eq!(plan.outcomes[0].1.state, "Pending");
    let both = ["team-a", "team-b"].map(str::to_owned).into();
    assert_eq!(plan.reaching, [(name.clone(), both)].into());
    assert!(
        plan.problems[0].message.contains("other is not the agent's"),
        "{:?}",
        plan.problems
    );

    bed.requests = vec![(make_stored(name, spec), Verdict::Pending(Vec::new()))];
    let plan = bed.plan();
    assert!(plan.make.is_empty() && plan.end.is_empty() && plan.deliveries.is_empty());
    bed.requests[0].1 = make_approval();
    let plan = bed.plan();
    assert_eq!(plan.outcomes[0].1.state, "Approved");
    let there: Vec<&str> = plan.deliveries.values().flatten().map(String::as_str).collect();
    assert_eq!(there, ["team-a", "team-b"]);
}

#[test]
fn approved_request_delivers_until_wider_one_is_approved() {
    let narrow = make_bed("{ id: group-1/a, namespaces: [team-a] }");
    let (name, spec) = narrow.plan().make.pop_first().unwrap();
    let mut wide = make_bed(ENTRY);
    wide.requests = vec![(make_stored(&name, &spec), make_approval())];
    let plan = wide.plan();
    assert_eq!((plan.make.len(), plan.end.len()), (1, 0));
    assert_eq!(plan.deliveries, [(name.clone(), ["team-a".to_owned()].into())].into());
    // After more is approved, no entry asks for the first request any more.
    let (wider, spec) = plan.make.first_key_value().unwrap();
    wide.requests.push((make_stored(wider, spec), make_approval()));
    let plan = wide.plan();
    assert_eq!(plan.end, [name].into());
    assert_eq!(plan.deliveries.keys().collect::<Vec<_>>(), [wider]);
}

/// Sets the credential of a request in a namespace.
fn set_credential(request: &mut FluxAccessRequest, current: Option<bool>) {
    let held = current.map(|is_proven| {
        serde_json::json!({ "generation": 1, "id": 7, "name": "fa/1", "fingerprint": "one", "begunAt": "2026-06-01T08:00:00Z",
            "verifiedAt": is_proven.then_some("2026-06-01T08:10:00Z") })
    });
    let ledger = serde_json::json!({ "namespace": "team-a", "current": held, "secretUid": "s-1" });
    request.status = serde_json::from_value(serde_json::json!({ "credentials": [ledger] })).unwrap();
}

#[test]
fn earlier_request_delivers_until_its_handover_ends() {
    let narrow = make_bed("{ id: group-1/a, namespaces: [team-a] }");
    let (name, spec) = narrow.plan().make.pop_first().unwrap();
    let mut wide = make_bed(ENTRY);
    wide.requests = vec![(make_stored(&name, &spec), make_approval())];
    set_credential(&mut wide.requests[0].0, Some(true));
    let (wider, spec) = wide.plan().make.pop_first().unwrap();
    wide.requests.push((make_stored(&wider, &spec), make_approval()));
    let plan = wide.plan();
    assert!(plan.end.is_empty(), "{:?}", plan.end);
    assert_eq!(plan.handovers, [(name.clone(), wider.clone())].into());
    assert_eq!(plan.deliveries[&name], ["team-a".to_owned()].into());
    assert_eq!(plan.deliveries[&wider].len(), 2);
    // The use of the new credential isn't enough: the old one continues for a while.
    set_credential(&mut wide.requests[1].0, Some(true));
    assert!(wide.plan().end.is_empty());
    // Nothing of the earlier request is left.
    set_credential(&mut wide.requests[0].0, None);
    let plan = wide.plan();
    assert_eq!((&plan.end, plan.handovers.len()), (&[name.clone()].into(), 0));

    // The entry asks for still more, which waits for approval: a handover in progress continues.
    for (request, day) in wide.requests.iter_mut().zip(1_u8..) {
        let made = serde_json::json!(format!("2026-06-0{day}T08:00:00Z"));
        request.0.metadata.creation_timestamp = serde_json::from_value(made).unwrap();
    }
    set_credential(&mut wide.requests[0].0, Some(true));
    set_credential(&mut wide.requests[1].0, None);
    let asked = std::mem::replace(
        &mut wide.asked,
        parse_entries("{ id: group-1/a, namespaces: [\"team-*\", other], rotate: 120d }"),
    );
    let plan = wide.plan();
    assert_eq!(
        (plan.make.len(), plan.end.len(), plan.handovers.len()),
        (1, 0, 1),
        "{plan:?}"
    );
    wide.asked = asked;
    set_credential(&mut wide.requests[1].0, Some(true));

    // A request ends at once without an approval, with another form of Secret, or without a wanted namespace.
    set_credential(&mut wide.requests[0].0, Some(true));
    let (earlier, current) = (wide.requests[0].clone(), wide.requests[1].clone());
    wide.requests[0].1 = Verdict::Pending(Vec::new());
    assert_eq!(wide.plan().end, [name.clone()].into());
    wide.requests[0] = earlier.clone();
    wide.requests[0].0.spec.role = "read_registry".to_owned();
    assert_eq!(wide.plan().end, [name.clone()].into());
    wide.requests[0] = earlier.clone();
    let status = wide.requests[0].0.status.as_mut().unwrap();
    status.credentials[0].namespace = "team-z".to_owned();
    assert_eq!(wide.plan().end, [name.clone()].into());

    // If an entry changes repeatedly, only its latest few requests continue.
    let many = (0..MOST_PREDECESSORS + 2).map(|number| {
        let mut request = earlier.0.clone();
        request.metadata.name = Some(format!("earlier-{number}"));
        request.metadata.creation_timestamp =
            serde_json::from_value(serde_json::json!(format!("2026-06-0{}T08:00:00Z", number + 1))).unwrap();
        request.spec.spec_hash = format!("hash-{number}");
        (request, make_approval())
    });
    wide.requests = many.chain([current]).collect();
    let plan = wide.plan();
    assert_eq!(plan.end, ["earlier-0".to_owned(), "earlier-1".to_owned()].into());
    assert_eq!(plan.handovers.len(), MOST_PREDECESSORS);
}

#[test]
fn missing_answer_ends_no_request() {
    let mut bed = make_bed(ENTRY);
    let (name, spec) = bed.plan().make.pop_first().unwrap();
    bed.requests = vec![(make_stored(&name, &spec), make_approval())];
    let key = (Scope::Project, "group-1/a".to_owned());
    for (looked_up, problems) in [
        (None, 1),
        (Some(PathLookup::Nothing), 2),
        (Some(PathLookup::Unknown("502".to_owned())), 2),
    ] {
        bed.looked_up = looked_up.into_iter().map(|found| (key.clone(), found)).collect();
        let plan = bed.plan();
        assert!(plan.end.is_empty() && plan.make.is_empty(), "{plan:?}");
        assert_eq!(plan.deliveries.get(&name).map(BTreeSet::len), Some(2));
        assert_eq!(plan.problems.len(), problems, "{:?}", plan.problems);
    }
    // The whole file has been unreadable since the start.
    bed.asked.clear();
    bed.unread = vec![(make_agent(), Unread::of_anything())];
    let plan = bed.plan();
    assert_eq!((plan.end.len(), plan.deliveries[&name].len()), (0, 1));
    // The control: the file is readable and asks for nothing.
    bed.unread.clear();
    let plan = bed.plan();
    assert_eq!(plan.end, [name].into());
    assert!(plan.deliveries.is_empty());
}

#[test]
fn target_is_removed_once_unused() {
    let mut bed = make_bed(ENTRY);
    let (name, spec) = bed.plan().make.pop_first().unwrap();
    bed.targets = ["work-41".to_owned(), "work-42".to_owned(), "work-43".to_owned()].into();
    bed.ending = ["work-43".to_owned()].into();
    assert_eq!(bed.plan().forget, ["work-41".to_owned()].into());
    // No entry asks any more: the target stays until the request has ended.
    bed.requests = vec![(make_stored(&name, &spec), make_approval())];
    bed.asked.clear();
    let plan = bed.plan();
    assert_eq!((plan.end.len(), &plan.forget), (1, &["work-41".to_owned()].into()));
    bed.requests.clear();
    assert_eq!(bed.plan().forget.len(), 2);
    // While the entries are unknown, no target is removed.
    bed.unread = vec![(make_agent(), Unread::of_anything())];
    assert!(bed.plan().forget.is_empty());
    bed.unread.clear();
    bed.asked = parse_entries(ENTRY);
    bed.looked_up.clear();
    assert!(bed.plan().forget.is_empty());
}

#[test]
fn new_project_at_path_needs_new_request() {
    let mut bed = make_bed(ENTRY);
    let (name, spec) = bed.plan().make.pop_first().unwrap();
    bed.requests = vec![(make_stored(&name, &spec), make_approval())];
    bed.looked_up = [make_lookup("group-1/a", 43)].into();
    let plan = bed.plan();
    assert_eq!(plan.make.values().next().map(|spec| spec.target.id), Some(43));
    assert!(plan.end.contains(&name) && plan.deliveries.is_empty());
}

#[test]
fn requests_per_asker_are_bounded() {
    let mut bed = make_bed(ENTRY);
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

/// A mistake in a file ends no request. Only the removal of a whole entry does.
#[test]
fn unreadable_entry_keeps_approved_request() {
    let both =
        "{ id: group-1/a, namespaces: [\"team-*\"] }, { id: group-1/b, secret_name: other, namespaces: [\"team-*\"] }";
    let mut bed = make_bed(both);
    bed.looked_up.extend([make_lookup("group-1/b", 43)]);
    let made = bed.plan().make;
    bed.requests = made
        .iter()
        .map(|(name, spec)| (make_stored(name, spec), make_approval()))
        .collect();
    let find = |path: &str| {
        let mut made = made.iter();
        made.find(|(_, spec)| spec.target.path == path).unwrap().0.clone()
    };
    let (a, b) = (find("group-1/a"), find("group-1/b"));
    let unread = |text: &str| {
        let file = File {
            path: "config.yaml",
            is_own: false,
        };
        let Reading::Read(configuration) = read_file(file, format!("flux_access: {text}").as_bytes(), "group-1") else {
            panic!("{text}")
        };
        assert_ne!(configuration.problems, [], "{text}");
        let asked = |entry| RequestedEntry {
            asked_in: make_agent(),
            author: None,
            entry,
        };
        let asked: Vec<RequestedEntry> = configuration.entries.into_iter().map(asked).collect();
        (asked, vec![(make_agent(), configuration.unread)])
    };
    let many: String = (0..500)
        .map(|at| format!("{{ id: group-1/x{at}, secret_name: x{at}, namespaces: [other] }}, "))
        .collect();
    let cases = [
        // The first entry is wrong, and the second was removed.
        (
            "{ projects: [{ id: group-1/a, rotate: 90x, namespaces: [team-a] }] }",
            [true, false],
        ),
        ("{ projects: [{ id: GROUP-1/A, namespaces: [] }] }", [true, false]),
        (
            "{ projects: [{ id: group-1/a, namespaces: [team-a], nonsense: 1 }] }",
            [true, false],
        ),
        (
            "{ role: admin, projects: [{ id: group-1/b, namespaces: [team-a] }] }",
            [false, true],
        ),
        // The path of the wrong entry is not known.
        (
            "{ projects: [{ id: elsewhere/a, namespaces: [team-a] }] }",
            [true, true],
        ),
        ("{ projects: [{ namespaces: [team-a] }] }", [true, true]),
        ("{ projects: [group-1/a] }", [true, true]),
        ("{ projects: group-1/a }", [true, true]),
        ("{ project: [{ id: group-1/a, namespaces: [team-a] }] }", [true, true]),
        // Too many entries.
        (
            &format!("{{ projects: [{many}{{ id: group-1/a, namespaces: [team-a] }}] }}"),
            [true, false],
        ),
    ];
    for (text, stays) in cases {
        (bed.asked, bed.unread) = unread(text);
        let plan = bed.plan();
        let ends = [&a, &b].map(|name| plan.end.contains(name));
        assert_eq!(ends, stays.map(|stays| !stays), "{text}");
        let delivered = [&a, &b].map(|name| {
            plan.deliveries
                .get(name)
                .is_some_and(|places| places.contains("team-a"))
        });
        assert_eq!(delivered, stays, "{text}");
    }
    // A narrower spec.topLevelGroup ends requests all the same.
    bed.unread = vec![(make_agent(), Unread::of_anything())];
    bed.group = "group-2";
    assert_eq!(bed.plan().end, [a, b].into());
}

#[test]
fn request_name_fits_into_a_label() {
    let list = "{ id: group-1/a, namespaces: [team-a] }";
    let mut bed = make_bed(list);
    bed.provider = "w".repeat(47);
    let fits = bed.plan();
    assert_eq!(fits.make.keys().map(String::len).collect::<Vec<_>>(), [63]);
    assert_eq!(fits.problems, []);
    bed.provider = "w".repeat(48);
    let plan = bed.plan();
    assert!(plan.make.is_empty() && plan.targets.is_empty(), "{plan:?}");
    let message = &plan.problems[0].message;
    assert!(
        message.contains("create the AccessProvider with a shorter name than w"),
        "{message}"
    );
}
