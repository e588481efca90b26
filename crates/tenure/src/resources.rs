//! From what a user types (`ks`, `deployments`, `deploy.apps`, `Kustomization`) to a resource of the cluster. Owns the
//! matching of names; refuses to guess between two groups without saying so.

use kube::discovery::ApiResource;
use serde_json::Value;

use crate::failure::Failure;

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
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Singular and short names.
    aliases: Vec<String>,
}

impl Resource {
    /// As kube's client wants it.
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

    /// The URL path of the collection, in one namespace or in all.
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

    /// How kubectl names it in messages: `deployments.apps`.
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

/// Every resource that the cluster serves.
pub(crate) async fn served(client: &kube::Client) -> Result<Vec<Resource>, Failure> {
    let mut resources = Vec::new();
    for path in ["/api", "/apis"] {
        let request = http::Request::get(path)
            .header(
                http::header::ACCEPT,
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            )
            .body(Vec::new())
            .map_err(|error| Failure::internal(error.to_string()))?;
        resources.extend(parse(&client.request::<Value>(request).await?));
    }
    Ok(resources)
}

/// The one resource that `typed` names.
pub(crate) fn find<'a>(resources: &'a [Resource], typed: &str) -> Result<&'a Resource, Failure> {
    resources.iter().find(|resource| resource.answers_to(typed)).ok_or_else(|| {
        Failure::usage(format!("the cluster doesn't serve {typed:?}"))
            .hint("names are plural, singular, short or kinds, with a group where two share one: ks, kustomizations, deployments.apps")
    })
}

/// Reads an aggregated discovery document (apidiscovery.k8s.io/v2).
fn parse(list: &Value) -> Vec<Resource> {
    let text = |value: &Value, pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let array = |value: &Value, pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let mut resources = Vec::new();
    for group in array(list, "/items") {
        // The first version is the preferred one.
        let Some(version) = array(&group, "/versions").into_iter().next() else {
            continue;
        };
        for resource in array(&version, "/resources") {
            let mut aliases: Vec<String> = array(&resource, "/shortNames")
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            aliases.push(text(&resource, "/singularResource"));
            resources.push(Resource {
                group: text(&group, "/metadata/name"),
                version: text(&version, "/version"),
                plural: text(&resource, "/resource"),
                kind: text(&resource, "/responseKind/kind"),
                namespaced: text(&resource, "/scope") == "Namespaced",
                aliases,
            });
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, plural: &str, kind: &str, short: &str) -> Resource {
        Resource {
            group: group.into(),
            version: "v1".into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced: true,
            aliases: vec![short.into()],
        }
    }

    #[test]
    fn names_that_people_type() {
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
            assert_eq!(find(&served, typed).expect(typed).plural, plural, "{typed}");
        }
        assert!(find(&served, "deploy.batch").is_err());
    }

    #[test]
    fn an_aggregated_document() {
        let list = serde_json::json!({"items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
            {"resource": "deployments", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced",
             "singularResource": "deployment", "shortNames": ["deploy"]}]}]}]});
        let parsed = parse(&list);
        assert_eq!(parsed.len(), 1);
        assert_eq!(parsed[0].path(Some("a")), "/apis/apps/v1/namespaces/a/deployments");
        assert!(parsed[0].answers_to("deploy"));
        assert!(parse(&Value::Null).is_empty());
    }
}
