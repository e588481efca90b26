//! The audit policy: which requests are recorded, and in how much detail. This module is pure. It reads the file
//! (`audit.k8s.io/v1`), reports faults and matches rules. Unknown fields are refused, since an ignored rule would
//! leave an invisible gap in the log.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_auth::authorization::Attributes;
use tenure_auth::identity::UserInfo;
use tenure_kinds::schema::validation::names;
use tenure_kinds::schema::{FieldError, FieldPath};

/// The audit level: how much of a request the log contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Nothing.
    None,
    /// The user, the request and its result.
    Metadata,
    /// Also the request body.
    Request,
    /// Also the answer.
    RequestResponse,
}

/// A point in a request at which an event may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The user is known, and the request has not begun.
    RequestReceived,
    /// The head of a streamed answer was sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// A fault of the server ended the request.
    Panic,
}

/// The audit policy's decision for one request: the level, and the omitted stages and fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ruling {
    pub(super) level: Level,
    pub(super) omitted_stages: Vec<Stage>,
    pub(super) omits_managed_fields: bool,
}

/// An audit policy. The first rule that matches a request decides about its level and stages.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: Vec<Rule>,
    omitted_stages: Vec<Stage>,
    omits_managed_fields: bool,
}

/// The file of an audit policy, as `audit.k8s.io/v1` defines it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    #[expect(dead_code, reason = "a policy may have a name, which nothing asks for")]
    metadata: Value,
    #[serde(default)]
    rules: Option<Vec<Rule>>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

/// A rule of the policy: conditions on a request, and the level of its records.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    level: String,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

/// Resources of one API group in a rule, optionally limited to named objects.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];
const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

impl Policy {
    /// Reads a policy, in YAML or JSON.
    ///
    /// # Errors
    /// The faults with their fields; all faults of the rules together.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let (value, repeated) = crate::yaml::parse(text)?;
        if let Some(key) = repeated.first() {
            return Err(format!("{key} is there twice"));
        }
        let file: File = serde_json::from_value(value).map_err(|error| error.to_string())?;
        if (file.api_version.as_str(), file.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            return Err(format!(
                "apiVersion {:?} and kind {:?}: only audit.k8s.io/v1, Policy is read",
                file.api_version, file.kind
            ));
        }
        let rules = file.rules.unwrap_or_default();
        let mut errors = Vec::new();
        validate_stages(&file.omit_stages, &FieldPath::new("omitStages"), &mut errors);
        for (index, rule) in rules.iter().enumerate() {
            rule.check(&FieldPath::new("rules").index(index), &mut errors);
        }
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(errors.join("; "));
        }
        if rules.is_empty() {
            return Err("rules: there are no rules, so the log would stay empty; add at least one rule".to_owned());
        }
        Ok(Self {
            rules,
            omitted_stages: known_stages(&file.omit_stages),
            omits_managed_fields: file.omit_managed_fields,
        })
    }

    /// Returns the decision for a request; `user` is the user before impersonation.
    pub(super) fn judge(&self, user: Option<&UserInfo>, request: &Attributes) -> Ruling {
        let mut ruling = Ruling {
            level: Level::None,
            omitted_stages: self.omitted_stages.clone(),
            omits_managed_fields: self.omits_managed_fields,
        };
        if let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, request)) {
            ruling.level = parse_level(&rule.level).unwrap_or(Level::None);
            ruling.omitted_stages.extend(known_stages(&rule.omit_stages));
            ruling.omits_managed_fields = rule.omit_managed_fields.unwrap_or(self.omits_managed_fields);
        }
        ruling
    }
}

fn parse_level(text: &str) -> Option<Level> {
    let all = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];
    LEVELS
        .iter()
        .zip(all)
        .find(|(name, _)| **name == text)
        .map(|(_, level)| level)
}

fn known_stages(names: &[String]) -> Vec<Stage> {
    let all = [
        Stage::RequestReceived,
        Stage::ResponseStarted,
        Stage::ResponseComplete,
        Stage::Panic,
    ];
    STAGES
        .iter()
        .zip(all)
        .filter(|(name, _)| names.iter().any(|given| given == *name))
        .map(|(_, stage)| stage)
        .collect()
}

fn validate_stages(given: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, stage) in given.iter().enumerate() {
        if !STAGES.contains(&stage.as_str()) {
            let detail = format!("allowed stages are {}", STAGES.join(","));
            errors.push(FieldError::invalid(path.index(index), stage.as_str(), detail));
        }
    }
}

impl Rule {
    fn check(&self, path: &FieldPath, errors: &mut Vec<FieldError>) {
        if self.level.is_empty() {
            errors.push(FieldError::required(path.child("level"), ""));
        } else if parse_level(&self.level).is_none() {
            errors.push(FieldError::not_supported(
                path.child("level"),
                self.level.as_str(),
                &LEVELS,
            ));
        }
        let urls = path.child("nonResourceURLs");
        for (index, url) in self.non_resource_urls.iter().enumerate() {
            if url == "*" {
                continue;
            }
            if !url.starts_with('/') {
                let detail = "non-resource URL rules must begin with a '/' character";
                errors.push(FieldError::invalid(urls.index(index), url.as_str(), detail));
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                let detail = "non-resource URL wildcards '*' must be the final character of the rule";
                errors.push(FieldError::invalid(urls.index(index), url.as_str(), detail));
            }
        }
        let resources = path.child("resources");
        for named in &self.resources {
            if !matches!(named.group.as_str(), "" | "*") {
                let complaints = names::find_subdomain_errors(&named.group);
                if !complaints.is_empty() {
                    let detail = complaints.join(",");
                    errors.push(FieldError::invalid(
                        resources.child("group"),
                        named.group.as_str(),
                        detail,
                    ));
                }
            }
            if !named.resource_names.is_empty() && named.resources.is_empty() {
                let detail = "using resourceNames requires at least one resource";
                let names = named.resource_names.clone();
                errors.push(FieldError::invalid(resources.child("resourceNames"), names, detail));
            }
        }
        validate_stages(&self.omit_stages, &path.child("omitStages"), errors);
        let has_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if has_resources && !self.non_resource_urls.is_empty() {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(urls, self.non_resource_urls.clone(), detail));
        }
    }

    fn matches(&self, user: Option<&UserInfo>, request: &Attributes) -> bool {
        if !self.users.is_empty() && !user.is_some_and(|user| self.users.contains(&user.name)) {
            return false;
        }
        let in_group = |user: &UserInfo| user.groups.iter().any(|group| self.user_groups.contains(group));
        if !self.user_groups.is_empty() && !user.is_some_and(in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !self.verbs.contains(&request.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return request.path.is_none() && self.matches_resource(request);
        }
        if self.non_resource_urls.is_empty() {
            return true;
        }
        let matches = |path: &String| self.non_resource_urls.iter().any(|url| matches_path(url, path));
        request.path.as_ref().is_some_and(matches)
    }

    fn matches_resource(&self, request: &Attributes) -> bool {
        // Cluster-scoped resources have the empty namespace.
        if !self.namespaces.is_empty() && !self.namespaces.contains(&request.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|named| named.matches(request))
    }
}

fn matches_path(url: &str, path: &str) -> bool {
    url == path || url.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

impl GroupResources {
    fn matches(&self, request: &Attributes) -> bool {
        if self.group != "*" && self.group != request.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.contains(&request.name) {
            return false;
        }
        let whole = match request.subresource.as_str() {
            "" => request.resource.clone(),
            subresource => format!("{}/{subresource}", request.resource),
        };
        self.resources.iter().any(|resource| {
            resource == "*"
                || *resource == whole
                || (!request.subresource.is_empty() && resource.strip_prefix("*/") == Some(&request.subresource))
                || resource.strip_suffix("/*") == Some(&request.resource)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..UserInfo::default()
        }
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let policy = Policy::read(
            br#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: [quiet]}
- {level: None, nonResourceURLs: ["/healthz*", /version]}
- level: Metadata
  resources: [{group: "", resources: [secrets, "*/token"]}]
- {level: Request, resources: [{group: apps, resources: ["deployments/*"]}], omitStages: [Panic], omitManagedFields: false}
- {level: RequestResponse, namespaces: [shop], verbs: [create]}
- {level: Request, resources: [{resources: [configmaps], resourceNames: [one]}]}
- {level: Metadata, userGroups: [people]}
"#,
        )
        .unwrap();
        let level = |who: &UserInfo, request: Attributes| policy.judge(Some(who), &request).level;
        let ann = user("ann", &["people"]);
        let bob = user("bob", &[]);
        let get = |group, resource| Attributes::resource("get", group, "v1", resource);
        assert_eq!(level(&user("quiet", &["people"]), get("", "secrets")), Level::None);
        assert_eq!(level(&ann, Attributes::path("get", "/healthz/ping")), Level::None);
        assert_eq!(level(&ann, Attributes::path("get", "/metrics")), Level::Metadata);
        assert_eq!(level(&bob, get("", "secrets")), Level::Metadata);
        let mut token = get("", "serviceaccounts");
        token.subresource = "token".to_owned();
        assert_eq!(level(&bob, token), Level::Metadata);
        assert_eq!(level(&bob, get("apps", "deployments")), Level::Request);
        let create = Attributes::resource("create", "", "v1", "configmaps").in_namespace("shop");
        assert_eq!(level(&bob, create), Level::RequestResponse);
        assert_eq!(level(&bob, get("", "configmaps").with_name("one")), Level::Request);
        assert_eq!(level(&bob, get("", "configmaps").with_name("two")), Level::None);
        assert_eq!(level(&ann, get("", "configmaps").with_name("two")), Level::Metadata);
        let ruling = policy.judge(Some(&bob), &get("apps", "deployments"));
        assert_eq!(ruling.omitted_stages, [Stage::RequestReceived, Stage::Panic]);
        assert!(!ruling.omits_managed_fields);
        assert!(policy.judge(None, &get("", "pods")).omits_managed_fields);
    }

    #[test]
    fn faults_are_reported_with_their_field() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        for (text, fault) in [
            (
                "rules: [{level: Metdata}]",
                "rules[0].level: Unsupported value: \"Metdata\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"",
            ),
            ("rules: [{users: [a]}]", "rules[0].level: Required value"),
            (
                "rules: [{level: None, nonResourceURLs: [x*y]}]",
                "rules[0].nonResourceURLs[0]: Invalid value: \"x*y\": non-resource URL rules must begin with a '/' character; rules[0].nonResourceURLs[0]: Invalid value: \"x*y\": non-resource URL wildcards '*' must be the final character of the rule",
            ),
            (
                "rules: [{level: None, resources: [{group: Apps/v1}]}]",
                "rules[0].resources.group: Invalid value: \"Apps/v1\"",
            ),
            (
                "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
                "using resourceNames requires at least one resource",
            ),
            (
                "rules: [{level: None, omitStages: [Later]}]",
                "rules[0].omitStages[0]: Invalid value: \"Later\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic",
            ),
            (
                "rules: [{level: None, namespaces: [a], nonResourceURLs: [/a]}]",
                "rules cannot apply to both",
            ),
            ("rules: [{level: None, user: [a]}]", "unknown field `user`"),
            ("rules: []", "rules: there are no rules"),
        ] {
            let error = Policy::read(format!("{head}{text}").as_bytes()).unwrap_err();
            assert!(error.contains(fault), "{text}: {error}");
        }
        assert!(
            Policy::read(b"apiVersion: v1\nkind: Policy\nrules: []")
                .unwrap_err()
                .contains("only audit.k8s.io/v1")
        );
        assert!(Policy::read(b"\xff").is_err());
    }
}
