//! Plans for an ArtifactGenerator: the generated objects, the refused fields, and the status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::{ArtifactGenerator, ObjectId};
use tenure_planner::artifact_generator::{FoundSource, Plan, Snapshot, SourceState, Step, find_generator_cycle, plan};
use tenure_planner::dependents::Attempt;
use tenure_planner::{Live, Next, Object, Request};
use tenure_remote_requests::artifact::{ArtifactFacts, IncludedArtifact, StoredArtifact};
use tenure_tenancy::{Placement, TenancyFacts};

pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub(crate) fn make_placement() -> Placement {
    let tenancy: TenancyFacts = serde_json::from_value(json!({
        "tenants": [{ "name": "blue", "uid": "t", "recorded": { "blue": "n-blue" } }],
        "namespaces": [{ "name": "blue", "uid": "n-blue", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] }],
    }))
    .unwrap();
    tenancy.find_placement("blue")
}

fn make_generator(spec: Value) -> ArtifactGenerator {
    serde_json::from_value(json!({
        "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
        "metadata": { "name": "gen", "namespace": "blue", "generation": 1, "uid": "g" }, "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn make_source(name: &str, digest: &str) -> FoundSource {
    let facts = ArtifactFacts {
        revision: format!("main@sha1:{digest}"),
        digest: format!("sha256:{digest}"),
        ..ArtifactFacts::default()
    };
    FoundSource {
        kind: "GitRepository".to_owned(),
        namespace: "blue".to_owned(),
        name: name.to_owned(),
        state: SourceState::Stored {
            uid: name.to_owned(),
            artifact: IncludedArtifact {
                facts,
                ..IncludedArtifact::default()
            },
        },
    }
}

pub(crate) fn make_spec() -> Value {
    json!({
        "sources": [
            { "alias": "repo", "kind": "GitRepository", "name": "mono" },
            { "alias": "other", "kind": "OCIRepository", "name": "base" },
        ],
        "artifacts": [
            { "name": "web", "originRevision": "@repo", "copy": [{ "from": "@repo/web/**", "to": "@artifact/", "exclude": ["*.md"] }] },
            { "name": "chart", "revision": "@other", "copy": [
                { "from": "@other/./chart//", "to": "@artifact/x/./x", "strategy": "Merge" },
                { "from": "@other/a.tgz", "to": "@artifact/a/", "strategy": "Extract" },
            ] },
        ],
        "commonMetadata": { "labels": { "team": "blue" }, "annotations": { "note": "x" } },
    })
}

pub(crate) fn make_snapshot(spec: Value) -> Snapshot {
    let generator = make_generator(spec);
    let attempt = Attempt::new(start(), &generator.metadata);
    let sources = [("repo", make_source("mono", "1")), ("other", make_source("base", "2"))];
    Snapshot {
        judges_writes: true,
        generator,
        placement: make_placement(),
        grants: Vec::new(),
        room: usize::MAX,
        sources: sources
            .into_iter()
            .map(|(alias, source)| (alias.to_owned(), source))
            .collect(),
        cycle: None,
        live: BTreeMap::new(),
        stored: BTreeMap::new(),
        attempt,
        memory: tenure_planner::artifact_generator::Memory::default(),
    }
}

fn plan_now(snapshot: &mut Snapshot) -> Plan {
    let plan = plan(snapshot, start());
    snapshot.memory = plan.memory.clone();
    plan
}

fn describe_ready(plan: &Plan) -> String {
    let conditions = plan
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    ready
        .map(|ready| format!("{} {}: {}", ready.status.as_str(), ready.reason, ready.message))
        .unwrap_or_default()
}

/// Answers reads with no object, and applies with the applied object.
pub(crate) fn carry_out(snapshot: &mut Snapshot) -> Plan {
    for _ in 0..10 {
        let plan = plan_now(snapshot);
        if plan.next != Next::Again {
            return plan;
        }
        for step in &plan.steps {
            match step {
                Step::Request(Request::Read(watched)) => drop(snapshot.live.insert(watched.id.clone(), Live::Absent)),
                Step::Request(Request::Apply(apply)) => {
                    let done = tenure_planner::WriteAnswer::Done(apply.object.clone());
                    snapshot.attempt.applied.insert(apply.id.clone(), done);
                    snapshot
                        .live
                        .insert(apply.id.clone(), Live::Present(apply.object.clone()));
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(
            plan.identity.as_ref().map(ToString::to_string).unwrap(),
            read_lane(),
            "{plan}"
        );
    }
    panic!("no end");
}

fn read_lane() -> String {
    tenure_tenancy::identity::decide_for_lane(&make_placement(), "blue").to_string()
}

#[test]
fn generator_makes_objects_and_recipes() {
    let mut snapshot = make_snapshot(make_spec());
    let plan = carry_out(&mut snapshot);
    let id: ObjectId = "blue_web_source.toolkit.fluxcd.io_ExternalArtifact".parse().unwrap();
    let object = snapshot.live[&id].object().unwrap();
    assert_eq!(
        object["metadata"]["labels"]["source.extensions.fluxcd.io/generator"],
        "g"
    );
    assert_eq!(object["metadata"]["labels"]["team"], "blue");
    assert_eq!(object["metadata"]["annotations"]["note"], "x");
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "g");
    assert_eq!(object["spec"]["sourceRef"]["name"], "gen");
    let stored = plan.memory.recipes.as_ref().unwrap();
    let chart = &stored.recipes["chart"];
    assert_eq!(
        (chart.copies[0].from.as_str(), chart.copies[0].to.as_str()),
        ("chart", "x/x")
    );
    assert!(chart.copies[1].into_folder && !chart.copies[0].into_folder);
    assert_eq!(describe_ready(&plan), "Unknown Progressing: 0 of 2 artifacts are made");

    // The generator is done when the stored artifacts were made of the present sources.
    let artifacts: BTreeMap<String, IncludedArtifact> = stored
        .sources
        .iter()
        .map(|(alias, source)| (alias.clone(), source.find_artifact().unwrap().clone()))
        .collect();
    for (name, recipe) in &stored.recipes {
        let stored = StoredArtifact {
            fingerprint: recipe.fingerprint(&artifacts),
            path: "externalartifact/blue/x/u/abc.tar.gz".to_owned(),
            facts: ArtifactFacts {
                digest: format!("sha256:{name}"),
                ..ArtifactFacts::default()
            },
            ..StoredArtifact::default()
        };
        snapshot.stored.insert(name.clone(), stored);
    }
    snapshot.generator.status = plan.status;
    let plan = plan_now(&mut snapshot);
    assert_eq!(
        describe_ready(&plan),
        "True Succeeded: reconciliation succeeded, generated 2 artifact(s)"
    );
    let status = plan.status.unwrap();
    let inventory: Vec<_> = status
        .inventory
        .iter()
        .map(|made| (made.name.as_str(), made.filename.as_str()))
        .collect();
    assert_eq!(inventory, [("chart", "abc.tar.gz"), ("web", "abc.tar.gz")]);
    assert!(
        plan.events
            .iter()
            .any(|event| event.message.contains("blue/web (sha256:web)"))
    );
    // Another commit makes a new artifact; meanwhile the status doesn't report a failure.
    snapshot.generator.status = Some(status);
    snapshot.sources.insert("repo".to_owned(), make_source("mono", "3"));
    assert_eq!(
        describe_ready(&plan_now(&mut snapshot)),
        "True Succeeded: reconciliation succeeded, generated 2 artifact(s)"
    );
    // An artifact that is left out is deleted, if an ownerReference names the generator.
    let mut spec = make_spec();
    spec["artifacts"].as_array_mut().unwrap().pop();
    snapshot.generator.spec = serde_json::from_value(spec).unwrap();
    let plan = plan_now(&mut snapshot);
    let deleted: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        deleted,
        ["delete ExternalArtifact/blue/chart: the generator no longer makes it"]
    );
}

#[test]
fn mistakes_are_reported_by_field() {
    let check = |change: fn(&mut Value), expected: &str| {
        let mut spec = make_spec();
        change(&mut spec);
        let plan = plan_now(&mut make_snapshot(spec));
        let ready = describe_ready(&plan);
        assert!(ready.contains(expected), "{ready}");
        assert!(plan.steps.is_empty() && plan.next == Next::Done(None), "{plan}");
    };
    check(
        |spec| spec["sources"][1]["alias"] = json!("repo"),
        "ValidationFailed: duplicate source alias 'repo' found",
    );
    check(
        |spec| spec["artifacts"][1]["name"] = json!("web"),
        "ValidationFailed: duplicate artifact name 'web' found",
    );
    check(
        |spec| spec["artifacts"][0]["name"] = json!("../web"),
        "is not a valid Kubernetes object name",
    );
    check(
        |spec| spec["artifacts"][0]["revision"] = json!("@none"),
        "artifact web revision source alias 'none' not found",
    );
    check(
        |spec| spec["sources"][0]["kind"] = json!("HelmRepository"),
        "ValidationFailed: spec.sources[0].kind must be one of Bucket, ExternalArtifact, GitRepository, HelmChart",
    );
    check(
        |spec| spec["sources"][0]["alias"] = json!("../x"),
        "spec.sources[0].alias must be",
    );
    check(|spec| spec["sources"][0]["name"] = json!("../../x"), "spec.sources[0]");
    for (field, text, expected) in [
        (
            "from",
            "@repo/../x",
            "spec.artifacts[0].copy[0].from: the path has a '..' part",
        ),
        ("from", "@repo//etc/passwd", "begins with a second /"),
        ("from", "@none/x", "source alias 'none' not found"),
        ("from", "repo/x", "must be @<alias>/<path>"),
        (
            "to",
            "@artifact/a/../../b",
            "spec.artifacts[0].copy[0].to: the path has a '..' part",
        ),
        ("to", "@artifact//x", "begins with a second /"),
        ("to", "/x", "must be @artifact/<path>"),
        (
            "from",
            "@repo/{a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w}",
            "more than 20 alternatives",
        ),
    ] {
        let mut spec = make_spec();
        spec["artifacts"][0]["copy"][0][field] = json!(text);
        let ready = describe_ready(&plan_now(&mut make_snapshot(spec)));
        assert!(
            ready.contains("ValidationFailed") && ready.contains(expected),
            "{text}: {ready}"
        );
    }
    let many: Vec<Value> = (0..600)
        .map(|_| make_spec()["artifacts"][0]["copy"][0].clone())
        .collect();
    let mut spec = make_spec();
    spec["artifacts"][0]["copy"] = json!(many);
    assert!(describe_ready(&plan_now(&mut make_snapshot(spec))).contains("has 600 entries, and may have 1 to 500"));
}

#[test]
fn foreign_source_and_generator_cycles_are_refused() {
    let mut spec = make_spec();
    spec["sources"][0]["namespace"] = json!("red");
    let plan = plan_now(&mut make_snapshot(spec));
    assert_eq!(
        describe_ready(&plan),
        "False AccessDenied: can't access 'GitRepository/red/mono', cross-namespace references have been blocked"
    );
    // The control: one's own namespace may be written out.
    let mut spec = make_spec();
    spec["sources"][0]["namespace"] = json!("blue");
    assert_eq!(plan_now(&mut make_snapshot(spec)).next, Next::Again);

    let generator = make_generator(make_spec());
    let feeds = |edges: &'static [(&str, &str)]| {
        move |name: &str| {
            let fed = edges.iter().filter(move |(to, _)| *to == name);
            Some(fed.map(|(_, from)| (*from).to_owned()).collect::<Vec<_>>())
        }
    };
    assert_eq!(
        find_generator_cycle(&generator, feeds(&[("blue/gen", "blue/a"), ("blue/a", "blue/b")])),
        None
    );
    let cycle = find_generator_cycle(&generator, feeds(&[("blue/gen", "blue/a"), ("blue/a", "blue/gen")])).unwrap();
    let mut circular = make_snapshot(make_spec());
    circular.cycle = Some(cycle);
    let plan = plan_now(&mut circular);
    assert!(
        describe_ready(&plan).contains("generators form a cycle: blue/gen -> blue/a -> blue/gen"),
        "{plan}"
    );
    assert!(
        plan.memory.recipes.unwrap().problem.is_some(),
        "nothing is made meanwhile"
    );
    assert!(find_generator_cycle(&generator, feeds(&[("blue/gen", "blue/gen")])).is_some());
}

#[test]
fn each_matching_folder_makes_an_artifact() {
    let spec = json!({
        "sources": [{ "alias": "repo", "kind": "GitRepository", "name": "mono" }],
        "pathPattern": "@repo/apps/{app}/envs/{env}",
        "artifacts": [{ "name": "{app}-{env}", "copy": [{ "from": "@repo/apps/{app}/envs/{env}/**", "to": "@artifact/{app}/" }] }],
    });
    let with_folders = |spec: &Value, folders: &[&str]| {
        let mut snapshot = make_snapshot(spec.clone());
        let plan = plan_now(&mut snapshot);
        let [Step::FindFolders(request)] = plan.steps.as_slice() else {
            panic!("{plan}")
        };
        let found = request
            .pattern
            .find_matches(folders.iter().copied())
            .map_err(str::to_owned);
        snapshot.memory.take_folders(request, found);
        let plan = plan_now(&mut snapshot);
        (plan, snapshot)
    };
    let (plan, mut known) = with_folders(&spec, &["apps", "apps/Web/envs/prod", "apps/api/envs/dev", "lib"]);
    let stored = plan.memory.recipes.as_ref().unwrap();
    assert_eq!(stored.recipes.keys().collect::<Vec<_>>(), ["api-dev", "web-prod"]);
    let web = &stored.recipes["web-prod"];
    assert_eq!(
        (web.copies[0].from.as_str(), web.copies[0].to.as_str()),
        ("apps/Web/envs/prod/**", "Web")
    );
    assert_eq!(
        web.labels,
        BTreeMap::from([
            ("app".to_owned(), "web".to_owned()),
            ("env".to_owned(), "prod".to_owned())
        ])
    );
    // Another artifact is looked at again; an unchanged one is not.
    assert!(!matches!(plan_now(&mut known).steps.as_slice(), [Step::FindFolders(_)]));
    known.sources.insert("repo".to_owned(), make_source("mono", "9"));
    assert!(matches!(plan_now(&mut known).steps.as_slice(), [Step::FindFolders(_)]));

    for (folders, expected) in [
        (
            vec!["apps/a/envs/x", "apps/A/envs/x"],
            "both resolve to artifact name \"a-x\"",
        ),
        (
            vec!["apps/.hidden/envs/x"],
            "{app} stands for \".hidden\", which is no value of a label",
        ),
    ] {
        let (plan, _) = with_folders(&spec, &folders);
        let ready = describe_ready(&plan);
        assert!(ready.contains("BuildFailed") && ready.contains(expected), "{ready}");
    }
    let folders: Vec<String> = (0..1001).map(|number| format!("apps/a{number}/envs/x")).collect();
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    let (plan, _) = with_folders(&spec, &folders);
    assert!(
        describe_ready(&plan).contains("it makes more than 1000 artifacts"),
        "{plan}"
    );
    for (pattern, expected) in [
        ("@none/{a}", "source alias 'none' not found"),
        ("@repo/{a", "a brace without its other half"),
        ("@repo/{a}/{a}", "has {a} twice"),
    ] {
        let mut spec = spec.clone();
        spec["pathPattern"] = json!(pattern);
        assert!(describe_ready(&plan_now(&mut make_snapshot(spec))).contains(expected));
    }
    // The recipes of all generators of a tenant take memory: a generator without capacity waits, and reports this.
    let (_, mut full) = with_folders(&spec, &["apps/a/envs/x", "apps/b/envs/x"]);
    full.room = 700;
    let plan = plan_now(&mut full);
    assert!(
        describe_ready(&plan).contains("all ArtifactGenerators of this tenant together make more than"),
        "{plan}"
    );
    full.room = 7000;
    assert!(
        describe_ready(&plan_now(&mut full)).is_empty(),
        "the control: there is room again"
    );
    // The generator waits for a missing source.
    let mut missing = make_snapshot(spec);
    missing.sources.get_mut("repo").unwrap().state = SourceState::NotFound;
    assert_eq!(
        describe_ready(&plan_now(&mut missing)),
        "False SourceFetchFailed: source 'GitRepository/blue/mono' not found"
    );
}

#[test]
fn a_namesake_of_somebody_else_is_left_alone() {
    let mut snapshot = make_snapshot(make_spec());
    let id: ObjectId = "blue_web_source.toolkit.fluxcd.io_ExternalArtifact".parse().unwrap();
    let labels = json!({ "source.extensions.fluxcd.io/generator": "another" });
    let foreign = json!({ "metadata": { "name": "web", "namespace": "blue", "labels": labels } });
    snapshot.live.insert(id.clone(), Live::Present(Object(foreign)));
    let plan = carry_out(&mut snapshot);
    assert!(
        describe_ready(&plan).contains("ExternalArtifact/blue/web exists and was not made by this generator"),
        "{plan}"
    );
    // An object that Flux's controller made for this generator is taken over.
    let labels = json!({ "source.extensions.fluxcd.io/generator": "g" });
    let adopted = json!({ "metadata": { "name": "web", "namespace": "blue", "labels": labels } });
    snapshot.live.insert(id, Live::Present(Object(adopted)));
    let plan = plan_now(&mut snapshot);
    assert!(
        plan.steps
            .iter()
            .any(|step| step.to_string().contains("apply ExternalArtifact/blue/web")),
        "{plan}"
    );
}
