//! The CRDs are structural, and have the shape of Flux's.

use serde_json::{Value, json};
use tenure_api::crds::{access_crds, crds, file_name, helm_crds, package_crds};

fn crd(kind: &str) -> Value {
    crds()
        .unwrap()
        .into_iter()
        .find(|crd| crd["spec"]["names"]["kind"] == kind)
        .unwrap()
}

/// Checks Kubernetes' rules for structural schemas, as far as a generator could break them.
fn assert_structural(schema: &Value, path: &str) {
    let map = schema.as_object().unwrap();
    assert!(
        !map.contains_key("$ref") && !map.contains_key("anyOf") && !map.contains_key("oneOf"),
        "{path}: {schema}"
    );
    assert!(!map.contains_key("nullable"), "{path} is nullable");
    assert!(
        map.get("type").is_some_and(Value::is_string),
        "{path} has no single type: {schema}"
    );
    if let Some(properties) = map.get("properties") {
        for (name, property) in properties.as_object().unwrap() {
            assert_structural(property, &format!("{path}.{name}"));
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get(key).filter(|inner| inner.is_object()) {
            assert_structural(inner, &format!("{path}.{key}"));
        }
    }
}

#[test]
fn every_schema_is_structural() {
    let all = [crds(), package_crds(), helm_crds()];
    for crd in all.into_iter().flat_map(Result::unwrap) {
        assert_structural(
            &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            &file_name(&crd),
        );
        assert_eq!(crd["spec"]["versions"][0]["subresources"], json!({ "status": {} }));
    }
}

#[test]
fn names_and_columns_are_fluxs() {
    let columns = |kind| {
        crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        crd("Kustomization")["metadata"]["name"],
        "kustomizations.kustomize.toolkit.fluxcd.io"
    );
    assert_eq!(crd("Kustomization")["spec"]["names"]["shortNames"], json!(["ks"]));
    assert_eq!(columns("Kustomization"), ["Age", "Ready", "Status"]);
    assert_eq!(crd("GitRepository")["spec"]["names"]["shortNames"], json!(["gitrepo"]));
    assert_eq!(columns("GitRepository"), ["URL", "Age", "Ready", "Status"]);
    assert_eq!(
        crd("OCIRepository")["metadata"]["name"],
        "ocirepositories.source.toolkit.fluxcd.io"
    );
    assert_eq!(crd("OCIRepository")["spec"]["names"]["shortNames"], json!(["ocirepo"]));
    assert_eq!(columns("OCIRepository"), ["URL", "Ready", "Status", "Age"]);
    assert_eq!(
        crd("Receiver")["metadata"]["name"],
        "receivers.notification.toolkit.fluxcd.io"
    );
    assert_eq!(columns("Receiver"), ["Age", "Ready", "Status"]);
    assert_eq!(
        crd("Receiver")["metadata"]["annotations"],
        json!({ "kustomize.toolkit.fluxcd.io/substitute": "disabled" })
    );
    assert_eq!(crd("Bucket")["metadata"]["name"], "buckets.source.toolkit.fluxcd.io");
    assert_eq!(columns("Bucket"), ["Endpoint", "Age", "Ready", "Status"]);
    let generator = crd("ArtifactGenerator");
    assert_eq!(
        generator["metadata"]["name"],
        "artifactgenerators.source.extensions.fluxcd.io"
    );
    assert_eq!(generator["spec"]["names"]["shortNames"], json!(["ag"]));
    assert_eq!(generator["spec"]["versions"][0]["name"], "v1beta1");
    assert_eq!(columns("ArtifactGenerator"), ["Age", "Ready", "Status"]);
    assert_eq!(columns("ExternalArtifact"), ["Age", "Ready", "Status", "Source"]);
    assert_eq!(crd("Tenant")["spec"]["scope"], "Cluster");
    assert_eq!(crd("Surface")["spec"]["scope"], "Namespaced");
}

#[test]
fn schemas_match_requirements_of_flux() {
    let spec = |kind| crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
    let kustomization = spec("Kustomization");
    assert_eq!(kustomization["required"], json!(["interval", "prune", "sourceRef"]));
    assert_eq!(
        kustomization["properties"]["interval"]["pattern"],
        r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
    );
    assert_eq!(kustomization["properties"]["force"]["default"], json!(false));
    assert_eq!(
        kustomization["properties"]["deletionPolicy"]["enum"],
        json!(["MirrorPrune", "Delete", "WaitForTermination", "Orphan"])
    );
    assert_eq!(kustomization["properties"]["targetNamespace"]["maxLength"], 63);
    let repository = spec("GitRepository");
    assert_eq!(repository["required"], json!(["interval", "url"]));
    assert_eq!(repository["properties"]["timeout"]["default"], "60s");
    let artifact = spec("OCIRepository");
    assert_eq!(artifact["required"], json!(["interval", "url"]));
    assert_eq!(artifact["properties"]["timeout"]["default"], "60s");
    assert_eq!(artifact["properties"]["provider"]["default"], "generic");
    assert_eq!(
        artifact["properties"]["provider"]["enum"],
        json!(["generic", "aws", "azure", "gcp"])
    );
    assert_eq!(artifact["properties"]["url"]["pattern"], "^oci://.*$");
    let verify = &artifact["properties"]["verify"];
    assert_eq!(
        (&verify["required"], &verify["properties"]["provider"]["default"]),
        (&json!(["provider"]), &json!("cosign"))
    );
    let receiver = spec("Receiver");
    assert_eq!(receiver["required"], json!(["resources", "type"]));
    assert_eq!(receiver["properties"]["interval"]["default"], "10m");
    assert_eq!(receiver["x-kubernetes-validations"].as_array().map(Vec::len), Some(4));
    assert_eq!(
        receiver["properties"]["oidcProviders"]["x-kubernetes-list-map-keys"],
        json!(["issuerURL"])
    );
    let alert = spec("Alert");
    assert_eq!(alert["required"], json!(["eventSources", "providerRef"]));
    assert_eq!(alert["properties"]["eventSeverity"]["default"], "info");
    let provider = spec("Provider");
    assert_eq!(provider["required"], json!(["type"]));
    assert_eq!(provider["x-kubernetes-validations"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        provider["properties"]["type"]["enum"].as_array().map(Vec::len),
        Some(34)
    );
    let generator = spec("ArtifactGenerator");
    assert_eq!(generator["required"], json!(["artifacts", "sources"]));
    let copy = &generator["properties"]["artifacts"]["items"]["properties"]["copy"]["items"];
    assert_eq!(copy["required"], json!(["from", "to"]));
    assert_eq!(
        copy["properties"]["from"]["pattern"],
        "^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"
    );
    assert_eq!(
        copy["properties"]["strategy"]["enum"],
        json!(["Overwrite", "Merge", "Extract"])
    );
    assert_eq!(copy["properties"]["exclude"]["maxItems"], 100);
    let rule = generator["x-kubernetes-validations"][0]["rule"].as_str().unwrap();
    assert!(rule.contains(r"(\\.[a-z0-9]"), "{rule}");
    let bucket = spec("Bucket");
    assert_eq!(bucket["required"], json!(["bucketName", "endpoint", "interval"]));
    assert_eq!(bucket["properties"]["timeout"]["default"], "60s");
    assert_eq!(bucket["properties"]["provider"]["default"], "generic");
    assert_eq!(bucket["properties"]["sts"]["required"], json!(["endpoint", "provider"]));
    let status = &crd("Kustomization")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    assert_eq!(status["default"], json!({ "observedGeneration": -1 }));
    assert_eq!(
        crd("Tenant")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"],
        json!(true)
    );
}

#[test]
fn packages_are_shaped_as_cozystacks() {
    let crds = package_crds().unwrap();
    let names: Vec<&str> = crds
        .iter()
        .map(|crd| crd["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "packages.cozystack.io",
            "packagesources.cozystack.io",
            "packagevalues.cozystack.io"
        ]
    );
    let columns = |crd: &Value| -> Vec<String> {
        let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap();
        columns
            .iter()
            .map(|column| column["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(columns(&crds[0]), ["Variant", "Ready", "Overridden", "Status"]);
    assert_eq!(columns(&crds[1]), ["Variants", "Ready", "Status"]);
    for crd in &crds {
        assert_eq!(crd["spec"]["scope"], "Cluster");
        assert_eq!(crd["spec"]["versions"][0]["name"], "v1alpha1");
        assert_eq!(crd["metadata"]["labels"]["app.kubernetes.io/managed-by"], "tenure");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert!(schema.get("required").is_none(), "{crd}");
    }
    // Values have any fields of a chart, and are stored.
    for crd in [&crds[0], &crds[2]] {
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let values = &spec["properties"]["components"]["additionalProperties"]["properties"]["values"];
        assert_eq!(values["x-kubernetes-preserve-unknown-fields"], json!(true));
    }
    let variant = &crds[1]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["variants"]
        ["items"];
    assert_eq!(variant["required"], json!(["name"]));
    let component = &variant["properties"]["components"]["items"];
    assert_eq!(component["required"], json!(["name", "path"]));
    assert_eq!(
        component["properties"]["install"]["properties"]["upgradeCRDs"]["enum"],
        json!(["Skip", "Create", "CreateReplace"])
    );
}

#[test]
fn kinds_of_access_are_immutable_and_hold_no_secret() {
    let crds = access_crds().unwrap();
    let names: Vec<&str> = crds
        .iter()
        .map(|crd| crd["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "accessproviders.tenure.dev",
            "fluxaccesses.tenure.dev",
            "fluxaccessgrants.tenure.dev",
            "fluxaccessrequests.tenure.dev",
            "fluxaccessstandinggrants.tenure.dev",
            "fluxaccesstargets.tenure.dev"
        ]
    );
    let schema = |at: usize| &crds[at]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for (at, name) in names.iter().enumerate().skip(2) {
        let rules = &schema(at)["properties"]["spec"]["x-kubernetes-validations"];
        assert_eq!(rules[0]["rule"], "self == oldSelf", "{name}");
    }
    // A target is cluster-scoped, and its name identifies it.
    assert_eq!(crds[5]["spec"]["scope"], "Cluster");
    assert!(
        schema(5)["x-kubernetes-validations"][0]["rule"]
            .as_str()
            .unwrap()
            .contains("self.metadata.name.startsWith(self.spec.provider")
    );
    assert!(crds[..5].iter().all(|crd| crd["spec"]["scope"] == "Namespaced"));
    // No name of a status field suggests that it contains a credential's value.
    for (at, name) in names.iter().enumerate() {
        let status = schema(at)["properties"]["status"].to_string();
        for word in ["\"token\"", "\"password\"", "\"value\"", "\"identity\"", "\"username\""] {
            assert!(!status.contains(word), "{name}: {word}");
        }
    }
    let installed = tenure_api::crds::crds().unwrap();
    assert!(crds.iter().all(|crd| installed.contains(crd)));
}
