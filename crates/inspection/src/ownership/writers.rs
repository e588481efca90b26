//! The writers of a manager's fields, from the audit log of an API server.
//!
//! A manager's name is a claim of its writer; the log names the user. An entry of managedFields matches an event with equal object, subresource and manager, if the
//! second of the entry lies within the request. Nothing is guessed: all matching events are reported, and an entry without a match has no known writer.
//!
//! A log has data of many users: a line that is no audit event is skipped and counted, and each entry keeps a bounded number of writers.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{Timestamp, Unit};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use structured_merge::{ManagedFieldsEntry, Operation};

/// The most writers that are kept of one entry, and the most others that went by the same name.
const MOST_WRITERS: usize = 8;
/// The longest name of a manager, in bytes: the API server cuts it there.
const LONGEST_MANAGER: usize = 128;

/// The group, resource, namespace and name by which a request addresses an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the kind.
    pub resource: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// The key of an entry in an object's managedFields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryKey {
    manager: String,
    operation: Operation,
    subresource: String,
    time: Option<String>,
}

impl From<&ManagedFieldsEntry> for EntryKey {
    fn from(entry: &ManagedFieldsEntry) -> Self {
        Self {
            manager: entry.manager.clone(),
            operation: entry.operation,
            subresource: entry.subresource.clone(),
            time: entry.time.as_ref().map(ToString::to_string),
        }
    }
}

/// The users that may have written one entry of managedFields, by an audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writers {
    /// The possible writers of the entry at its time. There are several if several wrote in that second. An entry without a time has all writers under its name.
    pub at_its_time: BTreeSet<String>,
    /// The other writers to the object under that manager's name.
    pub under_its_name: BTreeSet<String>,
}

/// A search of audit logs for the writers of managedFields: the wanted entries, with the users found so far.
#[derive(Debug, Default)]
pub struct WriterSearch {
    sought: BTreeMap<Address, BTreeMap<EntryKey, Writers>>,
    /// Lines that are no events of an audit log.
    unreadable: usize,
}

/// The part of an audit event that is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<Reference>,
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    api_group: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Deserialize)]
struct Status {
    code: Option<u16>,
}

impl WriterSearch {
    /// Adds an object with the entries of its managedFields.
    pub fn add_object<'e>(&mut self, address: Address, entries: impl IntoIterator<Item = &'e ManagedFieldsEntry>) {
        let sought = self.sought.entry(address).or_default();
        for entry in entries {
            sought.entry(EntryKey::from(entry)).or_default();
        }
    }

    /// Reads one line of a log.
    pub fn read_line(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match serde_json::from_slice::<Event>(line) {
            Ok(event) => self.take_event(&event),
            Err(_) => self.unreadable += 1,
        }
    }

    /// Returns the number of lines that were no events.
    #[must_use]
    pub fn count_unreadable(&self) -> usize {
        self.unreadable
    }

    /// Returns the writers of an entry; nothing if the entry wasn't sought.
    #[must_use]
    pub fn writers_of(&self, address: &Address, entry: &ManagedFieldsEntry) -> Option<&Writers> {
        self.sought.get(address)?.get(&EntryKey::from(entry))
    }

    fn take_event(&mut self, event: &Event) {
        let Some(reference) = event.object_ref.as_ref().filter(|_| has_changed(event)) else {
            return;
        };
        let address = Address {
            group: reference.api_group.clone(),
            resource: reference.resource.clone(),
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
        };
        let Some(entries) = self.sought.get_mut(&address) else {
            return;
        };
        let manager = read_manager(event);
        for (entry, writers) in entries.iter_mut() {
            let may_apply = event.verb == "patch";
            if entry.manager != manager
                || entry.subresource != reference.subresource
                || (entry.operation == Operation::Apply && !may_apply)
            {
                continue;
            }
            // An entry has no time if its writer became an owner without a change. Then any request of this manager may be the one.
            let at_its_time = entry.time.as_deref().is_none_or(|time| is_within(event, time));
            let list = if at_its_time {
                &mut writers.at_its_time
            } else {
                &mut writers.under_its_name
            };
            if list.len() < MOST_WRITERS {
                list.insert(describe_writer(event));
            }
        }
    }
}

/// Checks whether the event is about an accepted write that was no dry run.
fn has_changed(event: &Event) -> bool {
    let code = event.response_status.as_ref().and_then(|status| status.code);
    event.stage == "ResponseComplete"
        && ["create", "update", "patch"].contains(&event.verb.as_str())
        && code.is_some_and(|code| (200..300).contains(&code))
        && find_parameter(&event.request_uri, "dryRun").is_none()
}

/// Reads the manager that the API server stored: the request's own, or the first word of its user agent (`managerOrUserAgent` of Kubernetes' handlers).
fn read_manager(event: &Event) -> String {
    if let Some(named) = find_parameter(&event.request_uri, "fieldManager").filter(|named| !named.is_empty()) {
        return named;
    }
    let first = event.user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for letter in first.chars().filter(|letter| !letter.is_control()) {
        if manager.len() + letter.len_utf8() > LONGEST_MANAGER {
            break;
        }
        manager.push(letter);
    }
    manager
}

fn find_parameter(uri: &str, wanted: &str) -> Option<String> {
    let (_, query) = uri.split_once('?')?;
    query.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name == wanted).then(|| {
            let value = value.replace('+', " ");
            percent_decode_str(&value).decode_utf8_lossy().into_owned()
        })
    })
}

/// Checks whether the entry was written during the request. The entry's time is cut to a second.
fn is_within(event: &Event, time: &str) -> bool {
    let Ok(time) = time.parse::<Timestamp>() else {
        return false;
    };
    let whole = |moment: Timestamp| {
        let cut = jiff::TimestampRound::new()
            .smallest(Unit::Second)
            .mode(jiff::RoundMode::Floor);
        moment.round(cut).unwrap_or(moment)
    };
    whole(event.request_received_timestamp) <= time && time <= event.stage_timestamp
}

fn describe_writer(event: &Event) -> String {
    match &event.impersonated_user {
        Some(shown) => format!("{}, impersonated by {}", shown.username, event.user.username),
        None => event.user.username.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use structured_merge::Managed;

    use super::*;

    fn address() -> Address {
        Address {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "web".to_owned(),
            name: "web".to_owned(),
        }
    }

    fn entries() -> Vec<ManagedFieldsEntry> {
        let entry = |manager: &str, operation: &str, subresource: &str| {
            json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": "2026-01-01T10:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:replicas": {}}}, "subresource": subresource})
        };
        let object = json!({"metadata": {"managedFields": [
            entry("kustomize-controller", "Apply", ""), entry("kubectl-edit", "Update", ""), entry("kubectl", "Update", "scale")]}});
        Managed::of_object(&object).expect("managedFields").entries()
    }

    fn event(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut event = json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete", "verb": "patch",
            "requestURI": "/apis/apps/v1/namespaces/web/deployments/web?fieldManager=kubectl-edit&fieldValidation=Strict",
            "user": {"username": "alice"}, "userAgent": "kubectl/v1.36",
            "objectRef": {"resource": "deployments", "namespace": "web", "name": "web", "apiGroup": "apps", "apiVersion": "v1"},
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": "2026-01-01T10:00:00.400000Z", "stageTimestamp": "2026-01-01T10:00:00.500000Z"});
        change(&mut event);
        event.to_string().into_bytes()
    }

    fn search(lines: &[Vec<u8>]) -> WriterSearch {
        let mut search = WriterSearch::default();
        search.add_object(address(), &entries());
        lines.iter().for_each(|line| search.read_line(line));
        search
    }

    fn list_found(lines: &[Vec<u8>], manager: &str) -> (Vec<String>, Vec<String>) {
        let search = search(lines);
        let entry = entries()
            .into_iter()
            .find(|entry| entry.manager == manager)
            .expect("an entry");
        let writers = search.writers_of(&address(), &entry).expect("it is sought");
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect();
        (list(&writers.at_its_time), list(&writers.under_its_name))
    }

    fn name(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_entry_finds_the_request_that_wrote_it() {
        assert_eq!(list_found(&[event(|_| {})], "kubectl-edit"), (name(&["alice"]), vec![]));
    }

    #[test]
    fn unrelated_or_unsuccessful_requests_name_no_writer() {
        let without: [fn(&mut Value); 8] = [
            |event| event["responseStatus"]["code"] = json!(403),
            |event| event["verb"] = json!("get"),
            |event| event["stage"] = json!("RequestReceived"),
            |event| {
                event["requestURI"] =
                    json!("/apis/apps/v1/namespaces/web/deployments/web?dryRun=All&fieldManager=kubectl-edit");
            },
            |event| event["objectRef"]["name"] = json!("other"),
            |event| event["objectRef"]["subresource"] = json!("status"),
            |event| event["objectRef"]["apiGroup"] = json!("extensions"),
            |event| event["requestURI"] = json!("/apis/apps/v1/namespaces/web/deployments/web?fieldManager=other"),
        ];
        for (index, change) in without.into_iter().enumerate() {
            assert_eq!(
                list_found(&[event(change)], "kubectl-edit"),
                (vec![], vec![]),
                "change {index}"
            );
        }
    }

    #[test]
    fn a_request_of_another_time_is_distinguished() {
        let later = event(|event| {
            event["user"]["username"] = json!("mallory");
            event["requestReceivedTimestamp"] = json!("2026-01-01T10:00:01.000000Z");
            event["stageTimestamp"] = json!("2026-01-01T10:00:01.100000Z");
        });
        // A request that takes longer than a second matches any second within it.
        let long = event(|event| {
            event["user"]["username"] = json!("bob");
            event["requestReceivedTimestamp"] = json!("2026-01-01T09:59:58.900000Z");
            event["stageTimestamp"] = json!("2026-01-01T10:00:02.100000Z");
        });
        assert_eq!(
            list_found(&[later, long, event(|_| {})], "kubectl-edit"),
            (name(&["alice", "bob"]), name(&["mallory"]))
        );
    }

    #[test]
    fn a_manager_that_no_request_names_is_the_program() {
        let nameless = event(|event| {
            event["requestURI"] = json!("/apis/apps/v1/namespaces/web/deployments/web/scale");
            event["objectRef"]["subresource"] = json!("scale");
            event["verb"] = json!("update");
        });
        assert_eq!(list_found(&[nameless], "kubectl"), (name(&["alice"]), vec![]));
    }

    #[test]
    fn entry_without_time_matches_any_request_of_its_manager() {
        let mut timeless = entries().remove(0);
        timeless.time = None;
        let manager = timeless.manager.clone();
        let mut search = WriterSearch::default();
        search.add_object(address(), [&timeless]);
        search.read_line(&event(|event| {
            event["requestURI"] = json!(format!("/x?fieldManager={manager}"));
        }));
        let writers = search.writers_of(&address(), &timeless).expect("it is sought");
        assert_eq!(writers.at_its_time, BTreeSet::from(["alice".to_owned()]));
    }

    #[test]
    fn an_update_applies_nothing() {
        let write = |verb: &'static str| {
            event(move |event| {
                event["requestURI"] = json!("/x?fieldManager=kustomize%2Dcontroller");
                event["verb"] = json!(verb);
            })
        };
        assert_eq!(list_found(&[write("update")], "kustomize-controller"), (vec![], vec![]));
        assert_eq!(
            list_found(&[write("patch")], "kustomize-controller").0,
            name(&["alice"])
        );
    }

    #[test]
    fn impersonation_is_reported_with_both_users() {
        let line = event(|event| event["impersonatedUser"] = json!({"username": "system:serviceaccount:web:gitops"}));
        assert_eq!(
            list_found(&[line], "kubectl-edit").0,
            name(&["system:serviceaccount:web:gitops, impersonated by alice"])
        );
    }

    #[test]
    fn unreadable_lines_are_counted_and_writers_are_limited() {
        let mut lines = vec![b"{".to_vec(), b"[]".to_vec(), b"".to_vec(), b"\xff\xfe".to_vec()];
        lines.extend((0..50).map(|number| event(|event| event["user"]["username"] = json!(format!("user-{number}")))));
        let search = search(&lines);
        assert_eq!(search.count_unreadable(), 3);
        let entry = entries()
            .into_iter()
            .find(|entry| entry.manager == "kubectl-edit")
            .expect("one");
        let writers = search.writers_of(&address(), &entry).expect("it is sought");
        assert_eq!(writers.at_its_time.len(), MOST_WRITERS);
    }
}
