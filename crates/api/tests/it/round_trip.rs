//! A user's object comes back unchanged: nothing is lost, and nothing is added.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tenure_api::{
    Alert, ArtifactGenerator, Bucket, ExternalArtifact, GitRepository, Kustomization, OciRepository, Package,
    PackageSource, PackageValues, Provider, Receiver, Surface, Tenant,
};

#[track_caller]
fn check<K: Serialize + DeserializeOwned>(object: Value) {
    let typed: K = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), object);
}

#[test]
fn a_kustomization_with_every_field() {
    check::<Kustomization>(json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": { "name": "apps", "namespace": "team", "generation": 3 },
        "spec": {
            "buildMetadata": ["originAnnotations"],
            "commonMetadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } },
            "components": ["../component"],
            "decryption": { "provider": "sops", "secretRef": { "name": "keys" }, "serviceAccountName": "kms" },
            "deletionPolicy": "Orphan",
            "dependsOn": [{ "name": "infra", "namespace": "other", "readyExpr": "true" }],
            "force": true,
            "healthCheckExprs": [{ "apiVersion": "v1", "kind": "Thing", "current": "true", "failed": "false", "inProgress": "false" }],
            "healthChecks": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "team" }],
            "ignore": [{ "paths": ["/spec/replicas"], "target": { "kind": "Deployment" } }],
            "ignoreMissingComponents": true,
            "images": [{ "name": "nginx", "newName": "n", "newTag": "1", "digest": "sha256:0" }],
            "interval": "10m",
            "kubeConfig": { "secretRef": { "name": "kubeconfig", "key": "value" }, "configMapRef": { "name": "cluster" } },
            "namePrefix": "a-",
            "nameSuffix": "-b",
            "patches": [{ "patch": "x", "target": { "labelSelector": "a=b" } }],
            "path": "./deploy",
            "postBuild": { "substitute": { "a": "b" }, "substituteFrom": [{ "kind": "Secret", "name": "vars", "optional": true }], "substituteStrategy": "Always" },
            "prune": true,
            "retryInterval": "1m",
            "serviceAccountName": "deployer",
            "sourceRef": { "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "repo", "namespace": "team" },
            "suspend": true,
            "targetNamespace": "team",
            "timeout": "3m",
            "wait": true
        },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied revision: main@sha1:1", "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 3 }],
            "history": [{ "digest": "sha256:1", "firstReconciled": "2026-01-02T03:04:05Z", "lastReconciled": "2026-01-02T03:04:06Z", "lastReconciledDuration": "1s", "lastReconciledStatus": "ReconciliationSucceeded", "metadata": { "revision": "main@sha1:1" }, "totalReconciliations": 2 }],
            "inventory": { "entries": [{ "id": "team_web_apps_Deployment", "v": "v1" }] },
            "lastAppliedOriginRevision": "o",
            "lastAppliedRevision": "main@sha1:1",
            "lastAttemptedRevision": "main@sha1:1",
            "lastHandledReconcileAt": "now",
            "observedGeneration": 3
        }
    }));
}

#[test]
fn a_git_repository_with_every_field() {
    check::<GitRepository>(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "GitRepository",
        "metadata": { "name": "repo", "namespace": "team" },
        "spec": {
            "ignore": "*.md",
            "include": [{ "fromPath": "a", "repository": { "name": "other" }, "toPath": "b" }],
            "interval": "1m",
            "provider": "generic",
            "proxySecretRef": { "name": "proxy" },
            "recurseSubmodules": true,
            "ref": { "branch": "main", "commit": "1", "name": "refs/heads/main", "semver": ">=1", "tag": "v1" },
            "secretRef": { "name": "credentials" },
            "serviceAccountName": "cloud",
            "sparseCheckout": ["deploy"],
            "suspend": true,
            "timeout": "60s",
            "url": "https://example.com/repo.git",
            "verify": { "mode": "HEAD", "secretRef": { "name": "keys" } }
        },
        "status": {
            "artifact": { "digest": "sha256:1", "lastUpdateTime": "2026-01-02T03:04:05Z", "metadata": { "a": "b" }, "path": "gitrepository/team/repo/1.tar.gz", "revision": "main@sha1:1", "size": 10, "url": "" },
            "observedGeneration": 1,
            "observedIgnore": "*.md"
        }
    }));
}

#[test]
fn an_oci_repository_with_every_field() {
    check::<OciRepository>(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "OCIRepository",
        "metadata": { "name": "repo", "namespace": "team" },
        "spec": {
            "certSecretRef": { "name": "tls" },
            "ignore": "*.md",
            "insecure": true,
            "interval": "1m",
            "layerSelector": { "mediaType": "application/vnd.example.tar+gzip", "operation": "copy" },
            "provider": "generic",
            "proxySecretRef": { "name": "proxy" },
            "ref": { "digest": "sha256:1", "semver": ">=1", "semverFilter": ".*-rc.*", "tag": "latest" },
            "secretRef": { "name": "credentials" },
            "serviceAccountName": "puller",
            "suspend": true,
            "timeout": "60s",
            "url": "oci://registry.example.com/team/app",
            "verify": {
                "matchOIDCIdentity": [{ "issuer": "^https://a$", "subject": "^b$" }],
                "provider": "cosign",
                "secretRef": { "name": "keys" },
                "trustedRootSecretRef": { "name": "root" }
            }
        },
        "status": {
            "artifact": { "digest": "sha256:1", "lastUpdateTime": "2026-01-02T03:04:05Z", "metadata": { "a": "b" }, "path": "ocirepository/team/repo/1.tar.gz", "revision": "latest@sha256:1", "size": 10, "url": "" },
            "lastHandledReconcileAt": "now",
            "observedGeneration": 1,
            "observedIgnore": "*.md",
            "observedLayerSelector": { "mediaType": "application/vnd.example.tar+gzip", "operation": "copy" },
            "url": "http://source-controller/x"
        }
    }));
}

#[test]
fn a_receiver_with_every_field() {
    check::<Receiver>(json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1",
        "kind": "Receiver",
        "metadata": { "name": "hook", "namespace": "team" },
        "spec": {
            "events": ["push"],
            "interval": "1h",
            "oidcProviders": [{
                "audience": "us",
                "issuerURL": "https://issuer.example",
                "validations": [{ "expression": "true", "message": "no" }],
                "variables": [{ "expression": "claims.sub", "name": "sub" }]
            }],
            "resourceFilter": "req.ref == 'refs/heads/main'",
            "resources": [{
                "apiVersion": "source.toolkit.fluxcd.io/v1",
                "filter": "true",
                "kind": "GitRepository",
                "matchLabels": { "a": "b" },
                "name": "*",
                "namespace": "team"
            }],
            "secretRef": { "name": "token" },
            "suspend": true,
            "type": "github"
        },
        "status": { "lastHandledReconcileAt": "now", "observedGeneration": 1, "webhookPath": "/hook/1" }
    }));
}

#[test]
fn an_alert_with_every_field() {
    check::<Alert>(json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1beta3",
        "kind": "Alert",
        "metadata": { "name": "chat", "namespace": "team" },
        "spec": {
            "eventMetadata": { "cluster": "one" },
            "eventSeverity": "error",
            "eventSources": [{
                "apiVersion": "source.toolkit.fluxcd.io/v1",
                "kind": "GitRepository",
                "matchLabels": { "a": "b" },
                "name": "*",
                "namespace": "team"
            }],
            "exclusionList": ["waiting.*socket"],
            "inclusionList": [".*failed.*"],
            "providerRef": { "name": "chat" },
            "summary": "cluster one",
            "suspend": true
        },
        "status": { "observedGeneration": 1 }
    }));
}

#[test]
fn a_provider_with_every_field() {
    check::<Provider>(json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1beta3",
        "kind": "Provider",
        "metadata": { "name": "chat", "namespace": "team" },
        "spec": {
            "address": "https://git.example/a/b",
            "certSecretRef": { "name": "tls" },
            "channel": "general",
            "commitStatusExpr": "event.reason",
            "interval": "1m",
            "proxy": "http://proxy.example:3128",
            "proxySecretRef": { "name": "proxy" },
            "secretRef": { "name": "token" },
            "serviceAccountName": "cloud",
            "suspend": true,
            "timeout": "30s",
            "type": "github",
            "username": "tenure"
        },
        "status": { "observedGeneration": 1 }
    }));
}

#[test]
fn a_bucket_with_every_field() {
    check::<Bucket>(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "Bucket",
        "metadata": { "name": "bucket", "namespace": "team" },
        "spec": {
            "bucketName": "apps",
            "certSecretRef": { "name": "tls" },
            "endpoint": "store.example.com:9000",
            "ignore": "*.md",
            "insecure": true,
            "interval": "1m",
            "prefix": "web/",
            "provider": "generic",
            "proxySecretRef": { "name": "proxy" },
            "region": "eu-west-1",
            "secretRef": { "name": "credentials" },
            "serviceAccountName": "fetcher",
            "sts": {
                "certSecretRef": { "name": "tls" },
                "endpoint": "https://tokens.example.com",
                "provider": "ldap",
                "secretRef": { "name": "login" }
            },
            "suspend": true,
            "timeout": "60s"
        },
        "status": {
            "artifact": { "digest": "sha256:1", "lastUpdateTime": "2026-01-02T03:04:05Z", "path": "bucket/team/bucket/1.tar.gz", "revision": "sha256:1", "size": 10, "url": "" },
            "lastHandledReconcileAt": "now",
            "observedGeneration": 1,
            "observedIgnore": "*.md",
            "url": "http://source-controller/x"
        }
    }));
}

#[test]
fn artifact_generator_and_external_artifact_with_every_field() {
    check::<ArtifactGenerator>(json!({
        "apiVersion": "source.extensions.fluxcd.io/v1beta1",
        "kind": "ArtifactGenerator",
        "metadata": { "name": "generator", "namespace": "team" },
        "spec": {
            "artifacts": [{
                "copy": [{ "exclude": ["*.md"], "from": "@repo/{app}/**", "strategy": "Merge", "to": "@artifact/{app}/" }],
                "name": "app-{app}",
                "originRevision": "@repo",
                "revision": "@repo"
            }],
            "commonMetadata": { "annotations": { "a": "b" }, "labels": { "c": "d" } },
            "pathPattern": "@repo/{app}",
            "sources": [{ "alias": "repo", "kind": "GitRepository", "name": "repo", "namespace": "team" }]
        },
        "status": {
            "inventory": [{ "digest": "sha256:1", "filename": "1.tar.gz", "name": "app-web", "namespace": "team" }],
            "lastHandledReconcileAt": "now",
            "observedSourcesDigest": "sha256:2"
        }
    }));
    check::<ExternalArtifact>(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "ExternalArtifact",
        "metadata": { "name": "app-web", "namespace": "team" },
        "spec": {
            "sourceRef": { "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator", "name": "generator", "namespace": "team" }
        },
        "status": {
            "artifact": { "digest": "sha256:1", "lastUpdateTime": "2026-01-02T03:04:05Z", "path": "externalartifact/team/app-web/1.tar.gz", "revision": "latest@sha256:1", "size": 10, "url": "" }
        }
    }));
}

#[test]
fn a_surface() {
    check::<Surface>(json!({
        "apiVersion": "tenure.dev/v1alpha1",
        "kind": "Surface",
        "metadata": { "name": "apps", "namespace": "team" },
        "spec": {
            "sources": [{
                "name": "shop",
                "url": "https://example.com/shop.git",
                "ref": { "branch": "main" },
                "secretRef": { "name": "credentials" },
                "interval": "1m",
                "ignore": "*.md",
                "paths": [{ "name": "staging", "path": "overlays/staging", "targetNamespace": "team-staging" }],
                "prune": false,
                "wait": true,
                "timeout": "2m",
                "retryInterval": "10s",
                "dependsOn": [{ "name": "base" }],
                "targetNamespace": "team",
                "deletionPolicy": "Orphan",
                "force": true
            }],
            "serviceAccountName": "platform-admin",
            "suspend": true
        },
        "status": { "tier": "Platform", "identity": "system:serviceaccount:tenure-system:platform-admin", "sources": [{ "name": "shop", "ready": true }] }
    }));
}

#[test]
fn a_tenant_keeps_what_only_capsule_knows() {
    let tenant = json!({
        "apiVersion": "capsule.clastix.io/v1beta2",
        "kind": "Tenant",
        "metadata": { "name": "oil" },
        "spec": {
            "owners": [{ "kind": "User", "name": "alice", "proxySettings": [{ "kind": "Nodes", "operations": ["List"] }] }],
            "namespaceOptions": {
                "quota": 3, "additionalMetadata": { "labels": { "a": "b" } },
                "forbiddenLabels": { "denied": ["x"], "deniedRegex": "y" }, "forbiddenAnnotations": { "denied": ["x"] }
            },
            "storageClasses": {
                "allowed": ["fast"], "allowedRegex": "f.*", "default": "fast", "matchLabels": { "a": "b" },
                "matchExpressions": [{ "key": "a", "operator": "Exists" }]
            },
            "priorityClasses": { "allowed": ["small"] },
            "runtimeClasses": {},
            "ingressOptions": {
                "allowedClasses": { "default": "web" }, "allowedHostnames": { "allowed": ["a.example.org"], "allowedRegex": ".*" },
                "allowWildcardHostnames": false, "hostnameCollisionScope": "Disabled"
            },
            "containerRegistries": { "allowed": ["docker.io"], "unheardOf": 1 },
            "imagePullPolicies": ["Always"],
            "serviceOptions": {
                "additionalMetadata": { "labels": { "a": "b" } }, "unheardOf": {},
                "allowedServices": { "nodePort": false, "externalName": true, "loadBalancer": true },
                "externalIPs": { "allowed": [] },
                "forbiddenLabels": { "denied": ["x"] }, "forbiddenAnnotations": { "deniedRegex": "x" }
            },
            "gatewayOptions": { "allowedClasses": { "default": "gate" } },
            "cordoned": false
        },
        "status": { "size": 1, "state": "Active", "namespaces": ["oil"], "spaces": [{ "name": "oil", "uid": "1", "conditions": [] }], "classes": {} }
    });
    check::<Tenant>(tenant.clone());
    let typed: Tenant = serde_json::from_value(tenant).unwrap();
    assert_eq!(typed.spec.other.keys().collect::<Vec<_>>(), ["gatewayOptions"]);
    let unknown = typed.spec.bounds.list_unknown();
    assert_eq!(unknown, ["containerRegistries.unheardOf", "serviceOptions.unheardOf"]);
}

#[test]
fn a_package_with_every_field() {
    check::<Package>(json!({
        "apiVersion": "cozystack.io/v1alpha1",
        "kind": "Package",
        "metadata": { "name": "cozystack.metallb" },
        "spec": {
            "components": {
                "metallb": { "enabled": false, "values": { "speaker": { "frr": null, "ports": [7472], "ratio": 0.5 } } },
                "other": {}
            },
            "ignoreDependencies": ["cozystack.networking"],
            "variant": "default"
        },
        "status": {
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "VariantNotFound", "message": "no such variant",
                "lastTransitionTime": "2026-01-01T00:00:00Z"
            }],
            "releases": [
                { "component": "metallb", "name": "metallb", "namespace": "cozy-metallb", "uid": "u" },
                { "component": "other", "name": "other", "namespace": "cozy-metallb", "proofDigests": ["sha256:0"], "removing": true }
            ],
            "dependencies": { "cozystack.networking": { "ready": true } },
            "appliedValues": { "generation": 1, "uid": "u" },
            "observedGeneration": 3,
            "observedValues": { "generation": 2, "uid": "u" },
            "overridden": "metallb"
        }
    }));
}

#[test]
fn package_values_with_every_field() {
    check::<PackageValues>(json!({
        "apiVersion": "cozystack.io/v1alpha1",
        "kind": "PackageValues",
        "metadata": { "name": "cozystack.metallb" },
        "spec": {
            "components": {
                "metallb": {
                    "enabled": true,
                    "lists": [{ "path": "/images", "key": "name" }],
                    "unset": ["/speaker/frr"],
                    "values": { "speaker": { "logLevel": "debug" } }
                }
            },
            "ignoreDependencies": ["cozystack.networking"]
        },
        "status": {
            "components": {
                "metallb": {
                    "digest": "sha256:0",
                    "overridden": ["/speaker/frr"],
                    "replaced": ["/speaker"],
                    "values": "{\"speaker\":{\"frr\":null}}"
                }
            },
            "observedGeneration": 1
        }
    }));
}

#[test]
fn a_package_source_with_every_field() {
    check::<PackageSource>(json!({
        "apiVersion": "cozystack.io/v1alpha1",
        "kind": "PackageSource",
        "metadata": { "name": "cozystack.metallb" },
        "spec": {
            "sourceRef": { "kind": "OCIRepository", "name": "cozystack-packages", "namespace": "cozy-system", "path": "/" },
            "variants": [{
                "components": [{
                    "install": {
                        "dependsOn": ["crds"],
                        "healthCheckExprs": [{ "apiVersion": "v1", "kind": "Thing", "current": "true" }],
                        "namespace": "cozy-metallb",
                        "privileged": true,
                        "releaseName": "metallb",
                        "upgradeCRDs": "CreateReplace",
                        "waitStrategy": "poller"
                    },
                    "libraries": ["cozy-lib"],
                    "name": "metallb",
                    "path": "system/metallb",
                    "valuesFiles": ["values.yaml"]
                }],
                "dependsOn": ["cozystack.networking"],
                "libraries": [{ "name": "cozy-lib", "path": "library/cozy-lib" }],
                "name": "default"
            }]
        },
        "status": { "variants": "default" }
    }));
}
