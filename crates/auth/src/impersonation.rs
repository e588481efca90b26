//! Impersonation: the identity in the `Impersonate-*` headers, and the caller's right to it. Every part (user,
//! groups, UID, extras) is checked for the *original* caller, never for the impersonated user.
//!
//! Since 1.36 there are two ways to be allowed, tried in this order: constrained (KEP-5284: `impersonate:MODE` on the
//! identity and `impersonate-on:MODE:VERB` on the request's resource), then the old verb `impersonate`. If all fail,
//! the first refusal is the answer. Headers that are not UTF-8 are refused: no name in RBAC could match them.

use std::collections::HashMap;

use http::{HeaderMap, HeaderValue};
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;

use crate::authorization::{Attributes, Authorizer, Refusal, quote};
use crate::identity::{
    ANONYMOUS, AUTHENTICATED, MASTERS, NODES, UNAUTHENTICATED, UserInfo, is_dns_subdomain, service_account_groups,
    split_node, split_service_account,
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";
/// Number of groups or extras from which constrained impersonation first checks for all of them at once.
const MANY: usize = 4;
/// How many callers' modes are cached.
const REMEMBERED: usize = 10_000;
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Checks whether a header with this (lower-case) name is about impersonation, and so must not be passed on.
#[must_use]
pub fn is_impersonation_header(name: &str) -> bool {
    matches!(name, USER | GROUP | UID) || name.starts_with(EXTRA_PREFIX)
}

/// The requested identity, exactly as in the headers and without implied groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImpersonationRequest {
    wanted: UserInfo,
}

impl ImpersonationRequest {
    /// Reads the headers; `None` if they don't ask for impersonation.
    ///
    /// # Errors
    /// A 400 for groups, a UID or extras without a user, or for a header that is not UTF-8.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let mut wanted = UserInfo::default();
        if let Some(name) = headers.get(USER) {
            decode_text(USER, name)?.clone_into(&mut wanted.name);
        }
        if let Some(uid) = headers.get(UID) {
            decode_text(UID, uid)?.clone_into(&mut wanted.uid);
        }
        for group in headers.get_all(GROUP) {
            wanted.groups.push(decode_text(GROUP, group)?.to_owned());
        }
        for (name, value) in headers {
            let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) else {
                continue;
            };
            let value = decode_text(name.as_str(), value)?.to_owned();
            wanted.extra.entry(decode_key(key)?).or_default().push(value);
        }
        if !wanted.name.is_empty() {
            return Ok(Some(Self { wanted }));
        }
        if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
            return Ok(None);
        }
        Err(Refusal::bad_request(format!(
            "requested {} without impersonating a user name",
            describe_user(&wanted)
        )))
    }

    /// Returns the identity in the headers.
    #[must_use]
    pub fn wanted_user(&self) -> &UserInfo {
        &self.wanted
    }

    /// Returns the user after a successful impersonation, with the implied groups.
    #[must_use]
    pub fn likely_user(self) -> UserInfo {
        let mut user = self.wanted;
        if let Some((namespace, _)) = split_service_account(&user.name) {
            user.groups.extend(service_account_groups(namespace));
        }
        user.ensure_group(AUTHENTICATED);
        user
    }
}

fn decode_text<'a>(name: &str, value: &'a HeaderValue) -> Result<&'a str, Refusal> {
    std::str::from_utf8(value.as_bytes()).map_err(|_| Refusal::bad_request(format!("header {name} is not valid UTF-8")))
}

/// Decodes an extra's key: percent-decoded if possible, else unchanged.
fn decode_key(key: &str) -> Result<String, Refusal> {
    let well_formed = key.split('%').skip(1).all(|rest| {
        rest.as_bytes()
            .get(..2)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if !well_formed {
        return Ok(key.to_owned());
    }
    percent_decode_str(key)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| {
            Refusal::bad_request(format!(
                "header {EXTRA_PREFIX}{key} names a key that is not valid UTF-8"
            ))
        })
}

/// Returns the user in Go's syntax, as kube-apiserver's message shows it.
fn describe_user(user: &UserInfo) -> String {
    let list = |items: &[String]| {
        let quoted: Vec<String> = items.iter().map(|item| quote(item)).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_owned()
    } else {
        list(&user.groups)
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let entries: Vec<String> = user
            .extra
            .iter()
            .map(|(key, values)| format!("{}:{}", quote(key), list(values)))
            .collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid)
    )
}

/// Checks the right to impersonate, and caches the mode that last allowed each caller.
///
/// The cached mode is tried first, as in kube-apiserver: it saves the checks of other modes. It also decides which
/// refusal a caller gets for an excessive request.
#[derive(Debug, Default)]
pub struct Impersonator {
    last: RwLock<HashMap<String, Mode>>,
}

impl Impersonator {
    /// Returns the identity after impersonation, and the mode that allowed it; `None` if no header asks for
    /// impersonation.
    ///
    /// `caller` is the original user and `request` its request; every check uses both.
    ///
    /// # Errors
    /// A 400 for invalid headers, a 403 for a missing right of `caller`.
    pub fn impersonate(
        &self,
        caller: &UserInfo,
        request: &Attributes,
        headers: &HeaderMap,
        authorizer: &dyn Authorizer,
    ) -> Result<Option<ImpersonatedUser>, Refusal> {
        let Some(ImpersonationRequest { wanted }) = ImpersonationRequest::from_headers(headers)? else {
            return Ok(None);
        };
        let last = self.last.read().get(&caller.name).copied();
        let others = Mode::ALL.into_iter().filter(|mode| Some(*mode) != last);
        let mut first = None;
        for mode in last.into_iter().chain(others) {
            if !mode.applies(&wanted, caller) {
                continue;
            }
            let check = Check {
                mode,
                caller,
                authorizer,
            };
            match check.run(&wanted, request) {
                Ok(user) => {
                    self.remember_mode(caller, mode, last);
                    let constraint = mode.verb();
                    return Ok(Some(ImpersonatedUser { user, constraint }));
                }
                Err(refusal) => {
                    first.get_or_insert(refusal);
                }
            }
        }
        // The legacy mode applies to every caller, so `first` has a refusal. If it is missing nevertheless, the request
        // is refused.
        Err(first.unwrap_or_else(|| Refusal::internal("all impersonation modes failed")))
    }

    /// Caches the mode that allowed the caller. A full cache is cleared.
    fn remember_mode(&self, caller: &UserInfo, mode: Mode, last: Option<Mode>) {
        if last == Some(mode) {
            return;
        }
        let mut remembered = self.last.write();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(caller.name.clone(), mode);
    }
}

/// The identity as which a request acts after impersonation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImpersonatedUser {
    /// The impersonated user.
    pub user: UserInfo,
    /// The verb of the constrained mode that allowed the impersonation; empty for the old verb `impersonate`.
    pub constraint: String,
}

/// A way to allow a caller to impersonate. The variants are in the order of their trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A ServiceAccount acts as the node on which its Pod runs.
    AssociatedNode,
    /// The caller acts as any node.
    ArbitraryNode,
    /// The caller acts as a ServiceAccount.
    ServiceAccount,
    /// The caller acts as any other user, also with groups, UID and extras.
    UserInfo,
    /// The old verb `impersonate`, for any identity.
    Legacy,
}

impl Mode {
    const ALL: [Self; 5] = [
        Self::AssociatedNode,
        Self::ArbitraryNode,
        Self::ServiceAccount,
        Self::UserInfo,
        Self::Legacy,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    /// Returns the verb with which a constrained mode checks the identity; empty for the general one.
    fn verb(self) -> String {
        if self.is_constrained() {
            format!("impersonate:{}", self.name())
        } else {
            String::new()
        }
    }

    fn is_constrained(self) -> bool {
        self != Self::Legacy
    }

    /// Checks whether the mode is for the wanted identity and this caller. The rights are not checked.
    fn applies(self, wanted: &UserInfo, caller: &UserInfo) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = split_node(&wanted.name);
        let service_account = split_service_account(&wanted.name);
        match self {
            Self::AssociatedNode => {
                only_name
                    && node.is_some()
                    && split_service_account(&caller.name).is_some()
                    && match caller.extra.get(NODE_NAME).map(Vec::as_slice) {
                        Some([own]) => node == Some(own.as_str()),
                        _ => false,
                    }
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && service_account.is_some(),
            Self::UserInfo => node.is_none() && service_account.is_none(),
            Self::Legacy => true,
        }
    }
}

/// The check whether one mode allows a caller to impersonate.
struct Check<'a> {
    mode: Mode,
    caller: &'a UserInfo,
    authorizer: &'a dyn Authorizer,
}

impl Check<'_> {
    /// Checks the rights to the request and to each part of the identity. Returns the user with the implied groups.
    fn run(&self, wanted: &UserInfo, request: &Attributes) -> Result<UserInfo, Refusal> {
        if self.mode.is_constrained() {
            let mut touched = request.clone();
            touched.verb = format!("impersonate-on:{}:{}", self.mode.name(), request.verb);
            self.check_allowed(&touched)?;
        }
        let mut user = wanted.clone();
        self.user_name(&mut user)?;
        if !wanted.uid.is_empty() {
            self.check_allowed(&self.identity_attributes("authentication.k8s.io", "v1", "uids", &wanted.uid))?;
        }
        self.check_groups(&wanted.groups)?;
        self.check_extra(wanted)?;
        if user.name == ANONYMOUS {
            user.ensure_group(UNAUTHENTICATED);
        } else if !user.in_group(UNAUTHENTICATED) {
            user.ensure_group(AUTHENTICATED);
        }
        Ok(user)
    }

    fn user_name(&self, user: &mut UserInfo) -> Result<(), Refusal> {
        let mut attributes = self.name_or_group("users", &user.name);
        if self.mode.is_constrained()
            && let Some(node) = split_node(&user.name)
        {
            attributes.resource = "nodes".to_owned();
            // The filter has checked the node's name already, so the right is checked for all nodes.
            attributes.name = match self.mode {
                Mode::AssociatedNode => "*".to_owned(),
                _ => node.to_owned(),
            };
            user.groups = vec![NODES.to_owned()];
        } else if let Some((namespace, name)) = split_service_account(&user.name) {
            attributes.resource = "serviceaccounts".to_owned();
            attributes.namespace = namespace.to_owned();
            attributes.name = name.to_owned();
            if user.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
        }
        self.check_allowed(&attributes)
    }

    fn check_groups(&self, groups: &[String]) -> Result<(), Refusal> {
        let asked = |name: &str| self.name_or_group("groups", name);
        if self.mode.is_constrained() {
            for (forbidden, what) in [("", "the empty string"), (MASTERS, "the system:masters")] {
                if groups.iter().any(|group| group == forbidden) {
                    return Err(Refusal::forbidden(
                        self.caller,
                        &asked(forbidden),
                        &format!("impersonating {what} group is not allowed"),
                    ));
                }
            }
            if groups.len() >= MANY && self.check_allowed(&asked("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.check_allowed(&asked(group)))
    }

    fn check_extra(&self, wanted: &UserInfo) -> Result<(), Refusal> {
        let asked = |key: &str, value: &str| {
            let mut attributes = self.identity_attributes("authentication.k8s.io", "v1", "userextras", value);
            key.clone_into(&mut attributes.subresource);
            attributes
        };
        if self.mode.is_constrained() && !wanted.extra.is_empty() {
            for (key, values) in &wanted.extra {
                if let Err(reason) = validate_extra(key, values) {
                    return Err(Refusal::forbidden(self.caller, &asked("", ""), &reason));
                }
            }
            let values: usize = wanted.extra.values().map(Vec::len).sum();
            if (wanted.extra.len() >= MANY || values >= MANY) && self.check_allowed(&asked("*", "*")).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.check_allowed(&asked(key, value))?;
            }
        }
        Ok(())
    }

    /// Returns the attributes for a user or group: in the core group for the old verb, in `authentication.k8s.io` for
    /// the new ones.
    fn name_or_group(&self, resource: &str, name: &str) -> Attributes {
        let group = if self.mode.is_constrained() {
            "authentication.k8s.io"
        } else {
            ""
        };
        self.identity_attributes(group, "v1", resource, name)
    }

    fn identity_attributes(&self, group: &str, version: &str, resource: &str, name: &str) -> Attributes {
        let verb = match self.mode.verb() {
            verb if verb.is_empty() => "impersonate".to_owned(),
            verb => verb,
        };
        Attributes {
            name: name.to_owned(),
            ..Attributes::resource(&verb, group, version, resource)
        }
    }

    fn check_allowed(&self, attributes: &Attributes) -> Result<(), Refusal> {
        let decision = self.authorizer.authorize(self.caller, attributes);
        if decision.allowed {
            Ok(())
        } else {
            Err(Refusal::forbidden(self.caller, attributes, &decision.reason))
        }
    }
}

/// Checks the key and the values of an extra by the rules of constrained impersonation. The right to the extra is not
/// checked.
fn validate_extra(key: &str, values: &[String]) -> Result<(), String> {
    if key.is_empty() {
        return Err("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let invalid = |value: &str, why: &str| {
        Err(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: {why}",
            quote(value)
        ))
    };
    match key.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            if !is_dns_subdomain(host) {
                return invalid(
                    host,
                    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                );
            }
            if !path
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte))
            {
                return invalid(
                    path,
                    "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
                );
            }
        }
        _ => {
            return invalid(key, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        }
    }
    if key.chars().any(char::is_uppercase) {
        return Err(format!(
            "impersonating a non-lowercase key in extra is not allowed: {}",
            quote(key)
        ));
    }
    if values.is_empty() {
        return Err("impersonating empty values in extra is not allowed".to_owned());
    }
    if values.iter().any(String::is_empty) {
        return Err("impersonating the empty string value in extra is not allowed".to_owned());
    }
    Ok(())
}
