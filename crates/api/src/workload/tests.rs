//! The objects that run the controllers: with defaults, with choices, and for shards.

use super::*;

fn workload() -> Workload {
    Workload {
        image: "example/tenure:1@sha256:0".to_owned(),
        replicas: 2,
        priority_class: None,
        hooks: false,
        helm_controller: None,
        artifact_secret: None,
        admission: false,
        admission_client_secret: None,
        arguments: vec!["--flux-namespace=gitops".to_owned()],
        lanes: false,
        platform_addresses: Vec::new(),
        shards: Vec::new(),
        api_servers: Vec::new(),
        source_addresses: Vec::new(),
        cluster_ranges: Vec::new(),
        source_networks: Vec::new(),
        metrics_from: None,
        memory: (1 << 30) + 1,
        disk: 1 << 30,
    }
}

/// By default no connection comes in. For metrics one namespace may connect, on one port.
#[test]
fn metrics_are_reached_from_one_namespace() {
    let closed = find(&objects(&workload()), "NetworkPolicy", "tenure-controller");
    assert_eq!(closed["spec"]["ingress"], Value::Null);
    let open = Workload {
        metrics_from: Some("monitoring".to_owned()),
        ..workload()
    };
    let objects = objects(&open);
    let policy = find(&objects, "NetworkPolicy", "tenure-controller");
    assert_eq!(
        policy["spec"]["ingress"],
        json!([{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
                "ports": [{"protocol": "TCP", "port": METRICS_PORT}]}])
    );
    let deployment = find(&objects, "Deployment", "tenure-controller");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"][1]["name"], METRICS_PORT_NAME);
    let arguments = container["args"].as_array().expect("a list");
    assert!(arguments.contains(&json!("--metrics-address=8080")), "{arguments:?}");
    let both = Workload { hooks: true, ..open };
    let policy = find(&super::objects(&both), "NetworkPolicy", "tenure-controller");
    let ports = |rule: usize| policy["spec"]["ingress"][rule]["ports"][0]["port"].clone();
    assert_eq!((ports(0), ports(1)), (json!(METRICS_PORT), json!(HOOK_PORT)));
    assert_eq!(policy["spec"]["ingress"][0]["from"][0]["podSelector"], Value::Null);
    assert!(
        policy["spec"]["ingress"][0]["from"].is_array(),
        "who asks for hooks doesn't open the metrics"
    );
}

/// API servers reach the main Pods, and no shard's. The authority of their client certificate is
/// mounted without a key.
#[test]
fn api_servers_ask_the_main_pods() {
    let none = objects(&workload());
    assert!(none.iter().all(|object| object["metadata"]["name"] != "tenure-webhook"));
    let asked = objects(&Workload {
        admission: true,
        admission_client_secret: Some("api-server".to_owned()),
        shards: vec!["a".to_owned()],
        ..workload()
    });
    let service = find(&asked, "Service", "tenure-webhook");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "admission");
    let policy = find(&asked, "NetworkPolicy", "tenure-controller");
    assert_eq!(
        policy["spec"]["ingress"],
        json!([{"ports": [{"protocol": "TCP", "port": 9443}]}])
    );
    let pod = |name: &str| find(&asked, "Deployment", name)["spec"]["template"]["spec"].clone();
    let main = pod("tenure-controller").to_string();
    for expected in [
        "--admission-address=9443",
        "--admission-client-ca=/etc/tenure/admission-clients/ca.crt",
        "\"secretName\":\"api-server\"",
    ] {
        assert!(main.contains(expected), "{expected}: {main}");
    }
    let shard = pod("tenure-controller-shard-a").to_string();
    assert!(
        shard.contains("--admission-elsewhere") && !shard.contains("--admission-address"),
        "{shard}"
    );
}

/// The listener without authentication is open to one controller's Pods, and to no others of the same namespace.
#[test]
fn helm_controller_and_authenticated_clients_reach_artifacts() {
    let none = objects(&workload());
    assert!(!none.iter().any(|object| object["metadata"]["name"] == ARTIFACT_SERVICE));
    let open = Workload {
        helm_controller: Some("flux-system".to_owned()),
        ..workload()
    };
    let policy = find(&objects(&open), "NetworkPolicy", "tenure-controller");
    let from = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "flux-system"}},
        "podSelector": {"matchLabels": {"app": "helm-controller"}}
    });
    let to_helm = json!({"from": [from], "ports": [{"protocol": "TCP", "port": OPEN_ARTIFACT_PORT}]});
    assert_eq!(policy["spec"]["ingress"], json!([to_helm]));
    let both = Workload {
        artifact_secret: Some("artifacts-tls".to_owned()),
        shards: vec!["a".to_owned()],
        ..open
    };
    let written = objects(&both);
    let policy = find(&written, "NetworkPolicy", "tenure-controller");
    let to_all = json!({"ports": [{"protocol": "TCP", "port": ARTIFACT_PORT}]});
    assert_eq!(policy["spec"]["ingress"], json!([to_helm, to_all]));
    let deployment = find(&written, "Deployment", "tenure-controller");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = container["args"].as_array().expect("a list");
    for argument in [
        "--artifact-url=http://tenure-artifacts.tenure-system.svc",
        "--artifact-open-address=[::]:9790",
        "--artifact-address=9743",
        "--artifact-tls-key=/etc/tenure/artifacts/tls.key",
    ] {
        assert!(arguments.contains(&json!(argument)), "{arguments:?}");
    }
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], "artifacts-tls");
    assert_eq!(container["volumeMounts"][1]["mountPath"], "/etc/tenure/artifacts");
    // Each port of the Service is one of the Pod's.
    let service = find(&written, "Service", ARTIFACT_SERVICE);
    let ports = container["ports"].as_array().expect("ports");
    for port in service["spec"]["ports"].as_array().expect("ports") {
        assert!(ports.iter().any(|known| known["name"] == port["targetPort"]), "{port}");
    }
    // A shard's Pods are in no Service, so nothing leads to them.
    let shard = find(&written, "NetworkPolicy", "tenure-controller-shard-a");
    assert_eq!(shard["spec"].get("ingress"), None);
    let only_proven = Workload {
        helm_controller: None,
        ..both
    };
    let deployment = find(&objects(&only_proven), "Deployment", "tenure-controller");
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    let argument = json!("--artifact-url=https://tenure-artifacts.tenure-system.svc");
    assert!(
        arguments
            .as_array()
            .is_some_and(|arguments| arguments.contains(&argument)),
        "{arguments}"
    );
}

fn find(objects: &[Value], kind: &str, name: &str) -> Value {
    let found = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}")).clone()
}

#[test]
fn deployment_has_chosen_settings_and_matching_selectors() {
    let mut chosen = workload();
    let objects_by_default = objects(&chosen);
    let by_default = find(&objects_by_default, "Deployment", "tenure-controller");
    let pod = &by_default["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], Value::Null);
    assert_eq!(pod["containers"][0]["resources"]["limits"]["memory"], "1025Mi");
    assert_eq!(pod["volumes"][0]["emptyDir"]["sizeLimit"], "1024Mi");
    let arguments = pod["containers"][0]["args"].as_array().expect("a list");
    assert_eq!(arguments.last().expect("one"), "--flux-namespace=gitops");
    chosen.priority_class = Some("system-cluster-critical".to_owned());
    let with_class = find(&objects(&chosen), "Deployment", "tenure-controller");
    assert_eq!(
        with_class["spec"]["template"]["spec"]["priorityClassName"],
        "system-cluster-critical"
    );
    // The API server refuses a Deployment whose selector doesn't match its own Pods, and a budget for other
    // Pods has no effect.
    let budget = find(&objects_by_default, "PodDisruptionBudget", "tenure-controller");
    let policy = find(&objects_by_default, "NetworkPolicy", "tenure-controller");
    let labels = by_default["spec"]["template"]["metadata"]["labels"]
        .as_object()
        .expect("labels");
    for chosen in [
        &by_default["spec"]["selector"]["matchLabels"],
        &budget["spec"]["selector"]["matchLabels"],
        &policy["spec"]["podSelector"]["matchLabels"],
    ] {
        for (key, value) in chosen.as_object().expect("a selector") {
            assert_eq!(labels.get(key), Some(value), "{key}");
        }
    }
}

#[test]
fn ingress_opens_hook_port_only_with_hooks() {
    let closed = objects(&workload());
    assert!(!closed.iter().any(|object| object["kind"] == "Service"));
    let policy = find(&closed, "NetworkPolicy", "tenure-controller");
    assert_eq!(policy["spec"].get("ingress"), None);
    let opened = objects(&Workload {
        hooks: true,
        ..workload()
    });
    let policy = find(&opened, "NetworkPolicy", "tenure-controller");
    assert_eq!(
        policy["spec"]["ingress"],
        json!([{"ports": [{"protocol": "TCP", "port": HOOK_PORT}]}])
    );
    let container = &find(&opened, "Deployment", "tenure-controller")["spec"]["template"]["spec"]["containers"][0];
    let service = find(&opened, "Service", HOOK_SERVICE);
    let target = &service["spec"]["ports"][0]["targetPort"];
    let ports = container["ports"].as_array().expect("ports");
    let port = ports
        .iter()
        .find(|port| port["name"] == *target)
        .expect("the port of the Service");
    assert_eq!(port["containerPort"], HOOK_PORT);
    let arguments = container["args"].as_array().expect("a list");
    assert!(
        arguments.contains(&json!(format!("--hook-address={HOOK_PORT}"))),
        "{arguments:?}"
    );
    for (key, value) in service["spec"]["selector"].as_object().expect("a selector") {
        assert_eq!(labels().get(key), Some(value), "{key}");
    }
}

#[test]
fn a_known_api_server_narrows_what_may_be_reached() {
    let egress = |workload: &Workload| {
        find(&objects(workload), "NetworkPolicy", "tenure-controller")["spec"]["egress"]
            .as_array()
            .expect("rules")
            .clone()
    };
    let mut chosen = workload();
    let anywhere = |rules: &[Value]| rules.iter().filter(|rule| rule.get("to").is_none()).count();
    assert_eq!(anywhere(&egress(&chosen)), 1);
    chosen.api_servers = vec!["10.96.0.1:443".parse().unwrap(), "[fd00::1]:6443".parse().unwrap()];
    chosen.source_networks = vec!["10.1.0.0/16".to_owned()];
    let rules = egress(&chosen);
    assert_eq!(anywhere(&rules), 0);
    let text = serde_json::to_string(&rules).unwrap();
    for cidr in ["10.96.0.1/32", "fd00::1/128", "10.1.0.0/16"] {
        assert!(text.contains(&format!("\"cidr\":\"{cidr}\"")), "{cidr}: {text}");
    }
}

#[test]
fn egress_excludes_cluster_ranges_in_every_address_form() {
    let mut chosen = workload();
    chosen.cluster_ranges = ["34.1.0.0/16", "2600:1900::/28", "fd00::/8"].map(str::to_owned).into();
    let policy = find(&objects(&chosen), "NetworkPolicy", "tenure-controller");
    let blocks = policy["spec"]["egress"][1]["to"].as_array().expect("blocks");
    let excepted = |block: &Value| -> Vec<String> {
        let except = block["ipBlock"]["except"].as_array().expect("exceptions");
        except.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let has = |at: usize, range: &str| excepted(&blocks[at]).iter().any(|found| found == range);
    assert!(has(0, "34.1.0.0/16") && has(1, "2600:1900::/28"));
    assert!(has(1, "2002:2201::/32") && has(2, "64:ff9b::2201:0/112"), "{blocks:?}");
    // This range is closed already, and an API server refuses an exception that isn't part of its
    // block.
    assert!(!has(1, "fd00::/8"));
}

#[test]
fn ipv4_address_is_embedded_in_ipv6_range() {
    assert_eq!(write_ipv6_range("2002:", "::", "10.0.0.0", 24), "2002:a00::/24");
    assert_eq!(
        write_ipv6_range("64:ff9b::", "", "192.168.0.0", 112),
        "64:ff9b::c0a8:0/112"
    );
}

#[test]
fn a_shard_has_pods_of_its_own() {
    let shards = vec!["a".to_owned(), "b".to_owned()];
    let objects = objects(&Workload { shards, ..workload() });
    let of_kind = |kind: &str| {
        objects
            .iter()
            .filter(|object| object["kind"] == kind)
            .collect::<Vec<_>>()
    };
    let mut selectors = std::collections::BTreeSet::new();
    for (deployment, (name, selector)) in of_kind("Deployment").into_iter().zip([
        ("tenure-controller", "!sharding.fluxcd.io/key"),
        ("tenure-controller-shard-a", "sharding.fluxcd.io/key=a"),
        ("tenure-controller-shard-b", "sharding.fluxcd.io/key=b"),
    ]) {
        assert_eq!(deployment["metadata"]["name"], name);
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let flag = json!(format!("--watch-label-selector={selector}"));
        assert!(
            container["args"]
                .as_array()
                .is_some_and(|arguments| arguments.contains(&flag)),
            "{container}"
        );
        let selected = &deployment["spec"]["selector"]["matchLabels"];
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert!(
            selected
                .as_object()
                .is_some_and(|selected| selected.iter().all(|(label, value)| labels[label] == *value))
        );
        // An object for one part selects its Pods and no other part's.
        for kind in ["NetworkPolicy", "PodDisruptionBudget"] {
            let is_its = |object: &&&Value| object["metadata"]["name"] == name;
            let object = of_kind(kind);
            let object = object.iter().find(is_its).expect("one for each part");
            let spec = &object["spec"];
            let of_object = if kind == "NetworkPolicy" {
                &spec["podSelector"]
            } else {
                &spec["selector"]
            };
            assert_eq!(of_object["matchLabels"], *selected);
        }
        selectors.insert(selected.to_string());
    }
    assert_eq!((selectors.len(), of_kind("Deployment").len()), (3, 3));
    // Without shards, the only instance gets no shard argument.
    let alone = super::objects(&workload());
    assert!(
        !serde_json::to_string(&alone)
            .expect("JSON")
            .contains("watch-label-selector")
    );
}
