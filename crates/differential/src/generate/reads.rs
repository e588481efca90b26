//! Generates reads: objects, lists, pages of lists, lists of the past, tables, and the events of everything that a story did.

use serde_json::{Value, json};

use super::{Faults, NAMES, Story};
use crate::kind::Kind;

/// Media types of answers that clients request; the last ones are not available.
const FORMS: [&str; 6] = [
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v9;g=meta.k8s.io",
    "text/html",
];

impl Story<'_> {
    /// Requests another form for the answer of the last step: one of the first `of`.
    fn request_form(&mut self, of: usize) {
        let known = if self.faults == Faults::Few { of.min(4) } else { of };
        let form = self.random.pick(FORMS.get(..known).unwrap_or_default()).copied();
        if let (Some(step), Some(form)) = (self.steps.last_mut(), form) {
            step.headers.insert("accept".to_owned(), form.to_owned());
            // An answer in another form is no object to start from.
            step.save = None;
        }
    }

    pub(super) fn get(&mut self, kind: &Kind, version: &str, name: &str) {
        let subresource = match self.random.draw_below(4) {
            0 => "/status",
            1 => "/scale",
            _ => "",
        };
        let path = format!("{}/{name}{subresource}", kind.path(version));
        if subresource != "/scale" && self.random.chance(25) {
            self.push(kind, "", "GET", path, Value::Null, "");
            self.request_form(FORMS.len());
        } else {
            self.push(kind, name, "GET", path, Value::Null, "");
        }
    }

    /// Returns a selector: a list of objects without a namespace should show only those of this story.
    fn selection_options(&mut self, kind: &Kind) -> String {
        if kind.cluster {
            let name = self.random.pick(&NAMES).copied().unwrap_or_default();
            return format!("fieldSelector=metadata.name%3D@NS-{name}");
        }
        let good = [
            "",
            "",
            "labelSelector=a%3D1",
            "labelSelector=a",
            "labelSelector=%21a",
            "labelSelector=a%21%3D1",
            "labelSelector=a+in+(1,2),c",
            "labelSelector=a+notin+(1)",
            "fieldSelector=metadata.name%3Done",
            "fieldSelector=metadata.name%21%3Done",
            "fieldSelector=metadata.namespace%3D@NS",
            "labelSelector=a+in+(",
            "fieldSelector=zzz%3D1",
        ];
        self.random.pick(&good).copied().unwrap_or_default().to_owned()
    }

    /// Lists all of the story's objects of this kind.
    pub(super) fn list_all(&mut self, kind: &Kind) {
        let names: &[&str] = if kind.cluster { &NAMES } else { &[""] };
        for name in names {
            let query = match kind.cluster {
                true => format!("?fieldSelector=metadata.name%3D@NS-{name}"),
                false => String::new(),
            };
            let path = format!("{}{query}", kind.path(&kind.api_version));
            self.push(kind, "", "GET", path, Value::Null, "");
        }
    }

    pub(super) fn list(&mut self, kind: &Kind, version: &str) {
        let mut query = Vec::new();
        let selection = self.selection_options(kind);
        if !selection.is_empty() {
            query.push(selection);
        }
        match self.random.draw_below(4) {
            // Page by page; changes in between must not show.
            0 => {
                let path = kind.path(version);
                let limit = 1 + self.random.draw_below(2);
                query.push(format!("limit={limit}"));
                self.push(kind, "", "GET", format!("{path}?{}", query.join("&")), Value::Null, "");
                let first = self.steps.last().and_then(|step| step.save.clone()).unwrap_or_default();
                self.pages.push((format!("{path}?{}", query.join("&")), first));
            }
            // The list at an earlier revision.
            1 => {
                let seen = self.steps.iter().rev().filter_map(|step| step.save.clone()).nth(2);
                if let Some(seen) = seen {
                    let matches = ["Exact", "Exact", "Exact", "Odd"];
                    let known = if self.faults == Faults::Few { 3 } else { 4 };
                    let matches = self.random.pick(matches.get(..known).unwrap_or_default()).copied();
                    query.push(format!("resourceVersion=${{{seen}:metadata/resourceVersion}}"));
                    query.push(format!("resourceVersionMatch={}", matches.unwrap_or_default()));
                }
                self.push_list(kind, version, &query);
            }
            2 => {
                if self.random.chance(40) {
                    let include = ["None", "Metadata", "Object"];
                    let include = self.random.pick(&include).copied().unwrap_or_default();
                    query.push(format!("includeObject={include}"));
                }
                self.push_list(kind, version, &query);
                self.request_form(FORMS.len());
            }
            _ => self.push_list(kind, version, &query),
        }
    }

    fn push_list(&mut self, kind: &Kind, version: &str, query: &[String]) {
        let mark = if query.is_empty() { "" } else { "?" };
        let path = format!("{}{mark}{}", kind.path(version), query.join("&"));
        self.push(kind, "", "GET", path, Value::Null, "");
    }

    /// Sometimes requests the next page of a list.
    pub(super) fn turn_page(&mut self, kind: &Kind) {
        let Some((path, before)) = self.pages.pop() else { return };
        let path = format!("{path}&continue=${{{before}:metadata/continue}}");
        self.push(kind, "", "GET", path, Value::Null, "");
    }

    /// Records the start of a later watch.
    pub(super) fn begin_watch(&mut self, kind: &Kind) {
        let query = if kind.cluster {
            "fieldSelector=metadata.name%3D@NS-one"
        } else {
            "limit=500"
        };
        self.push_list(kind, &kind.api_version, &[query.to_owned()]);
        if let Some(save) = self.steps.last().and_then(|step| step.save.clone()) {
            self.watches.push((kind.kind.clone(), save));
        }
    }

    /// Watches all events since the recorded start.
    pub(super) fn watch_again(&mut self, kind: &Kind) {
        let since = self.watches.iter().position(|(known, _)| *known == kind.kind);
        let Some((_, since)) = since.map(|at| self.watches.remove(at)) else {
            return;
        };
        let selection = match self.random.draw_below(3) {
            _ if kind.cluster => "&fieldSelector=metadata.name%3D@NS-one",
            0 => "&labelSelector=a%3D1",
            1 => "&fieldSelector=metadata.name%3Done",
            _ => "",
        };
        let version = self.random.pick(&kind.versions).cloned();
        let version = version.unwrap_or_else(|| kind.api_version.clone());
        let path = format!(
            "{}?watch=1&timeoutSeconds=1&resourceVersion=${{{since}:metadata/resourceVersion}}{selection}",
            kind.path(&version)
        );
        self.push(kind, "", "GET", path, json!(null), "");
        if self.random.chance(30) {
            // An event is one object.
            self.request_form(2);
        }
    }
}
