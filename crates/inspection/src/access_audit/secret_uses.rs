//! The Secrets that objects name, and the hosts that see them. This module has the list of kinds that name credentials, and the limits of the search. A tenant may
//! have any number of objects, so each object is read once and not stored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_api::{ObjectView, SourceUrl};

use crate::portable::list_credential_fields;
use tenure_planner::surface::deploy_key::name_key;

/// Kinds that name credentials, by group: Tenure's kinds, and those of controllers that work beside Tenure.
pub const KINDS: [(&str, &str); 11] = [
    ("source.toolkit.fluxcd.io", "GitRepository"),
    ("source.toolkit.fluxcd.io", "OCIRepository"),
    ("source.toolkit.fluxcd.io", "Bucket"),
    ("source.toolkit.fluxcd.io", "HelmRepository"),
    ("source.toolkit.fluxcd.io", "HelmChart"),
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
    ("image.toolkit.fluxcd.io", "ImageRepository"),
    ("notification.toolkit.fluxcd.io", "Provider"),
    ("notification.toolkit.fluxcd.io", "Receiver"),
    ("tenure.dev", "Surface"),
];
/// The maximum of Secrets, and of ServiceAccounts, of one namespace. More of them take no capacity from other namespaces.
pub const MOST_OF_NAMESPACE: usize = 200;
/// The maximum for all namespaces together.
pub const MOST: usize = 5_000;
/// The maximum of uses that are reported for one Secret.
const MOST_USES: usize = 20;
/// The maximum length of an object's name.
const LONGEST_NAME: usize = 253;
/// The maximum length of an address in the report, in characters.
const LONGEST_ADDRESS: usize = 300;

/// A Secret or a ServiceAccount, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedObject {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl std::fmt::Display for NamedObject {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// A field of an object that names a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretUse {
    /// The using object, as `Kind/name`.
    pub by: String,
    /// The field that names the Secret.
    pub field: String,
}

/// The uses of one Secret: the objects that name it, and the addresses that see its credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The first twenty uses.
    pub uses: BTreeSet<SecretUse>,
    /// The number of further uses.
    pub more: usize,
    /// Addresses that see the credential, without passwords. For a Provider only the host, since the path of its address is a secret.
    pub shown_to: BTreeSet<String>,
    /// The fingerprint of the public half, from a Surface's status.
    pub fingerprint: Option<String>,
    /// True if the Secret has another use than verification.
    pub is_shown: bool,
}

/// All Secrets and ServiceAccounts that objects name.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    secrets: Bounded<Usage>,
    accounts: Bounded<Vec<(SecretUse, Option<String>)>>,
}

/// Values by name: at most [`MOST_OF_NAMESPACE`] of one namespace and [`MOST`] in total.
#[derive(Clone, Debug, Default)]
struct Bounded<V> {
    values: BTreeMap<NamedObject, V>,
    counts: BTreeMap<String, usize>,
    left_out: BTreeSet<String>,
}

impl<V: Default> Bounded<V> {
    fn add_value(&mut self, name: NamedObject) -> Option<&mut V> {
        if !self.values.contains_key(&name) {
            let is_full = self.values.len() >= MOST;
            let count = self.counts.get(&name.namespace).copied().unwrap_or_default();
            if is_full || count >= MOST_OF_NAMESPACE {
                // Each left out Secret adds at most one namespace, so this set stays as small as the number of names.
                if self.left_out.len() < MOST {
                    self.left_out.insert(name.namespace);
                }
                return None;
            }
            self.counts.insert(name.namespace.clone(), count + 1);
        }
        Some(self.values.entry(name).or_default())
    }
}

impl Inventory {
    /// Adds the references of an object of [`KINDS`].
    pub fn add(&mut self, kind: &str, object: &Value) {
        let view = ObjectView::new(object);
        let (namespace, name) = (view.read_text("/metadata/namespace"), view.read_text("/metadata/name"));
        let by = |field: String| SecretUse {
            by: format!("{kind}/{name}"),
            field,
        };
        for (field, secret) in list_credential_fields(object) {
            let address = find_address(kind, object, &field);
            self.add_use(namespace, secret, by(field), address);
        }
        for (index, source) in view.list_views("/spec/sources").enumerate() {
            if kind != "Surface" || !source.has("/deployKey") {
                continue;
            }
            let source_name = source.read_text("/name");
            let field = by(format!(".spec.sources[{index}].deployKey"));
            let address = source.find_text("/url").map(show_address);
            let Some(usage) = self.add_use(namespace, &name_key(name, source_name), field, address) else {
                continue;
            };
            let mut statuses = view.list_views("/status/deployKeys");
            let status = statuses.find(|status| status.find_text("/source") == Some(source_name));
            let fingerprint = status.and_then(|status| status.find_text("/fingerprint"));
            if let Some(fingerprint) = fingerprint.filter(|text| text.len() <= LONGEST_NAME) {
                usage.fingerprint = Some(fingerprint.to_owned());
            }
        }
        let account = view.read_text("/spec/serviceAccountName");
        if ["OCIRepository", "ImageRepository"].contains(&kind)
            && let Some(account) = find_named(namespace, account)
            && let Some(users) = self.accounts.add_value(account)
            && users.len() < MOST_USES
        {
            users.push((
                by(".spec.serviceAccountName".to_owned()),
                find_address(kind, object, ""),
            ));
        }
    }

    /// Lists ServiceAccounts whose `imagePullSecrets` a registry sees.
    pub fn list_accounts(&self) -> impl Iterator<Item = &NamedObject> {
        self.accounts.values.keys()
    }

    /// Adds the `imagePullSecrets` of one of these accounts.
    pub fn add_account(&mut self, account: &NamedObject, object: &Value) {
        let users = self.accounts.values.get(account).cloned().unwrap_or_default();
        let secrets = ObjectView::new(object).list_views("/imagePullSecrets");
        for secret in secrets.take(MOST_USES).filter_map(|secret| secret.find_text("/name")) {
            for (user, address) in &users {
                let by = SecretUse {
                    field: format!("{}: imagePullSecrets of {}", user.field, account.name),
                    ..user.clone()
                };
                self.add_use(&account.namespace, secret, by, address.clone());
            }
        }
    }

    /// Lists the Secrets, sorted by name.
    pub fn list_secrets(&self) -> impl Iterator<Item = (&NamedObject, &Usage)> {
        self.secrets.values.iter()
    }

    /// Lists namespaces that name too much, so that they were searched only in part.
    #[must_use]
    pub fn list_left_out(&self) -> BTreeSet<&str> {
        let left_out = self.secrets.left_out.iter().chain(&self.accounts.left_out);
        left_out.map(String::as_str).collect()
    }

    fn add_use(&mut self, namespace: &str, secret: &str, by: SecretUse, address: Option<String>) -> Option<&mut Usage> {
        let usage = self.secrets.add_value(find_named(namespace, secret)?)?;
        usage.is_shown |= !by.field.starts_with(".spec.verify.");
        if usage.uses.len() < MOST_USES {
            usage.uses.insert(by);
            usage.shown_to.extend(address);
        } else if !usage.uses.contains(&by) {
            usage.more = usage.more.saturating_add(1);
        }
        Some(usage)
    }
}

fn find_named(namespace: &str, name: &str) -> Option<NamedObject> {
    let is_one = !name.is_empty() && name.len() <= LONGEST_NAME && !namespace.is_empty();
    is_one.then(|| NamedObject {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Returns the address that sees the Secret in this field. None if the Secret verifies or decrypts, or opens a proxy or another cluster.
fn find_address(kind: &str, object: &Value, field: &str) -> Option<String> {
    let view = ObjectView::new(object);
    if let Some(index) = field.strip_prefix(".spec.sources[") {
        let index = index.split(']').next()?;
        return view.find_text(&format!("/spec/sources/{index}/url")).map(show_address);
    }
    if field.starts_with(".spec.sts.") {
        return view.find_text("/spec/sts/endpoint").map(show_address);
    }
    if !["", ".spec.secretRef", ".spec.certSecretRef"].contains(&field) {
        return None;
    }
    match kind {
        "Bucket" => {
            let scheme = if view.is_true("/spec/insecure") {
                "http"
            } else {
                "https"
            };
            let (endpoint, bucket) = (view.find_text("/spec/endpoint")?, view.read_text("/spec/bucketName"));
            Some(show_address(&format!("{scheme}://{endpoint}/{bucket}")))
        }
        "ImageRepository" => Some(show_address(&format!("oci://{}", view.find_text("/spec/image")?))),
        "Provider" => {
            let shown = show_address(view.find_text("/spec/address")?);
            let (scheme, rest) = shown.split_once("://")?;
            Some(format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()))
        }
        _ => view.find_text("/spec/url").map(show_address),
    }
}

fn show_address(url: &str) -> String {
    let shown = SourceUrl::new(url).shown();
    match shown.char_indices().nth(LONGEST_ADDRESS) {
        Some((end, _)) => format!("{}…", shown.get(..end).unwrap_or_default()),
        None => shown,
    }
}
