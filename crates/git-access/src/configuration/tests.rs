//! Cases of entries, as data.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::json;
use tenure_api::access::FluxAccess;

use super::assignment::{Asker, Claim, Delivery, assign_secrets};
use super::{Configuration, File, Reading, read_file, read_object};
use tenure_remote_requests::git_host::{Role, Scope};

const PATH: &str = ".gitlab/agents/prod/config.yaml";

fn read(text: &str) -> Configuration {
    let file = File {
        path: PATH,
        is_own: false,
    };
    match read_file(file, text.as_bytes(), "group-1") {
        Reading::Read(configuration) => configuration,
        Reading::Unreadable(problem) => panic!("{problem}"),
    }
}

/// Returns the only problem of an entry with this additional field.
fn problem_of(field: &str) -> String {
    let text = format!(
        "flux_access:\n  projects:\n  - id: group-1/a\n    namespaces: [a]\n    {field}\n  - {{ id: group-1/b, namespaces: [b] }}\n"
    );
    let configuration = read(&text);
    // The other entry is unaffected.
    assert_eq!(configuration.entries.len(), 1, "{field}: {configuration:?}");
    let [problem] = configuration.problems.as_slice() else {
        panic!("{field}: {configuration:?}");
    };
    problem.to_string()
}

#[test]
fn documented_example_is_read() {
    let configuration = read(
        "gitops: { manifest_projects: [] }\nci_access: {}\nflux_access:\n  role: read_repository\n  rotate: 30d\n  projects:\n  - id: group-1/project-A\n    \
         secret_name: gitlab-flux-token\n    namespaces:\n    - projectA\n  groups:\n  - id: group-1/sub\n    role: read_registry\n    rotate: 2w\n    \
         namespaces:\n    - project*\n    service_accounts: [flux]\n    strict: true\n",
    );
    let [group] = configuration.entries.as_slice() else {
        panic!("{configuration:?}");
    };
    assert_eq!(
        (group.scope, group.path.as_str(), group.role),
        (Scope::Group, "group-1/sub", Role::ReadRegistry)
    );
    assert_eq!(
        (group.rotate.to_string().as_str(), group.secret_name.as_str()),
        ("14d", "gitlab-flux-token")
    );
    assert!(group.is_strict && group.service_accounts == ["flux"]);
    let [problem] = configuration.problems.as_slice() else {
        panic!("{configuration:?}");
    };
    assert_eq!(
        problem.to_string(),
        ".gitlab/agents/prod/config.yaml:10: projects[0]: \"projectA\" is neither the name of a namespace nor a pattern: lower-case letters, digits, '-' \
         and '*', beginning and ending with a letter, a digit or '*', at most 63 characters; \"project-a\" would be one"
    );
}

#[test]
fn absent_fields_get_default_values() {
    let configuration = read("flux_access: { projects: [{ id: Group-1/a, namespaces: [a] }] }");
    let [entry] = configuration.entries.as_slice() else {
        panic!("{configuration:?}");
    };
    assert_eq!(
        (
            entry.role,
            entry.rotate.to_string().as_str(),
            entry.secret_name.as_str(),
            entry.is_strict
        ),
        (Role::ReadRegistry, "90d", "gitlab-flux-token", false)
    );
    for text in [
        "",
        "a: b",
        "flux_access:",
        "flux_access: {}",
        "flux_access: { projects: , groups: [] }",
        "---\n# nothing\n",
    ] {
        assert_eq!(read(text), Configuration::default(), "{text}");
    }
}

#[test]
fn invalid_entry_is_refused_alone() {
    for (text, saying) in [
        (
            "role: api",
            "config.yaml:5: projects[0]: role api is refused: statuses of commits are a different use case",
        ),
        (
            "role: write_repository",
            "role write_repository is refused: nothing that reconciles",
        ),
        (
            "role: admin",
            "role \"admin\" is unknown: write read_repository or read_registry",
        ),
        ("role: [a]", "role is not a text"),
        ("rotate: 0", "rotate \"0\" is not a period"),
        ("rotate: -1d", "rotate \"-1d\" is not a period"),
        ("rotate: 90x", "rotate \"90x\" is not a period"),
        ("rotate: 0d", "rotate \"0d\" is less than a day"),
        ("rotate: 99999999999999999999d", "is more than a year"),
        ("secret_name: Not_One", "secret_name \"Not_One\" is no Secret's name"),
        ("secret_name: { a: b }", "secret_name is not a text"),
        ("service_accounts: [\"a:b\"]", "\"a:b\" is no ServiceAccount's name"),
        ("service_accounts: [~]", "service_accounts has an empty item"),
        ("service_accounts: flux", "service_accounts is not a list"),
        ("strict: maybe", "strict is neither true nor false"),
        (
            "image_pull_secrets: true",
            "image_pull_secrets is for role read_registry with service_accounts",
        ),
        ("rotete: 1d", "\"rotete\" is unknown: an entry has id,"),
        ("<<: { role: api }", "\"<<\" is unknown: an entry has id,"),
        ("id: group-1/c", "\"id\" is set twice"),
        ("? [a]\n    : b", "\"\" is unknown: an entry has id,"),
    ] {
        let problem = problem_of(text);
        assert!(problem.contains(saying), "{text}: {problem}");
    }
    for (entry, saying) in [
        ("{ namespaces: [a] }", "it has no id"),
        ("{ id: group-1/a }", "it names no namespaces"),
        ("{ id: group-1/a, namespaces: a }", "namespaces is not a list"),
        ("{ id: group-1, namespaces: [a] }", "a group belongs under groups"),
        ("{ id: group-2/a, namespaces: [a] }", "is not below group-1"),
        ("{ id: group-1-evil/a, namespaces: [a] }", "is not below group-1"),
        ("{ id: group-1/../group-2/a, namespaces: [a] }", "is no path"),
        (
            "{ id: \"https://gitlab.com/group-1/a\", namespaces: [a] }",
            "is no path",
        ),
        ("{ id: group-1/a.git, namespaces: [a] }", "is no path"),
        ("{ id: group-1//a, namespaces: [a] }", "is no path"),
        ("{ id: \"group-1/a?b=c\", namespaces: [a] }", "is no path"),
        ("{ id: group-1/%2e%2e, namespaces: [a] }", "is no path"),
        ("[a]", "it is not a mapping"),
        ("~", "it is not a mapping"),
    ] {
        let configuration = read(&format!(
            "flux_access:\n  projects:\n  - {entry}\n  - {{ id: group-1/b, namespaces: [b] }}"
        ));
        assert_eq!(configuration.entries.len(), 1, "{entry}");
        let problem = configuration
            .problems
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(
            problem.starts_with(".gitlab/agents/prod/config.yaml:3: projects[0]: "),
            "{problem}"
        );
        assert!(problem.contains(saying), "{entry}: {problem}");
    }
}

#[test]
fn invalid_common_value_fails_only_entries_without_own_value() {
    let configuration = read(
        "flux_access:\n  role: api\n  rotate: 0\n  surprise: 1\n  role: read_registry\n  projects:\n  - { id: group-1/a, namespaces: [a] }\n  \
         - { id: group-1/b, namespaces: [b], role: read_registry, rotate: 1d }\n  groups: { id: group-1 }\n",
    );
    assert_eq!(configuration.entries.len(), 1);
    let problems: Vec<String> = configuration.problems.iter().map(ToString::to_string).collect();
    for (at, saying) in [
        (":4: flux_access: ", "\"surprise\" is unknown: flux_access has role,"),
        (":5: flux_access: ", "role is set twice, and the first one counts"),
        (
            ":7: projects[0]: ",
            "it has no role of its own, and of the common one: role api is refused",
        ),
        (":9: groups: ", "groups is not a list"),
    ] {
        assert!(
            problems
                .iter()
                .any(|problem| problem.contains(at) && problem.contains(saying)),
            "{saying}: {problems:?}"
        );
    }
}

#[test]
fn unreadable_configuration_file_is_reported_with_its_cause() {
    let read = |is_own: bool, bytes: &[u8]| match read_file(File { path: PATH, is_own }, bytes, "group-1") {
        Reading::Unreadable(problem) => problem.to_string(),
        Reading::Read(configuration) => panic!("{configuration:?}"),
    };
    let bomb = "a: &a [x]\n".to_owned() + &"b: &a [*a, *a, *a, *a, *a, *a, *a, *a]\n".repeat(40) + "flux_access: *a\n";
    let deep = "[".repeat(100_000);
    for (is_own, bytes, saying) in [
        (
            false,
            b"flux_access: [a".as_slice(),
            "config.yaml:2: it can't be read as YAML from this line on",
        ),
        (
            false,
            b"a: b\nflux_access: { password: hunter2".as_slice(),
            "it can't be read as YAML",
        ),
        (false, b"\xff\xfe".as_slice(), "it is not UTF-8"),
        (
            false,
            b"flux_access: {}\nflux_access: {}".as_slice(),
            "config.yaml:2: flux_access is set twice",
        ),
        (
            false,
            b"flux_access: all of it".as_slice(),
            "flux_access is not a mapping",
        ),
        (false, b"- a".as_slice(), "it is not a mapping"),
        (true, b"".as_slice(), "it has no flux_access"),
        (true, b"projects: []".as_slice(), "it has no flux_access"),
        (false, bomb.as_bytes(), "config.yaml:"),
        (false, deep.as_bytes(), "it can't be read as YAML"),
        (false, &[b' '; (1 << 20) + 1], "it is longer than"),
    ] {
        let problem = read(is_own, bytes);
        assert!(problem.contains(saying), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}

#[test]
fn at_most_five_hundred_entries_per_list_are_read() {
    let mut text = "flux_access:\n  projects:\n".to_owned();
    for number in 0..501 {
        let _written = writeln!(text, "  - {{ id: group-1/p{number}, namespaces: [n{number}] }}");
    }
    text.push_str("  groups:\n");
    for number in 0..500 {
        let _written = writeln!(text, "  - {{ id: group-1/g{number}, namespaces: [\"n{number}-*\"] }}");
    }
    let configuration = read(&text);
    assert_eq!(configuration.entries.len(), 1_000);
    let problems: Vec<String> = configuration.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            ".gitlab/agents/prod/config.yaml:503: projects[500]: there are 501 projects, and 500 is the most: this one and all behind it are left out; ask for \
             a group instead"
        ]
    );
    let many = ["n"; 65].join(", ");
    assert!(
        problem_of(&format!("service_accounts: [{many}]")).contains("it names 65 service_accounts, and 64 is the most")
    );
}

fn make_access(spec: serde_json::Value) -> FluxAccess {
    serde_json::from_value(json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccess", "metadata": { "name": "apps", "namespace": "team" }, "spec": spec
    }))
    .unwrap()
}

#[test]
fn object_and_file_give_equal_configuration() {
    let entries = json!([{ "id": "group-1/a", "role": "read_repository", "rotate": "1w", "secretName": "git", "namespaces": ["a", "a", "b-*"],
        "serviceAccounts": ["flux", "flux"], "strict": true }]);
    let object = read_object(
        &make_access(json!({ "provider": "work", "projects": entries })),
        "group-1",
    );
    let file = read(
        "flux_access: { projects: [{ id: group-1/a, role: read_repository, rotate: 1w, secret_name: git, namespaces: [a, a, b-*], service_accounts: \
         [flux, flux], strict: true }] }",
    );
    let strip = |mut configuration: Configuration| {
        for entry in &mut configuration.entries {
            entry.place = super::Place {
                file: "".into(),
                line: None,
                entry: String::new(),
            };
        }
        configuration
    };
    assert_eq!(strip(object), strip(file));
    let wrong = read_object(
        &make_access(
            json!({ "provider": "work", "role": "api", "projects": [{ "id": "", "namespaces": [] }, { "id": "group-2", "namespaces": ["A"] }],
            "groups": [{ "id": "group-1", "namespaces": ["a"] }] }),
        ),
        "group-1",
    );
    let problems: Vec<String> = wrong.problems.iter().map(ToString::to_string).collect();
    assert_eq!(wrong.entries, []);
    assert!(
        problems[0].starts_with("FluxAccess team/apps: spec.projects[0]: it has no id"),
        "{problems:?}"
    );
    assert!(
        problems[2].contains("spec.groups[0]: it has no role of its own"),
        "{problems:?}"
    );
}

#[test]
fn two_entries_for_one_secret_have_a_fixed_winner() {
    let agent = read(
        "flux_access:\n  projects:\n  - { id: group-1/z, namespaces: [a, gone, kube-system] }\n  - { id: group-1/b, namespaces: [\"a*\"] }\n  groups:\n  \
         - { id: group-1, namespaces: [\"*\"] }\n  - { id: group-1, namespaces: [b], secret_name: other }\n",
    );
    let object = read_object(
        &make_access(json!({ "provider": "work", "projects": [{ "id": "group-1/a", "namespaces": ["a", "own"] }] })),
        "group-1",
    );
    let claims: Vec<Claim<'_>> = {
        let agents = agent.entries.iter().map(|entry| Claim {
            asker: Asker::Agent("prod".to_owned()),
            entry,
        });
        let objects = object.entries.iter().map(|entry| Claim {
            asker: Asker::Object("team".to_owned(), "apps".to_owned()),
            entry,
        });
        agents.chain(objects).collect()
    };
    let namespaces: BTreeSet<&str> = ["a", "ab", "b", "own", "kube-system", "tenure-system", "flux-system"].into();
    let may_reach = |_: usize, claim: &Claim<'_>, namespace: &str| match (&claim.asker, namespace) {
        (_, "kube-system") => Err("namespace kube-system is not the agent's".to_owned()),
        (Asker::Agent(_), "own") => Err("it is not its".to_owned()),
        _ => Ok(()),
    };
    let forward = assign_secrets(&claims, &namespaces, "tenure-system", may_reach);
    let found: Vec<(&str, &str, &str)> = forward
        .deliveries
        .iter()
        .map(|Delivery { claim, namespace }| {
            let entry = claims[*claim].entry;
            (namespace.as_str(), entry.secret_name.as_str(), entry.path.as_str())
        })
        .collect();
    assert_eq!(
        found,
        [
            ("a", "gitlab-flux-token", "group-1/z"),
            ("ab", "gitlab-flux-token", "group-1/b"),
            ("b", "gitlab-flux-token", "group-1"),
            ("b", "other", "group-1"),
            ("own", "gitlab-flux-token", "group-1/a"),
        ]
    );
    let problems: BTreeSet<String> = forward.problems.iter().map(ToString::to_string).collect();
    for saying in [
        "projects[0]: namespace gone does not exist",
        "projects[0]: namespace kube-system is not the agent's",
        "projects[1]: Secret gitlab-flux-token in a is that of .gitlab/agents/prod/config.yaml:3: projects[0]",
        "groups[0]: Secret gitlab-flux-token in a is that of",
        "groups[0]: Secret gitlab-flux-token in ab is that of",
        "FluxAccess team/apps: spec.projects[0]: Secret gitlab-flux-token in a is that of an agent's configuration: choose another secret_name",
    ] {
        assert!(
            problems.iter().any(|problem| problem.contains(saying)),
            "{saying}: {problems:?}"
        );
    }
    // The order of the claims doesn't matter.
    let backward: Vec<Claim<'_>> = claims.iter().rev().cloned().collect();
    let again = assign_secrets(&backward, &namespaces, "tenure-system", may_reach);
    let same: BTreeSet<String> = again.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, same);
    let paths = |claims: &[Claim<'_>], deliveries: &[Delivery]| -> Vec<String> {
        let path = |delivery: &Delivery| format!("{} {}", delivery.namespace, claims[delivery.claim].entry.place);
        deliveries.iter().map(path).collect()
    };
    assert_eq!(paths(&claims, &forward.deliveries), paths(&backward, &again.deliveries));
}

/// The content of an entry decides before the name of its object, which a tenant chooses.
#[test]
fn exact_namespace_precedes_pattern_of_another_object() {
    let find_problem = |projects: serde_json::Value| {
        read_object(
            &make_access(json!({ "provider": "work", "projects": projects })),
            "group-1",
        )
    };
    let pattern = find_problem(json!([{ "id": "group-1/a", "namespaces": ["x*"] }]));
    let name = find_problem(json!([{ "id": "group-1/z", "namespaces": ["x1"] }]));
    let namespaces: BTreeSet<&str> = ["x1", "x2"].into();
    for asker in [
        |name: &str| Asker::Object("team".to_owned(), name.to_owned()),
        |name: &str| Asker::Agent(name.to_owned()),
    ] {
        for (first, second) in [("early", "late"), ("late", "early")] {
            let claims = [(first, &pattern), (second, &name)].map(|(of, configuration)| Claim {
                asker: asker(of),
                entry: &configuration.entries[0],
            });
            let assignment = assign_secrets(&claims, &namespaces, "tenure-system", |_, _, _| Ok(()));
            let paths: Vec<(&str, &str)> = assignment
                .deliveries
                .iter()
                .map(|delivery| (delivery.namespace.as_str(), claims[delivery.claim].entry.path.as_str()))
                .collect();
            assert_eq!(paths, [("x1", "group-1/z"), ("x2", "group-1/a")], "{first} {second}");
        }
    }
}

/// Any bytes get an answer, which is the same twice and within the limits.
#[test]
fn no_bytes_make_it_panic() {
    let base = "flux_access:\n  role: read_registry\n  rotate: 90d\n  projects:\n  - id: group-1/a\n    namespaces: [a, \"b*\"]\n    strict: true\n    \
                service_accounts: &s [flux]\n  groups:\n  - { id: group-1, namespaces: *s, secret_name: \"x\\u202e\" }\n";
    let pieces: [&[u8]; 16] = [
        b"\n",
        b"  ",
        b"- ",
        b": ",
        b"[",
        b"]",
        b"{",
        b"}",
        b"&a ",
        b"*a",
        b"!!binary ",
        b"\xff",
        b"'",
        b"|\n",
        b"<<: ",
        b"99999999999999999999",
    ];
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |below: usize| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        usize::try_from(chance % u64::try_from(below.max(1)).unwrap()).unwrap()
    };
    for _ in 0..4_000 {
        let mut bytes = base.as_bytes().to_vec();
        for _ in 0..=draw(6) {
            let at = draw(bytes.len());
            match draw(4) {
                0 => bytes.truncate(at),
                1 => bytes[at] = u8::try_from(draw(256)).unwrap(),
                2 => drop(bytes.drain(at..(at + draw(30)).min(bytes.len()))),
                _ => {
                    let piece = pieces[draw(pieces.len())];
                    let _removed: Vec<u8> = bytes.splice(at..at, piece.iter().copied()).collect();
                }
            }
            if bytes.is_empty() {
                bytes.push(b'a');
            }
        }
        let file = File {
            path: PATH,
            is_own: draw(2) == 0,
        };
        let readings = [(); 2].map(|()| read_file(file, &bytes, "group-1"));
        assert_eq!(readings[0], readings[1]);
        if let Reading::Read(configuration) = &readings[0] {
            assert!(
                configuration
                    .problems
                    .iter()
                    .all(|problem| problem.to_string().len() < 2_000)
            );
        }
    }
}
