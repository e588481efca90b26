//! Resolves a user's input (`ks`, `deployments`, `deploy.apps`, `Kustomization`) to a resource of the cluster. A choice between two groups is reported.
//! `tenure_cluster::discovery` reads the served kinds.

use futures::StreamExt as _;
use kube::discovery::ApiResource;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_cluster::discovery::{self, Discovery, GroupVersion, NamedResource};
use tenure_inspection::suggestions::{find_close, name_suggestions};

use crate::failure::{Failure, OTHER_NAMESPACE, write_cluster_scoped_hint};

/// A resource that the cluster serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The version that the cluster prefers.
    pub(crate) version: String,
    /// The plural name, as in URLs.
    pub(crate) plural: String,
    /// The kind.
    pub(crate) kind: String,
    /// Whether the objects are namespaced.
    pub(crate) namespaced: bool,
    /// The singular and the short names.
    aliases: Vec<String>,
}

impl From<&NamedResource> for Resource {
    fn from(named: &NamedResource) -> Self {
        let resource = named.resource.clone();
        let mut aliases = named.short_names.clone();
        aliases.push(named.singular.clone());
        Self {
            group: resource.group,
            version: resource.version,
            plural: resource.plural,
            kind: resource.kind,
            namespaced: resource.namespaced,
            aliases,
        }
    }
}

impl Resource {
    /// Returns a namespaced resource of a kind, in version v1.
    #[cfg(test)]
    pub(crate) fn from_names(group: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.into(),
            version: "v1".into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced: true,
            aliases: vec![kind.to_lowercase()],
        }
    }

    /// Returns the resource in kube's type.
    pub(crate) fn api(&self) -> ApiResource {
        let api_version = if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        };
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version,
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }

    /// Returns the path of the collection, in one namespace or in all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let base = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{}", self.plural),
            None => format!("{base}/{}", self.plural),
        }
    }

    /// Returns kubectl's name of the resource in messages: `deployments.apps`.
    pub(crate) fn full_name(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    fn answers_to(&self, typed: &str) -> bool {
        let typed = typed.to_lowercase();
        let (name, group) = typed
            .split_once('.')
            .map_or((typed.as_str(), None), |(name, group)| (name, Some(group)));
        let name_matches =
            self.plural == name || self.kind.to_lowercase() == name || self.aliases.iter().any(|alias| alias == name);
        name_matches && group.is_none_or(|group| self.group.starts_with(group))
    }
}

/// Returns the path of a cluster-scoped object.
pub(crate) fn write_collection_path(resource: &Resource, name: &str) -> String {
    format!("{}/{}", resource.path(None), encode_segment(name))
}

/// Returns the path of one object.
pub(crate) fn write_path(resource: &tenure_cluster::Resource, namespace: &str, name: &str) -> String {
    let base = if resource.group.is_empty() { "/api" } else { "/apis" };
    let namespace = resource
        .scope(namespace)
        .map(|namespace| format!("/namespaces/{}", encode_segment(namespace)))
        .unwrap_or_default();
    format!(
        "{base}/{}{namespace}/{}/{}",
        resource.api_version(),
        resource.plural,
        encode_segment(name)
    )
}

/// Returns the path of a collection, in one namespace or in all.
pub(crate) fn write_collection(resource: &tenure_cluster::Resource, namespace: Option<&str>) -> String {
    let base = if resource.group.is_empty() { "/api" } else { "/apis" };
    let namespace = namespace
        .filter(|_| resource.namespaced)
        .map(|namespace| format!("/namespaces/{}", encode_segment(namespace)))
        .unwrap_or_default();
    format!("{base}/{}{namespace}/{}", resource.api_version(), resource.plural)
}

/// Encodes a part of a path or a value of a query: everything except letters, digits and characters that need no escape (RFC 3986).
pub(crate) fn encode_segment(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Reads the object at a path, in a form of the API server; `None` if it is missing.
pub(crate) async fn find_at(client: &kube::Client, path: &str, accept: &str) -> Result<Option<Value>, kube::Error> {
    let request = http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    match client.request(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns every resource that the cluster serves.
pub(crate) async fn list_served(client: &kube::Client) -> Result<Vec<Resource>, Failure> {
    Ok(discover_resources(client)
        .await?
        .list_preferred()
        .map(Resource::from)
        .collect())
}

/// The number of concurrent reads of versions from a server with the older form of discovery, and their largest number.
const VERSIONS_AT_ONCE: usize = 8;
const MOST_VERSIONS: usize = 2_000;

/// Returns every kind that the cluster serves. The kinds of an unreadable version are unknown.
pub(crate) async fn discover_resources(client: &kube::Client) -> Result<Discovery, Failure> {
    let (mut documents, mut has_core) = (Vec::new(), true);
    for path in [discovery::CORE_PATH, discovery::GROUPS_PATH] {
        match ask_for_groups(client, path).await {
            Ok(document) => documents.push(document),
            Err(kube::Error::Api(status)) if path == discovery::CORE_PATH && status.code == 404 => has_core = false,
            Err(error) => return Err(error.into()),
        }
    }
    let read = Discovery::read(&documents);
    let mut discovery = read.map_err(|error| Failure::environment(error.to_string()))?;
    if !has_core {
        discovery.mark_unknown("");
    }
    let groups = discovery.list_unread();
    let versions = groups.into_iter().flatten().take(MOST_VERSIONS);
    let asks = versions.map(|version| async move {
        let answered = ask_for_document(client, &version.path(), discovery::ACCEPT_PLAIN).await;
        (version, answered.ok())
    });
    let mut answers: Vec<_> = futures::stream::iter(asks).buffered(VERSIONS_AT_ONCE).collect().await;
    while let Some(group) = answers.first().map(|(version, _)| version.group().to_owned()) {
        let is_of_group = |(version, _): &(GroupVersion, Option<Value>)| version.group() == group;
        let (of_group, others): (Vec<_>, Vec<_>) = answers.into_iter().partition(is_of_group);
        discovery.take_versions(&group, &of_group);
        answers = others;
    }
    Ok(discovery)
}

/// Reads one document of all groups. Requests the older form if the server refuses the aggregated one.
async fn ask_for_groups(client: &kube::Client, path: &str) -> Result<Value, kube::Error> {
    match ask_for_document(client, path, discovery::ACCEPT).await {
        Err(kube::Error::Api(status)) if discovery::is_form_refused(status.code) => {}
        Err(kube::Error::SerdeError(_)) => {}
        answered => return answered,
    }
    ask_for_document(client, path, discovery::ACCEPT_PLAIN).await
}

async fn ask_for_document(client: &kube::Client, path: &str, accept: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Explains the server's refusal of a whole collection, with the kind and the namespace.
pub(crate) fn explain_error(error: kube::Error, resource: &Resource, namespace: Option<&str>) -> Failure {
    if let kube::Error::Api(status) = &error
        && status.code == 403
    {
        let place = match (resource.namespaced, namespace) {
            (false, _) => String::new(),
            (true, Some(namespace)) => format!(" in namespace {namespace}"),
            (true, None) => " in all namespaces".to_owned(),
        };
        let hint = match (resource.namespaced, namespace) {
            (true, None) => "-n NAMESPACE asks for one namespace, which may be allowed",
            _ => "ask an administrator for this right",
        };
        return Failure::environment(format!("you may not list {}{place}", resource.full_name())).hint(hint);
    }
    Failure::from(error)
}

/// Finds the one resource that `typed` names.
pub(crate) fn find_resource<'a>(resources: &'a [Resource], typed: &str) -> Result<&'a Resource, Failure> {
    resources.iter().find(|resource| resource.answers_to(typed)).ok_or_else(|| {
        let failure = Failure::usage(format!("the cluster doesn't serve {typed:?}"));
        match suggest_kinds(resources, typed) {
            Some(hint) => failure.hint(hint),
            None => failure.hint("names are plural, singular, short or kinds, with a group where two share one: ks, kustomizations, deployments.apps"),
        }
    })
}

/// Returns a hint with names of kinds that are close to the typed one.
fn suggest_kinds(resources: &[Resource], typed: &str) -> Option<String> {
    let name = typed.split_once('.').map_or(typed, |(name, _)| name);
    let names = resources.iter().flat_map(|resource| {
        let aliases = resource.aliases.iter().map(String::as_str);
        aliases.chain([resource.plural.as_str()])
    });
    let closest = find_close(name, names).first().copied()?;
    let matching: Vec<&Resource> = resources
        .iter()
        .filter(|resource| resource.answers_to(closest))
        .collect();
    // A group is a part of the hint if the user typed one, or if it is needed.
    Some(match matching.as_slice() {
        [_] if name == typed => format!("did you mean {closest}?"),
        _ => {
            let names: Vec<String> = matching.iter().map(|resource| resource.full_name()).collect();
            format!("did you mean {}?", names.join(" or "))
        }
    })
}

/// The largest number of names that are read for suggestions and completions.
pub(crate) const MOST_NAMES: usize = 500;

/// Reads the names of the objects of a kind. The metadata is enough.
pub(crate) async fn list_names(
    client: &kube::Client,
    resource: &Resource,
    namespace: Option<&str>,
) -> Result<Vec<String>, Failure> {
    let path = format!("{}?limit={MOST_NAMES}", resource.path(namespace));
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let request = http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let answer: Value = client.request(request).await?;
    let items = ObjectView::new(&answer).list_views("/items");
    let names = items.filter_map(|item| item.find_text("/metadata/name"));
    Ok(names.map(str::to_owned).collect())
}

/// Returns the hint about a missing object whose name is close to no other name.
fn write_missing_hint(resource: &Resource) -> String {
    match resource.namespaced {
        true => OTHER_NAMESPACE.to_owned(),
        false => write_cluster_scoped_hint(&resource.plural),
    }
}

/// Returns the failure for a missing object, with the close names, as far as the user may list them.
pub(crate) async fn explain_missing(
    client: &kube::Client,
    resource: &Resource,
    (namespace, name): (Option<&str>, &str),
    failure: Failure,
) -> Failure {
    let names = list_names(client, resource, namespace).await.unwrap_or_default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match name_suggestions(name, &names) {
        Some(hint) => failure.hint(hint),
        None => failure.hint(write_missing_hint(resource)),
    }
}

/// Explains why an object can't be read: for a missing one, with the close names.
pub(crate) async fn explain_read(
    client: &kube::Client,
    resource: &Resource,
    object: (Option<&str>, &str),
    error: kube::Error,
) -> Failure {
    let is_missing = matches!(&error, kube::Error::Api(status) if status.code == 404);
    let failure = Failure::from(error);
    match is_missing {
        true => explain_missing(client, resource, object, failure).await,
        false => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, plural: &str, kind: &str, short: &str) -> Resource {
        let mut resource = Resource::from_names(group, plural, kind);
        resource.aliases.push(short.into());
        resource
    }

    #[test]
    fn resource_is_found_by_short_and_long_names() {
        let served = [
            resource("", "events", "Event", "ev"),
            resource("apps", "deployments", "Deployment", "deploy"),
            resource("kustomize.toolkit.fluxcd.io", "kustomizations", "Kustomization", "ks"),
        ];
        for (typed, plural) in [
            ("ev", "events"),
            ("deployments", "deployments"),
            ("deploy.apps", "deployments"),
            ("Deployment", "deployments"),
            ("ks", "kustomizations"),
            ("kustomizations.kustomize.toolkit.fluxcd.io", "kustomizations"),
        ] {
            assert_eq!(find_resource(&served, typed).expect(typed).plural, plural, "{typed}");
        }
        assert!(find_resource(&served, "deploy.batch").is_err());
    }

    #[test]
    fn only_namespaced_kinds_get_namespace_hint() {
        let mut tenants = resource("capsule.clastix.io", "tenants", "Tenant", "tnt");
        assert_eq!(write_missing_hint(&tenants), OTHER_NAMESPACE);
        tenants.namespaced = false;
        assert_eq!(
            write_missing_hint(&tenants),
            "tenants have no namespace; tenure get tenants lists them"
        );
    }

    #[test]
    fn a_mistyped_kind_gets_a_suggestion() {
        let served = [
            resource("apps", "deployments", "Deployment", "deploy"),
            resource("tenure.dev", "surfaces", "Surface", "sf"),
            resource("source.toolkit.fluxcd.io", "buckets", "Bucket", "bk"),
            resource("example.org", "buckets", "Bucket", "bk"),
        ];
        for (typed, hint) in [
            ("deploymnet", "did you mean deployment?"),
            ("surfce.tenure.dev", "did you mean surfaces.tenure.dev?"),
            (
                "bukcets",
                "did you mean buckets.source.toolkit.fluxcd.io or buckets.example.org?",
            ),
            ("deployment.batch", "did you mean deployments.apps?"),
        ] {
            let failure = find_resource(&served, typed).expect_err(typed);
            assert_eq!(failure.hint.as_deref(), Some(hint), "{typed}");
        }
        let failure = find_resource(&served, "frobnicate").expect_err("no such kind");
        assert!(failure.hint.is_some_and(|hint| hint.contains("deployments.apps")));
    }

    #[test]
    fn names_in_paths_are_encoded() {
        assert_eq!(encode_segment("app=web,tier!=a b"), "app%3Dweb%2Ctier%21%3Da%20b");
        let resource = |group: &str, namespaced| tenure_cluster::Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: "Role".to_owned(),
            plural: "roles".to_owned(),
            namespaced,
            watchable: true,
        };
        let path = write_path(&resource("rbac.authorization.k8s.io", true), "a", "system:x/../y");
        assert_eq!(
            path,
            "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles/system%3Ax%2F..%2Fy"
        );
        assert_eq!(write_path(&resource("", false), "a", "b"), "/api/v1/roles/b");
    }

    #[test]
    fn every_kind_in_the_version_that_the_cluster_prefers() {
        let kind = |plural: &str, kind: &str| {
            serde_json::json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced",
                "singularResource": kind.to_lowercase(), "shortNames": ["deploy"]})
        };
        let list = serde_json::json!({"items": [{"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "resources": [kind("deployments", "Deployment")]},
            {"version": "v1beta1", "resources": [kind("deployments", "Deployment"), kind("scales", "Scale")]}]}]});
        let read = Discovery::read(&[list]).expect("it is a document");
        let resources: Vec<Resource> = read.list_preferred().map(Resource::from).collect();
        let paths: Vec<String> = resources.iter().map(|resource| resource.path(Some("a"))).collect();
        assert_eq!(
            paths,
            [
                "/apis/apps/v1/namespaces/a/deployments",
                "/apis/apps/v1beta1/namespaces/a/scales"
            ]
        );
        assert!(resources.iter().any(|resource| resource.answers_to("deploy")));
    }
}
