//! `tenure access audit`: the named credentials, the report about them, their readers, and the absence of every value.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_inspection::access_audit::secret_uses::{MOST, MOST_OF_NAMESPACE};
use tenure_inspection::access_audit::{
    Contents, Facts, Form, Inventory, NamedObject, Row, SecretRead, Usage, Verdict, find_readers,
};
use tenure_tenancy::access::bindings::{Bindings, Roles};
use tenure_tenancy::access::readers::AccessPath;

/// The value that may appear nowhere.
const CANARY: &str = "canary-77c2";
/// A public key as ssh-keygen wrote it, and its fingerprint by `ssh-keygen -l`.
const PUBLIC: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFG+TWz9HSuUoQA7o3wjbisd4Sdh9VuRN4pVYfdyaeyp c";
const FINGERPRINT: &str = "SHA256:VFujM5k/lqpCmwwyCY9WqjvuWbaCfGdXgtR4w/5qXMY";

fn parse_time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn make_name(namespace: &str, name: &str) -> NamedObject {
    NamedObject {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn make_object(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec})
}

fn make_contents(data: &[(&str, &str)]) -> Contents {
    let data: serde_json::Map<String, Value> = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), Value::from(STANDARD.encode(value))))
        .collect();
    Contents::read(json!({"kind": "Secret", "data": data}).to_string().as_bytes()).unwrap()
}

fn facts_of(data: &[(&str, &str)]) -> Facts {
    let mut facts = Facts::default();
    facts.take_contents(&make_contents(data), None);
    facts
}

fn describe(inventory: &Inventory) -> Vec<String> {
    let mut lines = Vec::new();
    for (secret, usage) in inventory.list_secrets() {
        let uses: Vec<String> = usage
            .uses
            .iter()
            .map(|one| format!("{} {}", one.by, one.field))
            .collect();
        let shown: Vec<&str> = usage.shown_to.iter().map(String::as_str).collect();
        lines.push(format!("{secret}: {} -> {}", uses.join(", "), shown.join(", ")));
    }
    lines
}

#[test]
fn every_field_that_names_a_credential_is_found() {
    let mut inventory = Inventory::default();
    let url = "https://user:canary-77c2@git.example/a/b?token=canary-77c2";
    let hook = "https://hooks.example/services/canary-77c2";
    let objects = [
        (
            "GitRepository",
            json!({"url": url, "secretRef": {"name": "git"}, "proxySecretRef": {"name": "proxy"}, "verify": {"secretRef": {"name": "keys"}}}),
        ),
        (
            "Bucket",
            json!({"endpoint": "s3.example", "bucketName": "b", "secretRef": {"name": "bucket"}, "sts": {"endpoint": "https://sts.example", "secretRef": {"name": "sts"}}}),
        ),
        (
            "Kustomization",
            json!({"decryption": {"secretRef": {"name": "sops"}}, "kubeConfig": {"secretRef": {"name": "far"}}}),
        ),
        ("Provider", json!({"address": hook, "secretRef": {"name": "told"}})),
        ("Receiver", json!({"secretRef": {"name": "hook"}})),
        (
            "OCIRepository",
            json!({"url": "oci://registry.example/a", "certSecretRef": {"name": "tls"}, "serviceAccountName": "puller"}),
        ),
    ];
    for (kind, spec) in &objects {
        inventory.add(kind, &make_object("a", "it", spec));
    }
    let mut surface = make_object(
        "a",
        "web",
        &json!({"sources": [{"name": "one", "url": "https://git.example/c", "secretRef": {"name": "git"}},
            {"name": "two", "url": "ssh://git@git.example/d", "deployKey": {"knownHosts": ""}}]}),
    );
    surface["status"] = json!({"deployKeys": [{"source": "two", "fingerprint": "SHA256:x"}]});
    inventory.add("Surface", &surface);
    let accounts: Vec<NamedObject> = inventory.list_accounts().cloned().collect();
    assert_eq!(accounts, [make_name("a", "puller")]);
    inventory.add_account(&accounts[0], &json!({"imagePullSecrets": [{"name": "pull"}, {}]}));
    assert_eq!(
        describe(&inventory),
        [
            "a/bucket: Bucket/it .spec.secretRef -> https://s3.example/b",
            "a/far: Kustomization/it .spec.kubeConfig.secretRef -> ",
            "a/git: GitRepository/it .spec.secretRef, Surface/web .spec.sources[0].secretRef -> https://git.example/a/b, https://git.example/c",
            "a/hook: Receiver/it .spec.secretRef -> ",
            "a/keys: GitRepository/it .spec.verify.secretRef -> ",
            "a/proxy: GitRepository/it .spec.proxySecretRef -> ",
            "a/pull: OCIRepository/it .spec.serviceAccountName: imagePullSecrets of puller -> oci://registry.example/a",
            "a/sops: Kustomization/it .spec.decryption.secretRef -> ",
            "a/sts: Bucket/it .spec.sts.secretRef -> https://sts.example",
            "a/tls: OCIRepository/it .spec.certSecretRef -> oci://registry.example/a",
            "a/told: Provider/it .spec.secretRef -> https://hooks.example",
            "a/web-two-deploy-key: Surface/web .spec.sources[1].deployKey -> ssh://git.example/d",
        ]
    );
    let key = inventory
        .list_secrets()
        .find(|(name, _)| name.name == "web-two-deploy-key")
        .unwrap();
    assert_eq!(key.1.fingerprint.as_deref(), Some("SHA256:x"));
    assert!(!format!("{inventory:?}").contains(CANARY));
}

#[test]
fn inventory_is_limited_per_namespace_and_in_total() {
    let mut inventory = Inventory::default();
    let spec =
        |name: &str| json!({"url": "https://git.example", "secretRef": {"name": name}, "serviceAccountName": name});
    for index in 0..10 * MOST_OF_NAMESPACE {
        inventory.add(
            "OCIRepository",
            &make_object("hostile", "it", &spec(&format!("s{index}"))),
        );
    }
    inventory.add("OCIRepository", &make_object("quiet", "it", &spec("git")));
    let count = |namespace: &str| {
        inventory
            .list_secrets()
            .filter(|(name, _)| name.namespace == namespace)
            .count()
    };
    assert_eq!((count("hostile"), count("quiet")), (MOST_OF_NAMESPACE, 1));
    assert_eq!(inventory.list_left_out(), BTreeSet::from(["hostile"]));
    // The result is bounded for any number of namespaces, and of uses of one Secret.
    for index in 0..2 * MOST {
        inventory.add("GitRepository", &make_object(&format!("n{index}"), "it", &spec("git")));
        inventory.add(
            "GitRepository",
            &make_object("quiet", &format!("g{index}"), &spec("git")),
        );
    }
    assert_eq!(inventory.list_secrets().count(), MOST);
    let (_, usage) = inventory
        .list_secrets()
        .find(|(name, _)| name.namespace == "quiet")
        .unwrap();
    assert_eq!(usage.uses.len() + usage.more, 2 * MOST + 1);
    assert!(usage.uses.len() < 100);
    // No name of an object is so long.
    let before = inventory.list_secrets().count();
    inventory.add(
        "GitRepository",
        &make_object("quiet", "it", &spec(&"x".repeat(1 << 20))),
    );
    assert_eq!(inventory.list_secrets().count(), before);
}

/// A label or an implausible time in the managed fields does not change the age.
#[test]
fn secret_age_counts_from_last_data_write() {
    let now = parse_time("2026-06-01T00:00:00Z");
    let entry = |time: &str, fields: Value| json!({"manager": "m", "time": time, "fieldsV1": fields});
    let read = |entries: Value| {
        let object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": entries}});
        Facts::of_metadata(&object, now)
    };
    let data = json!({"f:data": {".": {}, "f:username": {}, "f:password": {}}});
    for (entries, written) in [
        (json!([]), "2026-01-01T00:00:00Z"),
        (
            json!([entry("2026-03-01T00:00:00Z", data.clone())]),
            "2026-03-01T00:00:00Z",
        ),
        // A label is no credential.
        (
            json!([entry("2026-05-01T00:00:00Z", json!({"f:metadata": {}}))]),
            "2026-01-01T00:00:00Z",
        ),
        // A write time is unknown if it is in the future, before the creation, or unreadable.
        (
            json!([entry("2027-01-01T00:00:00Z", data.clone())]),
            "2026-01-01T00:00:00Z",
        ),
        (
            json!([entry("2020-01-01T00:00:00Z", data.clone())]),
            "2026-01-01T00:00:00Z",
        ),
        (json!([entry("yesterday", data.clone())]), "2026-01-01T00:00:00Z"),
    ] {
        assert_eq!(read(entries.clone()).written_at, Some(parse_time(written)), "{entries}");
    }
    // A password has no public part, so its content isn't requested. Content with a public part, or of an unknown kind, is.
    let wants = |fields: Value| read(json!([entry("2026-03-01T00:00:00Z", fields)])).wants_contents();
    assert!(!wants(data));
    assert!(wants(json!({"f:data": {"f:identity": {}}})));
    assert!(wants(json!({"f:data": {"f:.dockerconfigjson": {}, "f:username": {}}})));
    assert!(wants(json!({"f:data": {}})));
    assert!(Facts::of_metadata(&json!("nonsense"), now).wants_contents());
}

#[test]
fn keys_decide_the_form() {
    for (keys, is_shown, forms) in [
        (vec!["username", "password"], true, vec![Form::Basic]),
        (vec!["bearerToken"], true, vec![Form::Bearer]),
        (
            vec!["identity", "identity.pub", "known_hosts"],
            true,
            vec![Form::SshKey],
        ),
        (vec![".dockerconfigjson"], true, vec![Form::DockerConfig]),
        (vec!["githubAppID", "githubAppPrivateKey"], true, vec![Form::GithubApp]),
        (vec!["tls.crt", "tls.key", "ca.crt"], true, vec![Form::Tls]),
        (vec!["ca.crt", "username", "password"], true, vec![Form::Basic]),
        (vec!["ca.crt"], true, vec![Form::Authorities]),
        (vec!["accesskey", "secretkey"], true, vec![Form::BucketKeys]),
        (vec!["value"], true, vec![Form::Kubeconfig]),
        (vec!["age.agekey"], true, vec![Form::DecryptionKeys]),
        (vec!["author.asc"], false, vec![Form::PublicKeys]),
        (vec!["cosign.pub"], true, vec![Form::PublicKeys]),
        (vec!["username"], true, vec![Form::Unknown]),
        (vec![], true, vec![]),
    ] {
        let data: Vec<(&str, &str)> = keys.iter().map(|key| (*key, CANARY)).collect();
        let found = facts_of(&data).list_forms(is_shown);
        assert_eq!(found, forms.into_iter().collect(), "{keys:?}");
    }
    // A key behind many others is none that may be passed over.
    let many: Vec<String> = (0..1_000).map(|index| format!("k{index:04}.pub")).collect();
    let mut data: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "")).collect();
    data.push(("private", CANARY));
    assert_eq!(facts_of(&data).list_forms(true), BTreeSet::from([Form::Unknown]));
}

#[test]
fn public_facts_are_reported_and_values_never() {
    let config = json!({"auths": {"ghcr.io": {"auth": CANARY}, "https://user:canary-77c2@other.example": {}}});
    let config = config.to_string();
    let contents = make_contents(&[
        (".dockerconfigjson", config.as_str()),
        ("identity", CANARY),
        ("identity.pub", PUBLIC),
        ("tls.crt", CANARY),
    ]);
    let mut facts = Facts::default();
    facts.take_contents(&contents, None);
    let registries = ["(a registry that can't be shown)", "ghcr.io"].map(str::to_owned);
    assert_eq!(facts.registries, BTreeSet::from(registries));
    assert_eq!(facts.fingerprint.as_deref(), Some(FINGERPRINT));
    for text in [format!("{facts:?}"), format!("{contents:?}")] {
        assert!(
            !text.contains(CANARY) && !text.contains(&STANDARD.encode(CANARY)),
            "{text}"
        );
    }
    // A private key under the name of a public one doesn't count as public, and neither does an unreadable one.
    for line in [CANARY, "ssh-ed25519 Y2FuYXJ5LTc3YzI=", "ssh-ed25519"] {
        assert_eq!(facts_of(&[("identity.pub", line)]).fingerprint, None, "{line}");
    }
    let broken = format!("{{\"data\": {{\"password\": {{\"{CANARY}\": 1}}}}}}");
    let error = Contents::read(broken.as_bytes()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(CANARY));
    assert!(facts_of(&[(".dockerconfigjson", "{")]).registries.is_empty());
}

/// An indirect reader may take a token of an account that reads the Secret.
#[test]
fn direct_and_indirect_readers_of_secret_are_found() {
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let reads = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["git"]}]);
    let tokens = json!([{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}]);
    let bind = |name: &str, kind: &str, role: &str, subject: Value| json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": [subject]});
    let user = |name: &str| json!({"kind": "User", "name": name});
    let mut roles = Roles::default();
    roles.add(&role("reader", reads.clone()));
    roles.add(&role("tokens", tokens));
    let mut cluster_roles = Roles::default();
    cluster_roles.add(&role(
        "everything",
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
    ));
    let mut own = Bindings::default();
    let account = json!({"kind": "ServiceAccount", "namespace": "a", "name": "flux"});
    own.add(&bind("flux", "Role", "reader", account), &roles, &cluster_roles);
    own.add(&bind("mint", "Role", "tokens", user("mallory")), &roles, &cluster_roles);
    own.add(&bind("gone", "Role", "nothing", user("nobody")), &roles, &cluster_roles);
    let mut cluster = Bindings::default();
    cluster.add(
        &bind(
            "admins",
            "ClusterRole",
            "everything",
            json!({"kind": "Group", "name": "admins"}),
        ),
        &roles,
        &cluster_roles,
    );
    let (own, cluster) = (Ok(own), Ok(cluster));
    let readers = find_readers(&make_name("a", "git"), &own, &cluster);
    let ways: Vec<(String, AccessPath)> = readers
        .by_namespace
        .unwrap()
        .into_iter()
        .map(|one| (one.who, one.way))
        .collect();
    assert_eq!(
        ways,
        [
            ("system:serviceaccount:a:flux".to_owned(), AccessPath::Reads),
            ("mallory".to_owned(), AccessPath::TakesToken("flux".to_owned())),
        ]
    );
    let by_cluster = readers.by_cluster.unwrap();
    assert!(
        by_cluster
            .iter()
            .all(|one| one.who == "group admins" && one.binding == "admins")
    );
    assert_eq!(by_cluster.first().unwrap().way, AccessPath::Reads);
    // The control: no user reads the Secret that the role doesn't name, so no token opens it.
    let other = find_readers(&make_name("a", "other"), &own, &Err("no".to_owned()));
    assert_eq!(other.by_namespace, Ok(vec![]));
    assert_eq!(other.by_cluster, Err("no".to_owned()));

    // A role that couldn't be read may give any right, and so may one that is too large to be held.
    let mut unread = Bindings::default();
    unread.add(
        &bind("b", "ClusterRole", "view", user("victor")),
        &roles,
        &Roles::unread(),
    );
    let readers = find_readers(&make_name("a", "git"), &Ok(unread), &cluster);
    assert_eq!(readers.by_namespace.unwrap()[0].way, AccessPath::Unknown);
    let names: Vec<String> = (0..300_000).map(|index| format!("n{index}")).collect();
    let mut large = Roles::default();
    large.add(&role(
        "reader",
        json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": names}]),
    ));
    let mut bindings = Bindings::default();
    bindings.add(&bind("b", "Role", "reader", user("victor")), &large, &cluster_roles);
    let readers = find_readers(&make_name("a", "git"), &Ok(bindings), &cluster);
    assert_eq!(readers.by_namespace.unwrap()[0].way, AccessPath::Unknown);
    let mut many = Bindings::default();
    for index in 0..300_000 {
        many.add(
            &bind(&format!("b{index}"), "Role", "reader", user("victor")),
            &roles,
            &cluster_roles,
        );
        if many.is_partial {
            break;
        }
    }
    assert!(many.is_partial);
}

#[test]
fn old_expired_and_unreadable_secrets_are_findings() {
    let now = parse_time("2026-06-01T00:00:00Z");
    let no_readers = || {
        find_readers(
            &make_name("a", "git"),
            &Ok(Bindings::default()),
            &Ok(Bindings::default()),
        )
    };
    let judge = |secret_read: SecretRead| {
        let row = Row {
            secret: make_name("a", "git"),
            usage: Usage {
                is_shown: true,
                ..Usage::default()
            },
            secret_read,
            readers: no_readers(),
        };
        row.judge_age("90d".parse().unwrap(), now)
    };
    let seen = |keys: &[(&str, &str)], written: &str, ends: Option<&str>| {
        let mut facts = facts_of(keys);
        facts.written_at = written.parse().ok();
        facts.ends_at = ends.map(parse_time);
        SecretRead::Seen(facts)
    };
    let basic = [("username", ""), ("password", "")];
    assert_eq!(judge(seen(&basic, "2026-03-03T00:00:00Z", None)), Verdict::Young);
    assert_eq!(judge(seen(&basic, "2026-03-02T23:59:59Z", None)), Verdict::Old);
    assert_eq!(
        judge(seen(&basic, "2026-05-31T00:00:00Z", Some("2026-06-01T00:00:00Z"))),
        Verdict::Ended
    );
    assert_eq!(
        judge(seen(&[("ca.crt", "")], "2020-01-01T00:00:00Z", None)),
        Verdict::Public
    );
    let unjudged = [
        judge(seen(&basic, "", None)),
        judge(SecretRead::Refused),
        judge(SecretRead::Failed("it failed".to_owned())),
    ];
    for verdict in unjudged {
        assert!(
            matches!(verdict, Verdict::Unjudged(_)) && verdict.is_finding(),
            "{verdict:?}"
        );
    }
    assert!(!judge(SecretRead::Absent).is_finding());
}
