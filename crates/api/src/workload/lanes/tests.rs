//! The objects that run a lane.

use std::collections::BTreeSet;

use super::*;
use crate::workload::objects;

fn pods() -> LanePods {
    LanePods {
        image: "example/tenure:1@sha256:0".to_owned(),
        hub: "tenure-lanes.tenure-system.svc:9643".to_owned(),
        memory: 700 << 20,
        disk: 2 << 30,
        ..LanePods::default()
    }
}

#[test]
fn lane_deployment_has_own_selector_and_account() {
    let lanes = [
        ("tenant/blue", "tenure-lane-tenant-blue"),
        ("tenant/pool", "tenure-lane-tenant-pool"),
        ("pool", "tenure-lane-pool"),
        ("protected/flux-system", "tenure-lane-protected-flux-system"),
        ("platform", "tenure-lane-platform"),
    ];
    let written: Vec<Value> = lanes
        .iter()
        .map(|(lane, account)| lane_deployment(&pods(), lane, account))
        .collect();
    let selectors: BTreeSet<String> = written.iter().map(|one| one["spec"]["selector"].to_string()).collect();
    assert_eq!(selectors.len(), lanes.len());
    for (one, (_, account)) in written.iter().zip(lanes) {
        let template = &one["spec"]["template"];
        for (key, value) in one["spec"]["selector"]["matchLabels"].as_object().expect("labels") {
            assert_eq!(template["metadata"]["labels"][key], *value);
            let text = value.as_str().expect("a text");
            assert!(!text.is_empty() && text.len() <= 63 && !text.contains('/'), "{text}");
        }
        assert!(is_lane_deployment(&one["metadata"]["labels"]));
        assert_eq!(one["metadata"]["name"], account);
        let pod = &template["spec"];
        assert_eq!(pod["serviceAccountName"], account);
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(one["spec"]["strategy"]["type"], "Recreate");
        // Only the hub accepts the first token, and only the API server the second one.
        let sources = &pod["volumes"][2]["projected"]["sources"];
        assert_eq!(sources[0]["serviceAccountToken"]["audience"], LANE_AUDIENCE);
        assert_eq!(sources[1]["serviceAccountToken"].get("audience"), None);
        let container = &pod["containers"][0];
        assert_eq!(container["resources"]["limits"]["memory"], "700Mi");
        assert_eq!(pod["volumes"][0]["emptyDir"]["sizeLimit"], "2048Mi");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    }
    // The name of a lane changes nothing else.
    let without_names = |one: &Value, account: &str| one.to_string().replace(account, "");
    let strip =
        |at: usize, tenant: &str| without_names(&written[at], lanes[at].1).replace(&format!("\"{tenant}\""), "\"\"");
    assert_eq!(strip(0, "blue"), strip(1, "pool"));
}

#[test]
fn only_platform_lane_reaches_platform_addresses() {
    let workload = Workload {
        lanes: true,
        api_servers: vec!["10.96.0.1:443".parse().expect("an address")],
        source_addresses: vec!["10.1.0.7:3000".parse().expect("an address")],
        platform_addresses: vec!["10.1.0.8:3000".parse().expect("an address")],
        source_networks: vec!["10.2.0.0/16".to_owned()],
        ..Workload::usual("example/tenure:1@sha256:0")
    };
    let written = objects(&workload);
    let policy = |name: &str| {
        let found = written
            .iter()
            .find(|object| object["kind"] == "NetworkPolicy" && object["metadata"]["name"] == name);
        found.expect("a policy").clone()
    };
    let reaches = |name: &str, what: &str| policy(name)["spec"]["egress"].to_string().contains(what);
    for (what, hub, tenants, platform) in [
        ("10.96.0.1/32", true, true, true),
        ("10.1.0.7/32", false, true, true),
        ("10.1.0.8/32", false, false, true),
        ("10.2.0.0/16", false, true, true),
        ("0.0.0.0/0", false, true, true),
        ("9643", false, true, true),
    ] {
        let reached = [
            reaches("tenure-controller", what),
            reaches("tenure-lanes", what),
            reaches("tenure-lane-platform", what),
        ];
        assert_eq!(reached, [hub, tenants, platform], "{what}");
    }
    // Each lane's Pods are selected by one of the policies, and only they may connect to the lanes'
    // port.
    for (name, lanes) in [
        ("tenure-lanes", &["tenant/blue", "pool", "protected/flux-system"][..]),
        ("tenure-lane-platform", &["platform"]),
    ] {
        let selected = policy(name)["spec"]["podSelector"].clone();
        let sorts = selected["matchExpressions"][0]["values"].to_string();
        for lane in lanes {
            let labels = select(lane);
            assert!(sorts.contains(&labels[LANE_LABEL].to_string()), "{lane}");
            for (key, value) in selected["matchLabels"].as_object().expect("labels") {
                assert_eq!(labels[key], *value);
            }
        }
        assert_eq!(policy(name)["spec"].get("ingress"), None, "nobody comes in");
    }
    let ingress = policy("tenure-controller")["spec"]["ingress"].clone();
    assert_eq!(
        ingress,
        json!([{"from": [{"podSelector": select_all()}], "ports": [{"protocol": "TCP", "port": LANE_PORT}]}])
    );
}
