//! Amounts of resources by name, and the resources of a Pod as a whole.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::quantity::Quantity;

/// Amounts by resource name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources(pub BTreeMap<String, Quantity>);

impl Resources {
    /// Reads a list of resources as objects have it, and ignores invalid amounts.
    pub fn read(list: Option<&Value>) -> Self {
        let list = list.and_then(Value::as_object);
        let amounts = list
            .into_iter()
            .flatten()
            .filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?)));
        Self(amounts.collect())
    }

    /// Returns the amounts as the API writes them.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let entries = self.0.iter();
        let entries: Map<String, Value> = entries
            .map(|(name, amount)| (name.clone(), Value::from(amount.canonical())))
            .collect();
        Value::Object(entries)
    }

    /// Returns the amount of one resource.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Sets the amount of one resource.
    pub fn set(&mut self, name: impl Into<String>, amount: Quantity) {
        self.0.insert(name.into(), amount);
    }

    /// Adds all amounts of another list.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.get(name).map_or(*amount, |own| own.plus(*amount));
            self.set(name, sum);
        }
    }

    /// Returns these amounts less the others, and at least zero.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let left = self.0.iter().map(|(name, amount)| {
            let left = amount.minus(other.get(name).unwrap_or_else(Quantity::zero));
            let left = if left.is_negative() { Quantity::zero() } else { left };
            (name.clone(), left)
        });
        Self(left.collect())
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if self.get(name).is_none_or(|own| own < *amount) {
                self.set(name, *amount);
            }
        }
    }

    /// Returns the amounts for which `keep` is true.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&str, &Quantity) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, amount)| keep(name, amount));
        Self(kept.map(|(name, amount)| (name.clone(), *amount)).collect())
    }

    /// Returns the form `cpu=1,memory=1Gi`.
    pub fn format_amounts(&self) -> String {
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|(name, amount)| format!("{name}={}", amount.canonical()))
            .collect();
        parts.join(",")
    }
}

/// Returns the items of a list below an object.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let found = object.pointer(pointer).and_then(Value::as_array);
    found.map(Vec::as_slice).unwrap_or_default()
}

/// Returns the requests or limits of a Pod as a whole: `side` is `requests` or `limits`. An amount that the Pod sets as a whole counts
/// instead of the sum of its containers.
pub fn sum_pod_resources(pod: &Value, side: &str) -> Resources {
    let mut all = sum_container_resources(pod.get("spec").unwrap_or(&Value::Null), side);
    let whole = Resources::read(pod.pointer(&format!("/spec/resources/{side}")));
    for (name, amount) in whole.0 {
        if matches!(name.as_str(), "cpu" | "memory") {
            all.set(name, amount);
        }
    }
    all
}

/// Returns the requests or limits of a Pod's containers together.
///
/// Containers run at the same time as each other and as sidecars. Each other init container runs alone, with the sidecars that were started
/// before it.
pub fn sum_container_resources(spec: &Value, side: &str) -> Resources {
    let of = |container: &Value| Resources::read(container.pointer(&format!("/resources/{side}")));
    let mut all = Resources::default();
    for container in list(spec, "/containers") {
        all.add(&of(container));
    }
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    for container in list(spec, "/initContainers") {
        let own = of(container);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            all.add(&own);
            sidecars.add(&own);
            starting.raise_to(&sidecars);
        } else {
            let mut beside = own;
            beside.add(&sidecars);
            starting.raise_to(&beside);
        }
    }
    all.raise_to(&starting);
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn init_containers_run_alone_and_sidecars_beside() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("100m");
        sidecar["restartPolicy"] = json!("Always");
        let pod = json!({"spec": {
            "containers": [container("200m"), container("300m")],
            "initContainers": [container("450m"), sidecar, container("550m")],
        }});
        assert_eq!(sum_pod_resources(&pod, "requests").format_amounts(), "cpu=650m");
        let pod = json!({"spec": {"containers": [container("1")], "resources": {"requests": {"cpu": "3"}}}});
        assert_eq!(sum_pod_resources(&pod, "requests").format_amounts(), "cpu=3");
    }
}
