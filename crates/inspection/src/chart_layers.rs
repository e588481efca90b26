//! The values of a component of a Package: which layer, which object and which field sets each of them, for `tenure values`.
//!
//! Layers, from below: the Secret `cozystack-values`, the Package, the PackageValues. The content of the Secret is never shown. The defaults of the chart are below all
//! of them, and unknown here.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};
use structured_merge::{FieldPath, PathElement};
use tenure_api::{Package, PackageValues};
use tenure_planner::chart_values::{Effective, Layer, ValuesError};
use tenure_planner::package::{Overrides, ReleaseValues, merge_values};

/// The longest shown value, in letters.
const LONGEST_VALUE: usize = 60;

/// A layer of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum LayerKind {
    /// The Secret `cozystack-values` in the namespace of the release.
    #[serde(rename = "cozystack-values")]
    Platform,
    /// The Package.
    Package,
    /// The PackageValues of the same name.
    PackageValues,
}

impl LayerKind {
    /// Returns the name of the layer.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "cozystack-values",
            Self::Package => "Package",
            Self::PackageValues => "PackageValues",
        }
    }
}

/// A value of a component, with the layer that sets it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LayeredValue {
    /// The path, as an RFC 6901 pointer.
    pub path: String,
    /// The value; nothing for the content of another object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The object and key that helm-controller reads the value from, such as `Secret/db password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The topmost layer that sets it.
    pub layer: LayerKind,
    /// The value that the Package has at this path, if the PackageValues changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The field of the layer's object that sets it.
    #[serde(skip)]
    pub field: Option<FieldPath>,
}

impl LayeredValue {
    /// Returns the value in one line, cut to 60 letters.
    #[must_use]
    pub fn describe_value(&self) -> String {
        match (&self.value, &self.reference) {
            (Some(value), _) => describe(value),
            (None, Some(reference)) => format!("({reference})"),
            (None, None) => "(in a Secret)".to_owned(),
        }
    }

    /// Returns the value of the Package in one line, cut to 60 letters.
    #[must_use]
    pub fn describe_before(&self) -> String {
        self.before.as_ref().map(describe).unwrap_or_default()
    }
}

fn describe(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST_VALUE) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// The values of a component.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComponentLayers {
    /// The values in the order of their paths.
    pub values: Vec<LayeredValue>,
    /// The merged values of the Package and its PackageValues, as the HelmRelease has them.
    pub merged: Map<String, Value>,
    /// The paths at which a map replaces another kind of value. A map of `cozystack-values` or of the chart shows through there.
    pub replaced: Vec<String>,
}

/// Lays the layers of a component over each other. `platform` has the keys of `cozystack-values`, if the user may read them, and
/// `namespace` is that of the release, if it is known.
///
/// # Errors
/// If the changes of the PackageValues are invalid. Its HelmRelease stays as it is then.
pub fn list_values(
    package: &Package,
    values: Option<&PackageValues>,
    platform: &[String],
    component: &str,
    namespace: Option<&str>,
) -> Result<ComponentLayers, ValuesError> {
    let overrides = values.map(Overrides::of);
    let own = package.spec.components.get(component);
    let own = own.and_then(|own| own.values.clone()).unwrap_or_default();
    let effective = match merge_values(package, overrides.as_ref(), component, namespace)? {
        ReleaseValues::Unchanged(values) => Effective {
            values: values.unwrap_or_default(),
            ..Effective::default()
        },
        ReleaseValues::Changed(effective) => effective,
    };
    let overridden: BTreeSet<String> = effective.overridden.into_iter().collect();
    let (merged, replaced) = (effective.values, effective.replaced);
    let (own, merged) = (Value::Object(own), Value::Object(merged));
    let mut found = Vec::new();
    let layer = Layer::of(merged.as_object().unwrap_or(&Map::new()))?;
    for path in layer.list_paths() {
        let changes = values.filter(|_| overridden.contains(&path));
        let layer = match changes {
            Some(_) => LayerKind::PackageValues,
            None => LayerKind::Package,
        };
        found.push(LayeredValue {
            value: Some(merged.pointer(&path).cloned().unwrap_or_default()),
            reference: None,
            layer,
            before: changes.and_then(|_| own.pointer(&path).cloned()),
            field: Some(find_field(component, &path, changes)),
            path,
        });
    }
    for reference in effective.references {
        let field = ["spec", "valuesFrom"].into_iter().map(PathElement::field).collect();
        found.push(LayeredValue {
            value: None,
            reference: Some(format!(
                "{}/{} {}",
                reference.kind.as_str(),
                reference.name,
                reference.key
            )),
            layer: LayerKind::PackageValues,
            before: own.pointer(&reference.path).cloned(),
            field: Some(FieldPath(field)),
            path: reference.path,
        });
    }
    let above = merged.as_object();
    let hidden = platform
        .iter()
        .filter(|key| above.is_none_or(|above| above.get(*key).is_none_or(Value::is_object)));
    found.extend(hidden.map(|key| LayeredValue {
        path: format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        value: None,
        reference: None,
        layer: LayerKind::Platform,
        before: None,
        field: None,
    }));
    found.sort_by(|one, other| (&one.path, other.layer).cmp(&(&other.path, one.layer)));
    Ok(ComponentLayers {
        values: found,
        merged: match merged {
            Value::Object(merged) => merged,
            _ => Map::new(),
        },
        replaced,
    })
}

/// Returns the field of a Package that sets a value, or of a PackageValues that sets or removes it.
fn find_field(component: &str, path: &str, changes: Option<&PackageValues>) -> FieldPath {
    let steps: Vec<String> = path
        .split('/')
        .skip(1)
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect();
    let changes = changes.and_then(|changes| changes.spec.components.get(component));
    let is_removed = changes.is_some_and(|changes| {
        let values = changes.values.clone().map(Value::Object).unwrap_or_default();
        values.pointer(path).is_none()
    });
    let mut field = vec!["spec", "components", component];
    if is_removed {
        field.push("unset");
    } else {
        field.push("values");
        field.extend(steps.iter().map(String::as_str));
    }
    FieldPath(field.into_iter().map(PathElement::field).collect())
}

/// Checks whether a path is the wanted one, or below it. A wanted path needs no slash at its beginning.
#[must_use]
pub fn is_within(path: &str, wanted: &str) -> bool {
    let wanted = wanted.strip_prefix('/').unwrap_or(wanted).trim_end_matches('/');
    let path = path.strip_prefix('/').unwrap_or(path);
    match path.strip_prefix(wanted) {
        Some(rest) => wanted.is_empty() || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(package: Value, changes: Option<Value>, platform: &[&str]) -> Vec<String> {
        let package: Package = serde_json::from_value(json!({
            "apiVersion": "cozystack.io/v1alpha1", "kind": "Package", "metadata": { "name": "p" },
            "spec": { "components": { "c": { "values": package } } },
        }))
        .unwrap();
        let values = changes.map(|changes| -> PackageValues {
            serde_json::from_value(json!({
                "apiVersion": "cozystack.io/v1alpha1", "kind": "PackageValues", "metadata": { "name": "p" },
                "spec": { "components": { "c": changes } },
            }))
            .unwrap()
        });
        let platform: Vec<String> = platform.iter().map(|key| (*key).to_owned()).collect();
        let layers = list_values(&package, values.as_ref(), &platform, "c", Some("n")).unwrap();
        let write = |value: LayeredValue| {
            let field = value.field.as_ref().map(ToString::to_string).unwrap_or_default();
            let (layer, path) = (value.layer.as_str(), &value.path);
            format!(
                "{path} {} {layer} [{}] {field}",
                value.describe_value(),
                value.describe_before()
            )
        };
        layers.values.into_iter().map(write).collect()
    }

    #[test]
    fn each_value_has_its_topmost_layer() {
        let package = json!({ "a": { "b": 1, "x/y": 2 }, "l": [1], "m": 5 });
        let found = list(package.clone(), None, &["_cluster", "a", "m"]);
        assert_eq!(
            found,
            [
                "/_cluster (in a Secret) cozystack-values [] ",
                "/a (in a Secret) cozystack-values [] ",
                "/a/b 1 Package [] .spec.components.c.values.a.b",
                "/a/x~1y 2 Package [] .spec.components.c.values.a.x/y",
                "/l [1] Package [] .spec.components.c.values.l",
                "/m 5 Package [] .spec.components.c.values.m",
            ]
        );
        let changes = json!({ "values": { "a": { "b": "new" }, "n": { "o": null } }, "unset": ["/l"] });
        assert_eq!(
            list(package, Some(changes), &[]),
            [
                "/a/b \"new\" PackageValues [1] .spec.components.c.values.a.b",
                "/a/x~1y 2 Package [] .spec.components.c.values.a.x/y",
                "/l null PackageValues [[1]] .spec.components.c.unset",
                "/m 5 Package [] .spec.components.c.values.m",
                "/n/o null PackageValues [] .spec.components.c.values.n.o",
            ]
        );
    }

    #[test]
    fn reference_shows_its_object_and_no_content() {
        let package: Package = serde_json::from_value(json!({
            "apiVersion": "cozystack.io/v1alpha1", "kind": "Package", "metadata": { "name": "p" },
            "spec": { "components": { "c": { "values": { "a": { "b": "clear", "d": 1 } } } } },
        }))
        .unwrap();
        let values: PackageValues = serde_json::from_value(json!({
            "apiVersion": "cozystack.io/v1alpha1", "kind": "PackageValues", "metadata": { "name": "p" },
            "spec": { "valuesFrom": [
                { "component": "c", "path": "/a/b", "kind": "Secret", "namespace": "n", "name": "db", "key": "password" },
            ] },
        }))
        .unwrap();
        let layers = list_values(&package, Some(&values), &["a".to_owned()], "c", Some("n")).unwrap();
        let shown = layers.values.iter().map(|value| {
            let (layer, before) = (value.layer.as_str(), value.describe_before());
            format!("{} {} {layer} [{before}]", value.path, value.describe_value())
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "/a (in a Secret) cozystack-values []",
                "/a/b (Secret/db password) PackageValues [\"clear\"]",
                "/a/d 1 Package []",
            ]
        );
        let elsewhere = list_values(&package, Some(&values), &[], "c", Some("m"))
            .unwrap_err()
            .to_string();
        assert!(elsewhere.contains("the release is in namespace m"), "{elsewhere}");
    }

    #[test]
    fn path_selects_itself_and_below() {
        for (wanted, expected) in [
            ("", true),
            ("/", true),
            ("a", true),
            ("/a/b", true),
            ("/a/b/", true),
            ("a/bc", false),
            ("/a/b/c", false),
        ] {
            assert_eq!(is_within("/a/b", wanted), expected, "{wanted}");
        }
        assert!(!is_within("/ab", "/a"));
    }
}
