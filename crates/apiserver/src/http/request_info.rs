//! The target of a URL, in the terms of authorization and routing.

use http::Method;
use percent_encoding::percent_decode_str;

use super::query::Query;

/// A request as its method and URL describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// Whether the request is about API objects; if not, only `verb` and `path` are meaningful.
    pub(crate) is_resource: bool,
    /// Whether the client wants only the head of the answer; objects don't support that.
    pub(crate) is_head: bool,
    /// The path as sent.
    pub(crate) path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; else the method in lower case.
    pub(crate) verb: String,
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// API version.
    pub(crate) version: String,
    /// Namespace, if the URL names one.
    pub(crate) namespace: Option<String>,
    /// Plural of the resource.
    pub(crate) resource: String,
    /// Subresource, if any.
    pub(crate) subresource: Option<String>,
    /// Name of the object, if any.
    pub(crate) name: Option<String>,
    /// Path segments after the subresource; no route serves them.
    pub(crate) rest: Vec<String>,
}

/// The message in place of an error that may quote a secret.
pub(crate) const CONFIDENTIAL: &str =
    "the request body is invalid; the body is secret, so the error does not repeat it";

impl RequestInfo {
    /// Checks whether the bodies of request and answer are secret.
    pub(crate) fn is_confidential(&self) -> bool {
        match (self.group.as_str(), self.resource.as_str()) {
            ("", "secrets") | ("authentication.k8s.io", "tokenreviews") => true,
            ("", "serviceaccounts") => self.subresource.as_deref() == Some("token"),
            _ => false,
        }
    }

    /// Reads method, path and query. A path outside of the API is no error: it is a request without a resource.
    #[must_use]
    pub(crate) fn parse(method: &Method, path: &str, query: &[(String, String)]) -> Self {
        let verb = method.as_str().to_ascii_lowercase();
        let mut info = Self {
            is_head: method == Method::HEAD,
            path: path.to_owned(),
            verb: verb.clone(),
            ..Self::default()
        };
        // An escaped slash counts as a slash, as in other readers of URLs.
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        let mut parts = decoded.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        match parts.next().as_deref() {
            Some("api") => {}
            Some("apis") => match parts.next() {
                Some(group) => info.group = group,
                None => return info,
            },
            _ => return info,
        }
        let Some(version) = parts.next() else {
            info.group = String::new();
            return info;
        };
        let mut parts = parts.peekable();
        // The segment `watch` in a path is the older form of the parameter `watch=true`.
        let watched = parts.next_if(|part| part == "watch").is_some();
        let rest: Vec<String> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            [] => {
                info.group = String::new();
                return info;
            }
            // `namespaces/x`, `namespaces/x/status` and `namespaces/x/finalize` are about the namespace itself.
            [first, name, sub, ..]
                if first == "namespaces" && !(rest.len() == 3 && matches!(sub.as_str(), "status" | "finalize")) =>
            {
                (Some(name.clone()), rest.get(2..).unwrap_or_default())
            }
            [first, name, ..] if first == "namespaces" => (Some(name.clone()), rest.as_slice()),
            _ => (None, rest.as_slice()),
        };
        let mut rest = rest.iter().cloned();
        info.is_resource = true;
        info.version = version;
        info.namespace = namespace;
        info.resource = rest.next().unwrap_or_default();
        info.name = rest.next();
        info.subresource = rest.next();
        info.rest = rest.collect();
        let watched = watched || Query::is_set(query, "watch");
        info.verb = match verb.as_str() {
            "get" | "head" if info.name.is_none() => {
                // A list restricted to one name is authorized as a request for that name.
                info.name = query
                    .iter()
                    .find(|(key, _)| key == "fieldSelector")
                    .and_then(|(_, selector)| single_name(selector));
                let listed = if watched { "watch" } else { "list" };
                listed.to_owned()
            }
            "get" | "head" if watched && info.subresource.is_none() => "watch".to_owned(),
            "get" | "head" => "get".to_owned(),
            "post" => "create".to_owned(),
            "put" => "update".to_owned(),
            "patch" => "patch".to_owned(),
            "delete" if info.name.is_none() => "deletecollection".to_owned(),
            "delete" => "delete".to_owned(),
            other => other.to_owned(),
        };
        info
    }
}

/// Returns the name in a field selector with the term `metadata.name=x`.
fn single_name(selector: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (!value.is_empty()).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, url: &str, expect: &str) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let query: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes())
            .map(|(k, v)| (k.into_owned(), v.into_owned()))
            .collect();
        let info = RequestInfo::parse(&Method::from_bytes(method.as_bytes()).unwrap(), path, &query);
        let shown = if info.is_resource {
            format!(
                "{} {}/{} ns={} {} sub={} name={}",
                info.verb,
                info.group,
                info.version,
                info.namespace.unwrap_or_default(),
                info.resource,
                info.subresource.unwrap_or_default(),
                info.name.unwrap_or_default()
            )
        } else {
            format!("{} {}", info.verb, info.path)
        };
        assert_eq!(shown, expect, "{method} {url}");
    }

    #[test]
    fn urls() {
        check("GET", "/healthz", "get /healthz");
        check("GET", "/apis/apps/v1", "get /apis/apps/v1");
        check("GET", "/api/v1/namespaces", "list /v1 ns= namespaces sub= name=");
        check("GET", "/api/v1/namespaces/a", "get /v1 ns=a namespaces sub= name=a");
        check(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            "update /v1 ns=a namespaces sub=finalize name=a",
        );
        check(
            "GET",
            "/api/v1/namespaces/a/pods/b/status",
            "get /v1 ns=a pods sub=status name=b",
        );
        check(
            "GET",
            "/api/v1/namespaces/a/pods?watch=1",
            "watch /v1 ns=a pods sub= name=",
        );
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection apps/v1 ns=a deployments sub= name=",
        );
        check(
            "GET",
            "/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dx",
            "watch /v1 ns= pods sub= name=x",
        );
    }
}
