//! Patches of every kind, apply among them, on objects and on their status and scale.

use serde_json::{Value, json};

use super::{Faults, MANAGERS, Story, merge_into, set};
use crate::kind::Kind;

impl Story<'_> {
    pub(super) fn patch_fields(&mut self, kind: &Kind, subresource: &str) -> Vec<(String, Value)> {
        match subresource {
            "" => self.choose_fields(kind, 3),
            "/status" => self.status_fields(kind, 2),
            _ => vec![self.choose_replicas()],
        }
    }

    pub(super) fn choose_replicas(&mut self) -> (String, Value) {
        let values = [
            json!(0),
            json!(1),
            json!(2),
            json!(5),
            json!(-1),
            json!("x"),
            json!(null),
        ];
        let weights: Vec<(usize, usize)> = vec![(4, 0), (6, 1), (6, 2), (6, 3), (1, 4), (1, 5), (1, 6)];
        let kept = if self.faults == Faults::Few { 4 } else { weights.len() };
        let index = self
            .random
            .pick_weighted(weights.get(..kept).unwrap_or_default())
            .unwrap_or_default();
        (
            "/spec/replicas".to_owned(),
            values.get(index).cloned().unwrap_or_default(),
        )
    }

    pub(super) fn merge_patch(&mut self, kind: &Kind, version: &str, name: &str, subresource: &str) {
        let mut body = json!({});
        for (pointer, value) in self.patch_fields(kind, subresource) {
            let value = if self.random.chance(15) { Value::Null } else { value };
            set(&mut body, &pointer, value);
        }
        self.push_patch(kind, version, name, subresource, body, "application/merge-patch+json");
    }

    pub(super) fn json_patch(&mut self, kind: &Kind, version: &str, name: &str, subresource: &str) {
        let operations: Vec<Value> = self
            .patch_fields(kind, subresource)
            .into_iter()
            .map(|(path, value)| match self.random.draw_below(10) {
                0..=4 => json!({"op": "add", "path": path, "value": value}),
                5 | 6 => json!({"op": "replace", "path": path, "value": value}),
                7 | 8 => json!({"op": "remove", "path": path}),
                _ => json!({"op": "test", "path": path, "value": value}),
            })
            .collect();
        self.push_patch(
            kind,
            version,
            name,
            subresource,
            Value::from(operations),
            "application/json-patch+json",
        );
    }

    pub(super) fn strategic_patch(&mut self, kind: &Kind, version: &str, name: &str, subresource: &str) {
        let mut body = json!({});
        let special = self.random.pick(&kind.strategic).cloned();
        match special.filter(|_| subresource.is_empty() && self.random.chance(50)) {
            Some(special) => body = special,
            None => {
                for (pointer, value) in self.patch_fields(kind, subresource) {
                    let value = if self.random.chance(10) { Value::Null } else { value };
                    set(&mut body, &pointer, value);
                }
            }
        }
        self.push_patch(
            kind,
            version,
            name,
            subresource,
            body,
            "application/strategic-merge-patch+json",
        );
    }

    pub(super) fn push_patch(
        &mut self,
        kind: &Kind,
        version: &str,
        name: &str,
        subresource: &str,
        mut body: Value,
        content_type: &str,
    ) {
        if body.is_object()
            && self.random.chance(10)
            && let Some(seen) = self.seen_step(kind, name)
        {
            set(
                &mut body,
                "/metadata/resourceVersion",
                json!(format!("${{{seen}:metadata/resourceVersion}}")),
            );
        }
        let mut manager = self.field_manager_options();
        if self.random.chance(2) {
            manager.push("force=true".to_owned());
        }
        let query = self.write_options(manager);
        let path = format!("{}/{name}{subresource}{query}", kind.path(version));
        self.push(kind, name, "PATCH", path, body, content_type);
    }

    pub(super) fn apply(&mut self, kind: &Kind, version: &str, name: &str, subresource: &str) {
        let mut body = Self::object_header(kind, version, name);
        match subresource {
            "" => {
                if self.random.chance(70) {
                    merge_into(&mut body, &kind.base);
                }
                for (pointer, value) in self.choose_fields(kind, 4) {
                    set(&mut body, &pointer, value);
                }
            }
            "/scale" => {
                body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}});
                let (pointer, value) = self.choose_replicas();
                set(&mut body, &pointer, value);
            }
            _ => {
                for (pointer, value) in self.status_fields(kind, 3) {
                    set(&mut body, &pointer, value);
                }
            }
        }
        let body = self.spoil_body(body);
        let mut options = Vec::new();
        if !self.random.chance(2) {
            options.extend(
                self.random
                    .pick(&MANAGERS)
                    .map(|manager| format!("fieldManager={manager}")),
            );
        }
        if self.random.chance(40) {
            options.push("force=true".to_owned());
        }
        let query = self.write_options(options);
        let path = format!("{}/{name}{subresource}{query}", kind.path(version));
        self.push(kind, name, "PATCH", path, body, "application/apply-patch+yaml");
    }

    pub(super) fn write_status(&mut self, kind: &Kind, version: &str, name: &str) {
        match self.random.draw_below(10) {
            0..=2 => self.edit_object(kind, version, name, "/status"),
            3..=4 => self.merge_patch(kind, version, name, "/status"),
            5 => self.json_patch(kind, version, name, "/status"),
            6 => self.strategic_patch(kind, version, name, "/status"),
            _ => self.apply(kind, version, name, "/status"),
        }
    }

    pub(super) fn write_scale(&mut self, kind: &Kind, version: &str, name: &str) {
        match self.random.draw_below(10) {
            0 => self.push(
                kind,
                name,
                "GET",
                format!("{}/{name}/scale", kind.path(version)),
                Value::Null,
                "",
            ),
            1..=3 => {
                let mut body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}});
                let (pointer, value) = self.choose_replicas();
                set(&mut body, &pointer, value);
                let manager = self.field_manager_options();
                let query = self.write_options(manager);
                let path = format!("{}/{name}/scale{query}", kind.path(version));
                self.push(kind, name, "PUT", path, body, "application/json");
            }
            4..=5 => self.merge_patch(kind, version, name, "/scale"),
            6 => self.json_patch(kind, version, name, "/scale"),
            _ => self.apply(kind, version, name, "/scale"),
        }
    }
}
