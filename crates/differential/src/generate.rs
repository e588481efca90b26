//! Generates a story from a seed: valid and invalid requests to a few objects of a few kinds. The seed alone decides, so the same seed gives the same story.

mod patches;
mod plots;
mod reads;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenure_testkit::exchange::{Edit, Step};

use crate::kind::{Field, Kind};
use crate::random::Random;

/// Field managers; few enough that every server can store their entries.
const MANAGERS: [&str; 4] = ["a", "b", "kubectl", "c/d"];
const NAMES: [&str; 2] = ["one", "two"];

/// How many requests are meant to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Faults {
    /// Only requests that are outdated, conflicting, or about a missing object, as their order causes it.
    Few,
    /// Also bad values, odd options and bodies with duplicate keys.
    #[default]
    Many,
}

/// A generator of stories: random requests to objects of some kinds.
pub(crate) struct Generator {
    faults: Faults,
    kinds: Vec<Kind>,
    metadata: Vec<Field>,
}

/// A kind of request that a story can contain.
#[derive(Clone, Copy)]
enum Action {
    Create,
    Replace,
    EditReplace,
    MergePatch,
    JsonPatch,
    StrategicPatch,
    Apply,
    Status,
    Scale,
    Delete,
    DeleteCollection,
    Get,
    List,
}

const ACTIONS: [(usize, Action); 13] = [
    (16, Action::Create),
    (8, Action::Replace),
    (12, Action::EditReplace),
    (12, Action::MergePatch),
    (10, Action::JsonPatch),
    (8, Action::StrategicPatch),
    (34, Action::Apply),
    (10, Action::Status),
    (6, Action::Scale),
    (7, Action::Delete),
    (1, Action::DeleteCollection),
    (3, Action::Get),
    (3, Action::List),
];

/// A story while it is generated.
struct Story<'a> {
    random: Random,
    faults: Faults,
    metadata: &'a [Field],
    steps: Vec<Step>,
    /// Steps whose answer is probably the object, by kind and name.
    seen: BTreeMap<(String, String), Vec<String>>,
    /// Lists that may have another page: their request, and the step with the last page.
    pages: Vec<(String, String)>,
    /// Kinds that are watched at the end, and the step where the watch begins.
    watches: Vec<(String, String)>,
}

impl Generator {
    /// Creates a generator for all kinds, or only those of these names.
    pub(crate) fn new(only: &[String], faults: Faults) -> anyhow::Result<Self> {
        let mut kinds = crate::kind::read_kinds()?;
        if !only.is_empty() {
            kinds.retain(|kind| only.contains(&kind.kind));
        }
        anyhow::ensure!(!kinds.is_empty(), "there is no kind of this name: {}", only.join(", "));
        Ok(Self {
            faults,
            kinds,
            metadata: crate::kind::metadata_fields()?,
        })
    }

    /// Generates the story of a seed.
    pub(crate) fn story(&self, seed: u64) -> Vec<Step> {
        let mut story = Story {
            random: Random::new(seed),
            faults: self.faults,
            metadata: &self.metadata,
            steps: Vec::new(),
            seen: BTreeMap::new(),
            pages: Vec::new(),
            watches: Vec::new(),
        };
        let plot = story.choose_plot();
        let mut kinds: Vec<&Kind> = self.kinds.iter().filter(|kind| plot.uses_kind(kind)).collect();
        if kinds.is_empty() {
            kinds = self.kinds.iter().collect();
        }
        let weights: Vec<(usize, &Kind)> = kinds.iter().map(|kind| (kind.weight, *kind)).collect();
        story.begin_plot(plot);
        let chosen: Vec<&Kind> = (0..=story.random.draw_below(2))
            .filter_map(|_| story.random.pick_weighted(&weights))
            .collect();
        let length = story.steps.len() + 6 + story.random.draw_below(10);
        // A watch takes a second.
        let watches = story.random.chance(15);
        while story.steps.len() < length {
            let Some(kind) = story.random.pick(&chosen).copied() else {
                break;
            };
            if watches && story.watches.is_empty() && story.random.chance(30) {
                story.begin_watch(kind);
            }
            let before = story.steps.len();
            story.add_step(kind);
            story.adapt_steps(plot, story.steps.len() - before);
            if story.random.chance(30) {
                story.turn_page(kind);
            }
        }
        for kind in &chosen {
            story.list_all(kind);
        }
        for kind in &chosen {
            story.watch_again(kind);
        }
        story.end_plot(plot);
        story.steps
    }
}

impl Story<'_> {
    fn add_step(&mut self, kind: &Kind) {
        let own = [kind.api_version.clone()];
        let versions = if kind.versions.is_empty() {
            &own
        } else {
            kind.versions.as_slice()
        };
        let version = self.random.pick(versions).cloned().unwrap_or_default();
        let name = kind.name(if self.random.chance(75) { NAMES[0] } else { NAMES[1] });
        let name = name.as_str();
        let first = self.seen_step(kind, name).is_none();
        let action = match self.random.pick_weighted(&ACTIONS) {
            // Most stories begin with the creation of an object.
            Some(action) if !first || self.random.chance(25) => action,
            _ if self.random.chance(50) => Action::Create,
            _ => Action::Apply,
        };
        match action {
            Action::Create => self.create(kind, &version, name),
            Action::Replace => self.replace_object(kind, &version, name),
            Action::EditReplace => self.edit_object(kind, &version, name, ""),
            Action::MergePatch => self.merge_patch(kind, &version, name, ""),
            Action::JsonPatch => self.json_patch(kind, &version, name, ""),
            Action::StrategicPatch => self.strategic_patch(kind, &version, name, ""),
            Action::Apply => self.apply(kind, &version, name, ""),
            Action::Status if kind.status => self.write_status(kind, &version, name),
            Action::Scale if kind.scale => self.write_scale(kind, &version, name),
            Action::Delete => self.delete(kind, &version, name),
            Action::DeleteCollection => self.delete_collection(kind, &version),
            Action::List => self.list(kind, &version),
            Action::Get | Action::Status | Action::Scale => self.get(kind, &version, name),
        }
    }

    fn push(&mut self, kind: &Kind, name: &str, method: &str, path: String, body: Value, content_type: &str) {
        let mut headers = BTreeMap::new();
        if !content_type.is_empty() {
            headers.insert("content-type".to_owned(), content_type.to_owned());
        }
        let save = format!("s{}", self.steps.len());
        if !name.is_empty() && method != "DELETE" && !path.contains("dryRun") && !path.contains("/scale") {
            let key = (kind.kind.clone(), name.to_owned());
            self.seen.entry(key).or_default().push(save.clone());
        }
        self.steps.push(Step {
            method: method.to_owned(),
            path,
            headers,
            body,
            edit: None,
            save: Some(save),
            known: Map::new(),
            pause: None,
            until: serde_json::Map::new(),
            seen: Vec::new(),
            want: Value::Null,
        });
    }

    /// Returns a step whose answer has the object: usually the last one.
    fn seen_step(&mut self, kind: &Kind, name: &str) -> Option<String> {
        let latest = self.random.chance(80);
        let seen = self.seen.get(&(kind.kind.clone(), name.to_owned()))?;
        if latest {
            seen.last().cloned()
        } else {
            self.random.pick(seen).cloned()
        }
    }

    /// Adds options of a write, and returns them as a query.
    fn write_options(&mut self, mut options: Vec<String>) -> String {
        if self.random.chance(8) {
            options.push(
                if self.random.chance(90) {
                    "dryRun=All"
                } else {
                    "dryRun=Some"
                }
                .to_owned(),
            );
        }
        if self.random.chance(25) {
            let modes: &[&str] = match self.faults {
                Faults::Few => &["Strict", "Warn", "Ignore"],
                Faults::Many => &["Strict", "Strict", "Warn", "Ignore", "Odd"],
            };
            options.extend(self.random.pick(modes).map(|mode| format!("fieldValidation={mode}")));
        }
        if options.is_empty() {
            String::new()
        } else {
            format!("?{}", options.join("&"))
        }
    }

    fn field_manager_options(&mut self) -> Vec<String> {
        if self.random.chance(40) {
            return Vec::new();
        }
        let managers: &[&str] = if self.faults == Faults::Many && self.random.chance(2) {
            &["", "a%20b", "%01"]
        } else {
            &MANAGERS
        };
        self.random
            .pick(managers)
            .map(|manager| format!("fieldManager={manager}"))
            .into_iter()
            .collect()
    }

    /// Chooses a few fields with values.
    fn choose_fields(&mut self, kind: &Kind, at_most: usize) -> Vec<(String, Value)> {
        let count = self.random.draw_below(at_most + 1);
        let own = self.metadata;
        (0..count)
            .filter_map(|_| {
                let fields = if self.random.chance(28) {
                    own
                } else {
                    kind.spec.as_slice()
                };
                self.value_of(fields)
            })
            // Without a namespace, other names belong to other stories.
            .filter(|(pointer, _)| !kind.cluster || !matches!(pointer.as_str(), "/metadata/name" | "/metadata"))
            .collect()
    }

    fn value_of(&mut self, fields: &[Field]) -> Option<(String, Value)> {
        let Field(pointer, good, bad) = self.random.pick(fields)?;
        let faulty = self.faults == Faults::Many;
        if good.is_empty() && !(faulty && self.random.chance(25)) {
            // Fields that have only bad values would make most requests invalid.
            return None;
        }
        let values = if good.is_empty() || (faulty && !bad.is_empty() && self.random.chance(12)) {
            bad
        } else {
            good
        };
        Some((pointer.clone(), self.random.pick(values)?.clone()))
    }

    fn object_header(kind: &Kind, version: &str, name: &str) -> Value {
        json!({"apiVersion": version, "kind": kind.kind, "metadata": {"name": name}})
    }

    /// Makes a whole object.
    fn make_object(&mut self, kind: &Kind, version: &str, name: &str, at_most: usize) -> Value {
        let mut object = Self::object_header(kind, version, name);
        merge_into(&mut object, &kind.base);
        for (pointer, value) in self.choose_fields(kind, at_most) {
            set(&mut object, &pointer, value);
        }
        object
    }

    fn create(&mut self, kind: &Kind, version: &str, name: &str) {
        let mut object = self.make_object(kind, version, name, 4);
        if self.random.chance(6)
            && !kind.cluster
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("name");
            if self.random.chance(80) {
                // Each has its own base, so that generated names are ordered.
                let base = format!("gen{:02}-", self.steps.len());
                metadata.insert("generateName".to_owned(), json!(base));
            }
        }
        let body = self.spoil_body(object);
        let manager = self.field_manager_options();
        let query = self.write_options(manager);
        let path = format!("{}{query}", kind.path(version));
        self.push(kind, name, "POST", path, body, "application/json");
    }

    /// Sometimes makes a body invalid JSON, or repeats a key in it.
    fn spoil_body(&mut self, object: Value) -> Value {
        if self.faults == Faults::Few || !self.random.chance(3) {
            return object;
        }
        let text = object.to_string();
        match self.random.draw_below(3) {
            0 => json!(text.replacen('{', "{\"metadata\":{\"name\":\"one\"},", 1)),
            1 => json!(text.replacen("\"spec\":{", "\"spec\":{\"x\":1,\"x\":2,", 1)),
            _ => json!(text.replacen("\"data\":{", "\"data\":{\"a\":\"0\",", 1)),
        }
    }

    fn replace_object(&mut self, kind: &Kind, version: &str, name: &str) {
        let mut object = self.make_object(kind, version, name, 4);
        let seen = self.seen_step(kind, name);
        if let Some(seen) = seen.filter(|_| self.random.chance(70)) {
            set(
                &mut object,
                "/metadata/resourceVersion",
                json!(format!("${{{seen}:metadata/resourceVersion}}")),
            );
        }
        let body = self.spoil_body(object);
        let manager = self.field_manager_options();
        let query = self.write_options(manager);
        self.push(
            kind,
            name,
            "PUT",
            format!("{}/{name}{query}", kind.path(version)),
            body,
            "application/json",
        );
    }

    /// Reads an object, changes it and writes it back, as most controllers do.
    fn edit_object(&mut self, kind: &Kind, version: &str, name: &str, subresource: &str) {
        let Some(seen) = self.seen_step(kind, name) else {
            return self.replace_object(kind, version, name);
        };
        let fields = if subresource.is_empty() {
            self.choose_fields(kind, 3)
        } else {
            self.status_fields(kind, 2)
        };
        let mut merge = json!({});
        for (pointer, value) in fields {
            set(&mut merge, &pointer, value);
        }
        let manager = self.field_manager_options();
        let query = self.write_options(manager);
        let path = format!("{}/{name}{subresource}{query}", kind.path(version));
        self.push(kind, name, "PUT", path, Value::Null, "application/json");
        if let Some(step) = self.steps.last_mut() {
            step.edit = Some(Edit { of: seen, merge });
        }
    }

    fn status_fields(&mut self, kind: &Kind, at_most: usize) -> Vec<(String, Value)> {
        let mut fields: Vec<(String, Value)> = (0..1 + self.random.draw_below(at_most))
            .filter_map(|_| self.value_of(&kind.status_fields))
            .collect();
        if self.random.chance(20) {
            fields.extend(self.choose_fields(kind, 1));
        }
        fields
    }

    fn delete_options(&mut self, seen: Option<String>) -> Value {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if self.random.chance(60) {
            let policies = ["Background", "Background", "Foreground", "Orphan", "Odd"];
            let policy = self.random.pick(&policies).copied().unwrap_or_default();
            set(&mut options, "/propagationPolicy", json!(policy));
        }
        if let Some(seen) = seen.filter(|_| self.random.chance(30)) {
            let (pointer, reference) = if self.random.chance(50) {
                (
                    "/preconditions/resourceVersion",
                    format!("${{{seen}:metadata/resourceVersion}}"),
                )
            } else {
                ("/preconditions/uid", format!("${{{seen}:metadata/uid}}"))
            };
            set(&mut options, pointer, json!(reference));
        }
        if self.random.chance(10) {
            set(&mut options, "/gracePeriodSeconds", json!(0));
        }
        if self.random.chance(5) {
            set(&mut options, "/orphanDependents", json!(true));
        }
        if self.random.chance(8) {
            set(&mut options, "/dryRun", json!(["All"]));
        }
        options
    }

    fn delete(&mut self, kind: &Kind, version: &str, name: &str) {
        let seen = self.seen_step(kind, name);
        let body = if self.random.chance(25) {
            Value::Null
        } else {
            self.delete_options(seen)
        };
        let query = if self.random.chance(8) {
            "?propagationPolicy=Foreground"
        } else {
            ""
        };
        let path = format!("{}/{name}{query}", kind.path(version));
        self.push(kind, name, "DELETE", path, body, "application/json");
    }

    fn delete_collection(&mut self, kind: &Kind, version: &str) {
        let body = self.delete_options(None);
        let query = if kind.cluster {
            "?fieldSelector=metadata.name%3D@NS-one"
        } else if self.random.chance(50) {
            "?labelSelector=a%3D1"
        } else {
            ""
        };
        self.push(
            kind,
            "",
            "DELETE",
            format!("{}{query}", kind.path(version)),
            body,
            "application/json",
        );
    }
}

/// Merges one object into another.
fn merge_into(target: &mut Value, over: &Value) {
    match (target, over) {
        (Value::Object(target), Value::Object(over)) => {
            for (key, value) in over {
                merge_into(target.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (target, over) => *target = over.clone(),
    }
}

/// Sets a value at a pointer, creating the objects on the way.
pub(crate) fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut current = object;
    for part in pointer.split('/').skip(1) {
        if !current.is_object() {
            *current = json!({});
        }
        let Some(map) = current.as_object_mut() else { return };
        current = map
            .entry(part.replace("~1", "/").replace("~0", "~"))
            .or_insert(Value::Null);
    }
    *current = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_generates_same_story() -> anyhow::Result<()> {
        let generator = Generator::new(&[], Faults::Many)?;
        for seed in 0..200 {
            let story = generator.story(seed);
            assert!(story.len() >= 6, "{seed}");
            assert_eq!(story, generator.story(seed));
        }
        assert!(Generator::new(&["Nothing".to_owned()], Faults::Few).is_err());
        Ok(())
    }
}
