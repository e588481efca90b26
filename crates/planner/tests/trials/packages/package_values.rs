//! The PackageValues of a scenario, and the reports on them.

use std::fmt::Write as _;

use serde_json::Value;
use tenure_api::PackageValues;
use tenure_planner::package_values;

use super::player::Player;

impl Player {
    /// Creates a PackageValues, or changes its spec.
    pub(super) fn put_values(&mut self, package: &str, spec: Value) {
        let spec = serde_json::from_value(spec).unwrap();
        if let Some(values) = self.values.get_mut(package) {
            values.spec = spec;
            *values.metadata.generation.as_mut().unwrap() += 1;
            return;
        }
        self.created_values += 1;
        let mut values = PackageValues::new(package, spec);
        values.metadata.generation = Some(1);
        values.metadata.uid = Some(format!("values {}", self.created_values));
        self.values.insert(package.to_owned(), values);
    }

    /// Makes and executes the plan of a PackageValues.
    pub(super) fn report_values(&mut self, name: &str) {
        let Some(values) = self.values.get(name) else { return };
        let snapshot = package_values::Snapshot {
            values: values.clone(),
            package: self.packages.get(name).map(|state| state.package.clone()),
            source: self.sources.get(name).map(|source| source.source.clone()),
            settings: self.settings.clone(),
        };
        let plan = package_values::plan(&snapshot, self.now);
        let Some(status) = plan.status.clone() else { return };
        self.account.push_str(&plan.to_string());
        for (name, component) in &status.components {
            writeln!(self.account, "  {name}: {}", serde_json::to_string(component).unwrap()).unwrap();
        }
        self.values.get_mut(name).unwrap().status = Some(status);
        let again = package_values::Snapshot {
            values: self.values[name].clone(),
            ..snapshot
        };
        assert_eq!(
            package_values::plan(&again, self.now).status,
            None,
            "a second report differs"
        );
    }
}
