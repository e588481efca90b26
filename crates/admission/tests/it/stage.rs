//! A server with the objects of the table's facts, and with the table's actors and their rights.

use std::collections::BTreeMap;

use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use tenure_admission_rules::policy;
use tenure_tenancy::{FactIndex, Settings};
use tenure_testkit::{Cluster, SOON, eventually};

use crate::accesses;
pub(crate) use crate::answer::Answer;
use crate::answer::read_answer;
use crate::laying::{lay_over, merge, write_marks};
use crate::managed;
use crate::packages;
use crate::paths::locate;
use crate::roles;
use crate::stand_ins;
use crate::sums;
use crate::table::{Actor, Case, Object, Sent, Table, find_kind};

fn read_table() -> Table {
    serde_saphyr::from_str(include_str!("../../../admission-rules/tests/admission.yaml")).unwrap()
}

pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) table: Table,
    /// The real uids, by those in the table.
    uids: BTreeMap<String, String>,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let table = read_table();
        let cluster = Cluster::start_judged_by(table.tenancy.settings.clone()).await.unwrap();
        Self::furnish(cluster, table).await
    }

    /// Prepares a server on which no component checks writes yet.
    pub(crate) async fn set_on(cluster: Cluster) -> Self {
        Self::furnish(cluster, read_table()).await
    }

    async fn furnish(cluster: Cluster, table: Table) -> Self {
        let mut stage = Self {
            cluster,
            table,
            uids: BTreeMap::new(),
        };
        stand_ins::serve(&stage.cluster.admin).await;
        stage.make_tenants().await;
        stage.make_namespaces().await;
        stage.record_namespaces().await;
        stage.make_actors().await;
        stage.make_objects().await;
        stage.count_quotas().await;
        stage
    }

    pub(crate) fn settings(&self) -> Settings {
        self.table.tenancy.settings.clone()
    }

    /// Leaves all checks to the policies, with the facts on namespaces and the rights that they read. Waits until the last policy is in
    /// force.
    pub(crate) async fn hand_over_to_policies(&self) {
        self.cluster.send_guard_away();
        let admin = &self.cluster.admin;
        let tenancy = &self.table.tenancy;
        let facts = FactIndex::from_facts(tenancy);
        for role in tenure_api::installation::list_owner_roles() {
            admin.apply(role).await.unwrap();
        }
        let is_made = |uid: &str| self.uids.contains_key(uid);
        for tenant in tenancy.tenants.iter().filter(|tenant| is_made(&tenant.uid)) {
            let count = facts.count_namespaces(tenant);
            for right in
                policy::list_tenant_rights(tenant, policy::has_namespace_capacity(tenant, facts.settings(), count))
            {
                let (version, kind) = (
                    "rbac.authorization.k8s.io/v1",
                    right["kind"].as_str().unwrap().to_owned(),
                );
                admin.apply(self.write(version, &kind, &right)).await.unwrap();
            }
        }
        let refusing = self.table.collect_refusing(&facts);
        let mintable = self.table.collect_mintable(&facts);
        for namespace in &tenancy.namespaces {
            let written = policy::describe_namespace(&facts, (&refusing, &mintable), &namespace.name);
            let patch = json!({ "metadata": { "annotations": written } });
            if !written.is_empty() && namespace.name != "left-over" {
                admin
                    .patch(("v1", "Namespace"), ("", &namespace.name), patch)
                    .await
                    .unwrap();
            }
        }
        for object in policy::list_policies(&tenancy.settings) {
            admin.apply(object).await.unwrap();
        }
        self.meet_a_policy().await;
    }

    /// Waits for a policy of its own. A server follows policies in the order in which they were written, so all earlier ones are in force too.
    async fn meet_a_policy(&self) {
        let admin = &self.cluster.admin;
        let labels = json!({ "app.kubernetes.io/managed-by": "tenure" });
        let version = "admissionregistration.k8s.io/v1";
        for (kind, spec) in [
            (
                "ValidatingAdmissionPolicy",
                json!({
                    "matchConstraints": { "resourceRules": [{
                        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]
                    }] },
                    "matchConditions": [{ "name": "it", "expression": "object.metadata.name == 'meets-a-policy'" }],
                    "validations": [{ "expression": "false" }]
                }),
            ),
            (
                "ValidatingAdmissionPolicyBinding",
                json!({ "policyName": "tenure-met", "validationActions": ["Deny"] }),
            ),
        ] {
            let metadata = json!({ "name": "tenure-met", "labels": labels });
            let object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec });
            admin.apply(object).await.unwrap();
        }
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "meets-a-policy", "namespace": "nobody" }
        });
        let asked = eventually(SOON, || async {
            let body = Body::from(probe.to_string().into_bytes());
            let request = Request::post("/api/v1/namespaces/nobody/configmaps?dryRun=All")
                .header("content-type", "application/json");
            match read_answer(admin.client().send(request.body(body).unwrap()).await.unwrap()).await {
                Answer::Refused(_, _, message) if message.contains("'tenure-met'") => Ok(()),
                other => Err(other),
            }
        });
        asked.await.unwrap();
    }

    /// Returns the real uid for one in the table.
    pub(crate) fn uid_of(&self, table_uid: &str) -> &str {
        &self.uids[table_uid]
    }

    /// Returns an actor of the table.
    pub(crate) fn actor(&self, name: &str) -> &Actor {
        &self.table.actors[name]
    }

    pub(crate) fn cases(&self) -> impl Iterator<Item = (usize, &Case)> {
        self.table.cases.iter().enumerate()
    }

    async fn make_tenants(&mut self) {
        for tenant in &self.table.tenancy.tenants {
            if tenant.home_namespace.as_deref() == Some("kube-system") {
                continue;
            }
            let mut annotations = serde_json::Map::new();
            if let Some(home) = &tenant.home_namespace {
                annotations.insert("tenure.dev/home-namespace".to_owned(), json!(home));
            }
            if tenant.exclusive_account {
                annotations.insert("tenure.dev/gitops-account".to_owned(), json!("exclusive"));
            }
            if let Some(level) = tenant.pod_security {
                annotations.insert("tenure.dev/pod-security".to_owned(), json!(level));
            }
            let labels = tenant.shard.iter().map(|shard| ("sharding.fluxcd.io/key", shard));
            let labels: BTreeMap<&str, &String> = labels.collect();
            let mut object = json!({
                "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
                "metadata": { "name": tenant.name, "annotations": annotations, "labels": labels },
                "spec": {
                    "owners": tenant.owners,
                    "cordoned": tenant.cordoned,
                    "forceTenantPrefix": tenant.force_prefix,
                    "preventDeletion": tenant.prevent_deletion
                }
            });
            merge(&mut object["spec"], &json!(tenant.bounds));
            write_marks(&mut object["spec"], &json!(tenant.marks));
            if !tenant.quotas.is_empty() {
                object["spec"]["resourceQuotas"] = sums::write_quotas(tenant);
            }
            if let Some(quota) = tenant.namespace_quota {
                object["spec"]["namespaceOptions"]["quota"] = json!(quota);
            }
            if tenant.deleting {
                object["metadata"]["finalizers"] = json!(["example.org/keep"]);
            }
            let made = self.cluster.admin.create(object).await.unwrap();
            let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
            self.uids.insert(tenant.uid.clone(), uid);
            if tenant.deleting {
                let kind = ("capsule.clastix.io/v1beta2", "Tenant");
                self.cluster.admin.delete(kind, ("", &tenant.name)).await.unwrap();
            }
        }
    }

    async fn make_namespaces(&self) {
        for namespace in &self.table.tenancy.namespaces {
            let known = ["tenure-system", "kube-system", "default", "left-over"];
            if known.contains(&namespace.name.as_str()) {
                continue;
            }
            let object = Object {
                label: namespace.tenant_label.clone(),
                owners: namespace
                    .tenant_owners
                    .iter()
                    .map(|owner| (owner.name.clone(), owner.uid.clone()))
                    .collect(),
                ..Object::default()
            };
            let mut object = self.write("v1", "Namespace", &object.to_value(&namespace.name));
            // Made without other annotations, as if by Tenure. The namespace may still exist when quotas stop other users.
            object["metadata"]["annotations"] = json!({});
            if !namespace.mintable.is_empty() {
                let named: Vec<&str> = namespace.mintable.iter().map(String::as_str).collect();
                object["metadata"]["annotations"]["tenure.dev/mintable-accounts"] = json!(named.join(", "));
            }
            // Marked as the controllers mark it. For other namespaces the server calls another webhook, or none.
            if let Some(tenant) = sums::find_tenant(&self.table, namespace) {
                if !tenant.bounds.is_empty() {
                    object["metadata"]["labels"]["tenure.dev/bounded"] = json!("true");
                }
                if !tenant.quotas.is_empty() {
                    object["metadata"]["labels"]["tenure.dev/counted"] = json!("true");
                }
            }
            self.cluster.admin.create(object).await.unwrap();
        }
    }

    /// Writes the namespaces into the Tenants' statuses, as if by Tenure.
    async fn record_namespaces(&self) {
        let admin = &self.cluster.admin;
        let tenants = self.table.tenancy.tenants.iter();
        for tenant in tenants.filter(|tenant| !tenant.recorded.is_empty()) {
            let mut spaces = Vec::new();
            for name in tenant.recorded.keys() {
                let found = admin.get(("v1", "Namespace"), ("", name)).await.unwrap().unwrap();
                spaces.push(json!({ "name": name, "uid": found["metadata"]["uid"] }));
            }
            let status = json!({ "status": { "size": spaces.len(), "state": "Active", "spaces": spaces } });
            let target = ("", tenant.name.as_str());
            let kind = ("capsule.clastix.io/v1beta2", "Tenant");
            admin.patch_status(kind, target, status).await.unwrap();
        }
    }

    /// Makes Kustomizations with statuses, as if they had applied something.
    async fn make_objects(&self) {
        let admin = &self.cluster.admin;
        for object in &self.table.objects {
            let kind = object["kind"].as_str().unwrap();
            let (version, _) = find_kind(kind);
            let mut object = object.clone();
            object["apiVersion"] = json!(version);
            if managed::is_applied(&object) {
                admin.apply_as("kustomize-controller", object).await.unwrap();
                continue;
            }
            if object["metadata"].get("namespace").is_none() {
                // A class may exist from an earlier run.
                admin.apply(object).await.unwrap();
                continue;
            }
            let status = object.as_object_mut().unwrap().remove("status");
            let target = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap().to_owned();
            let (namespace, name) = (target("/metadata/namespace"), target("/metadata/name"));
            let is_leaving = managed::keep_if_leaving(&mut object);
            admin.create(object).await.unwrap();
            if let Some(status) = status {
                let patch = json!({ "status": status });
                admin
                    .patch_status((version, kind), (&namespace, &name), patch)
                    .await
                    .unwrap();
            }
            if is_leaving {
                admin.delete((version, kind), (&namespace, &name)).await.unwrap();
            }
        }
    }

    /// Gives each actor all rights in RBAC on the objects of the cases.
    async fn make_actors(&self) {
        let admin = &self.cluster.admin;
        admin.apply(roles::write_all()).await.unwrap();
        admin.apply(roles::write_here()).await.unwrap();
        for namespace in roles::HERE {
            let subjects =
                self.table.actors.values().map(
                    |actor| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": actor.user }),
                );
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": { "name": "writes-here", "namespace": namespace },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writes-here" },
                "subjects": subjects.collect::<Vec<Value>>()
            });
            admin.apply(binding).await.unwrap();
        }
        for (name, actor) in &self.table.actors {
            self.bind(name, "writes", actor).await;
            if actor.rights.is_empty() {
                continue;
            }
            let role = format!("rights-of-{name}");
            let rules: Vec<Value> = actor.rights.iter().map(|right| roles::write_rule(right)).collect();
            admin
                .apply(json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                    "metadata": { "name": role }, "rules": rules
                }))
                .await
                .unwrap();
            self.bind(name, &role, actor).await;
        }
    }

    async fn bind(&self, name: &str, role: &str, actor: &Actor) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("{role}-{name}") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": actor.user }]
        });
        self.cluster.admin.apply(binding).await.unwrap();
    }

    /// Returns an object of the table in the form that this server gets.
    fn write(&self, api_version: &str, kind: &str, object: &Value) -> Value {
        let mut text = object.to_string();
        for (table_uid, uid) in &self.uids {
            text = text.replace(&format!("\"{table_uid}\""), &format!("\"{uid}\""));
        }
        let mut object: Value = serde_json::from_str(&text).unwrap();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object
    }

    /// Sends the request of a case, and restores the previous state.
    pub(crate) async fn ask(&self, case: &Case) -> Answer {
        let (operation, object) = case.action();
        let (_, resource, name) = object.what();
        let namespace = object.namespace.as_deref();
        let (api_version, kind, root) = locate(resource, namespace);
        let part = match case.subresource() {
            "" => String::new(),
            part => format!("/{part}"),
        };
        let actor = &self.table.actors[&case.by];
        // Writes in the name of a GitOps account are denied only if they last, and no TokenRequest is a dry run. These cases are sent as real requests.
        let is_real = !case.dry_run && (actor.user.contains("-gitops") || case.token.is_some());
        let mut target = format!("{root}/{resource}/{name}{part}");
        let mut body = self.write(api_version, kind, &object.to_value(name));
        accesses::complete(kind, &mut body);
        managed::complete(kind, &mut body);
        let method = match operation {
            _ if case.token.is_some() => {
                self.make_account(namespace.unwrap(), name).await;
                body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
                Method::POST
            }
            "CREATE" => {
                target = format!("{root}/{resource}");
                Method::POST
            }
            "UPDATE" => Method::PUT,
            _ => Method::DELETE,
        };
        if resource == "tenants" && body.get("spec").is_none() {
            body["spec"] = json!({});
        }
        if resource == "pods" {
            if body["spec"].get("containers").is_none() {
                body["spec"]["containers"] = json!([{ "name": "main", "image": "example.org/x" }]);
            }
            for account in object.runs_as.iter().chain(&object.runs_as_old) {
                self.make_account(namespace.unwrap(), account).await;
            }
        }
        let must_exist = operation == "DELETE" || operation == "UPDATE";
        let is_made = must_exist && !matches!(resource, "namespaces" | "tenants");
        if is_made {
            let mut before = body.clone();
            before["metadata"]["namespace"] = json!(namespace);
            if operation == "UPDATE" {
                before = self.write(api_version, kind, &case.from.to_value(name));
                accesses::complete(kind, &mut before);
                managed::complete(kind, &mut before);
                before["metadata"]["namespace"] = json!(namespace);
                if resource == "secrets" {
                    before["type"] = json!("kubernetes.io/service-account-token");
                    before["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": "default" });
                }
            }
            let held = if operation == "UPDATE" { &case.from } else { object };
            let applied_by = if operation == "UPDATE" {
                &case.from.applied_by
            } else {
                &object.applied_by
            };
            let admin = &self.cluster.admin;
            let made = match applied_by {
                None if accesses::has_author(kind, &before) => {
                    Ok(self.make_access(kind, &format!("{root}/{resource}"), before).await)
                }
                None if held.held.is_some() || held.status.is_some() => {
                    Ok(packages::furnish(admin, before, held, &format!("{root}/{resource}")).await)
                }
                None => admin.create(before).await,
                Some(_) => {
                    let metadata = before["metadata"].as_object_mut().unwrap();
                    metadata.remove("managedFields");
                    admin.apply_as("kustomize-controller", before).await
                }
            };
            let made = made.unwrap();
            if operation == "UPDATE" && matches!(resource, "pods" | "services" | "deployments" | "clusterroles") {
                // As a client that has read the object first.
                let mut read = made.clone();
                merge(&mut read, &body);
                body = read;
            }
            if matches!(resource, "pods" | "deployments") {
                // The scheduler or the Deployment's controller may write it first.
                body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            }
            if !matches!(resource, "secrets" | "pods" | "deployments") {
                // A controller adds data to a Secret for a token at once.
                body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
            }
            body["metadata"].as_object_mut().unwrap().remove("managedFields");
            if case.subresource() == "scale" {
                body = managed::write_scale(&body);
            }
        }
        if operation == "UPDATE" && resource == "namespaces" {
            // As a client that has read the object first.
            let found = self
                .cluster
                .admin
                .get(("v1", "Namespace"), ("", name))
                .await
                .unwrap()
                .unwrap();
            body = lay_over(found, &body);
        }
        if operation == "UPDATE" && resource == "tenants" {
            let kind = (api_version, kind);
            let mut found = self.cluster.admin.get(kind, ("", name)).await.unwrap().unwrap();
            if case.subresource() == "status" {
                let status = body.get("status").cloned();
                found["status"] = status.unwrap_or_else(|| json!({ "size": 0, "state": "Active" }));
            } else {
                found["metadata"]["annotations"] = body["metadata"]["annotations"].clone();
            }
            body = found;
        }
        if operation == "DELETE" {
            // Options in the body replace those in the query.
            let dry_run = if is_real { json!([]) } else { json!(["All"]) };
            body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "dryRun": dry_run });
        }
        body["metadata"]
            .as_object_mut()
            .map(|metadata| metadata.remove("managedFields"));
        let query = if is_real { "" } else { "?dryRun=All" };
        let target = format!("{target}{query}");
        let answer = match &case.sent {
            None => self.send(actor, method, &target, &body).await,
            Some(Sent::As(manager)) => {
                let target = format!("{target}&fieldManager={manager}");
                self.send(actor, method, &target, &body).await
            }
            Some(Sent::Applied(manager)) => {
                // An apply sends no version.
                body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                let target = format!("{target}&fieldManager={manager}&force=true");
                let content_type = "application/apply-patch+yaml";
                self.send_as(actor, (Method::PATCH, content_type), &target, &body).await
            }
            Some(Sent::Managers(entries)) => {
                let patch = json!([{ "op": "replace", "path": "/metadata/managedFields", "value": entries }]);
                let content_type = "application/json-patch+json";
                self.send_as(actor, (Method::PATCH, content_type), &target, &patch)
                    .await
            }
        };
        if is_made && !case.from.finalizers.is_empty() {
            let patch = json!({ "metadata": { "finalizers": null } });
            let target = (namespace.unwrap_or_default(), name);
            self.cluster
                .admin
                .patch((api_version, kind), target, patch)
                .await
                .unwrap();
        }
        if is_made || (is_real && operation == "CREATE" && case.token.is_none()) {
            let _gone_or_not = self
                .cluster
                .admin
                .delete((api_version, kind), (namespace.unwrap_or_default(), name))
                .await;
        }
        answer
    }

    /// Creates the object of a case, without removing it again.
    pub(crate) async fn make(&self, case: &Case) -> Answer {
        let (_, object) = case.action();
        let (_, _, name) = object.what();
        let body = self.write("v1", "Namespace", &object.to_value(name));
        let actor = &self.table.actors[&case.by];
        self.send(actor, Method::POST, "/api/v1/namespaces", &body).await
    }

    async fn make_account(&self, namespace: &str, name: &str) {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace }
        });
        self.cluster.admin.apply(account).await.unwrap();
    }

    /// Sends a request as an actor: with a token if the table demands one, else by impersonation.
    pub(crate) async fn send(&self, actor: &Actor, method: Method, target: &str, body: &Value) -> Answer {
        self.send_as(actor, (method, "application/json"), target, body).await
    }

    async fn send_as(
        &self,
        actor: &Actor,
        (method, content_type): (Method, &str),
        target: &str,
        body: &Value,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header("content-type", content_type);
        let client = if actor.token {
            let named = actor.user.strip_prefix("system:serviceaccount:").unwrap();
            let (namespace, name) = named.split_once(':').unwrap();
            self.cluster
                .bearing(&self.token_of(namespace, name).await)
                .unwrap()
                .client()
        } else {
            request = request.header("impersonate-user", &actor.user);
            for group in actor.groups.iter().filter(|group| *group != "system:masters") {
                request = request.header("impersonate-group", group);
            }
            self.cluster.admin.client()
        };
        let answer = client
            .send(request.body(Body::from(body.to_string().into_bytes())).unwrap())
            .await
            .unwrap();
        read_answer(answer).await
    }

    async fn token_of(&self, namespace: &str, name: &str) -> String {
        let admin = &self.cluster.admin;
        let found = admin.get(("v1", "Namespace"), ("", namespace)).await.unwrap();
        if found.is_none() {
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            admin.apply(object).await.unwrap();
        }
        self.make_account(namespace, name).await;
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let target = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = Request::post(target)
            .header("content-type", "application/json")
            .body(request.to_string().into_bytes());
        let answer: Value = admin.client().request(request.unwrap()).await.unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }
}
