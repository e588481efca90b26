//! Replays the recorded cases, one trial for each: ownership, merges, conflicts and errors must be the real server's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    reason = "tests may panic, and the cases are in files"
)]

use std::process::ExitCode;

use serde_json::{Value, json};
use structured_merge::{Applied, FieldPath, Managed, keep_times_if_otherwise_equal, scale};
use tenure_trials::Suite;

#[allow(dead_code, reason = "the recorder uses the rest")]
#[path = "../it/corpus.rs"]
mod corpus;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../it/managers.rs"]
mod managers;

use corpus::{Answer, Case, Step, load};
use managers::{api_version, field_manager, is_custom, scale_manager, time_of_step};

/// Intended differences: case, step and reason.
const ON_PURPOSE: &[(&str, usize, &str)] = &[(
    "widget-scale",
    3,
    "a Scale of a custom resource can't be applied there: 500, invalid group/version: autoscaling/v1",
)];

fn main() -> ExitCode {
    let cases = load().into_iter().map(|(name, case)| {
        let check = {
            let name = name.clone();
            move || check_case(&name, &case)
        };
        (name, check)
    });
    let mut suite = Suite::default();
    suite.add("cases", 114, cases);
    suite.run()
}

/// Replays all steps of a case and reports the steps that differ.
fn check_case(name: &str, case: &Case) -> Result<(), String> {
    let mut failures = Vec::new();
    let mut live: Option<Value> = None;
    for (index, step) in case.steps.iter().enumerate() {
        let answer = step
            .answer
            .as_ref()
            .ok_or_else(|| format!("{name} step {index} isn't recorded"))?;
        let replayed = replay(&case.kind, step, index, live.as_ref(), answer);
        if ON_PURPOSE.iter().any(|(case, step, _)| *case == name && *step == index) {
            if replayed.is_ok() {
                failures.push(format!("{name} step {index} differs no more"));
            }
        } else if let Err(problem) = replayed {
            failures.push(format!(
                "{name} ({}), step {index}: {} {} by {}{}: {problem}",
                case.title,
                step.verb,
                step.body,
                step.manager,
                if step.force { " by force" } else { "" }
            ));
        }
        if let Some(object) = &answer.object {
            live = Some(object.clone());
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        let steps = case.steps.len();
        Err(format!(
            "{} of {steps} steps differ:\n{}",
            failures.len(),
            failures.join("\n\n")
        ))
    }
}

fn replay(kind: &str, step: &Step, index: usize, live: Option<&Value>, answer: &Answer) -> Result<(), String> {
    if step.subresource.as_deref() == Some("scale") {
        return replay_scale(kind, step, index, live.unwrap(), answer);
    }
    let version = step.version.as_deref().unwrap_or("v1");
    let manager = field_manager(kind, version, step.subresource.as_deref());
    let live = live.map(|live| {
        let mut live = live.clone();
        live["apiVersion"] = Value::from(api_version(kind, version));
        live
    });
    let live = live.as_ref();
    let now = time_of_step(index);
    if step.verb != "apply" {
        // This library computes only the owners of a written object.
        let Some(wanted) = &answer.object else { return Ok(()) };
        let updated = manager.update(live, expected_write(kind, step, live, wanted), &step.manager, now);
        return same_managed_fields(&updated, wanted);
    }
    match (
        manager.apply(live, &step.body, &step.manager, step.force, now),
        &answer.object,
    ) {
        (Ok(applied), Some(wanted)) => {
            let unchanged = applied == Applied::Unchanged;
            if unchanged && answer.changed {
                return Err(format!("we change nothing, the server did: {wanted}"));
            }
            let merged = applied.into_object(live);
            covers(kind, wanted, &after_reset(kind, step, live, merged.clone()))?;
            // The server adds defaults and addresses after the merge.
            let mut stored = wanted.clone();
            let metadata = stored["metadata"].as_object_mut().unwrap();
            metadata.remove("managedFields");
            if let Some(managed_fields) = merged["metadata"].get("managedFields") {
                metadata.insert("managedFields".to_owned(), managed_fields.clone());
            }
            if let Some(live) = live {
                keep_times_if_otherwise_equal(live, &mut stored);
            }
            same_managed_fields(&stored, wanted)?;
            let changed = live.is_none_or(|live| *live != stored);
            if changed != answer.changed {
                Err(format!("changed: {changed}, the server: {}", answer.changed))
            } else {
                Ok(())
            }
        }
        (Err(error), None) => {
            let causes = match &error {
                structured_merge::ApplyError::Conflicts { causes, .. } => {
                    let mut causes: Vec<String> = causes
                        .iter()
                        .map(|cause| format!("{}: {}", cause.field, cause.message))
                        .collect();
                    causes.sort();
                    causes
                }
                _ => Vec::new(),
            };
            let ours = (
                error.http_status(),
                error.reason(),
                in_any_order(&error.to_string()),
                causes,
            );
            let message = in_any_order(answer.message.as_deref().unwrap_or(""));
            let theirs = (
                answer.code,
                answer.reason.as_deref().unwrap_or(""),
                message,
                answer.causes.clone(),
            );
            if theirs.0 == 422 {
                // The merge was fine, the server's validation wasn't.
                return Err(format!(
                    "we fail with {ours:?}, the server's validation with {theirs:?}"
                ));
            }
            if ours == theirs {
                Ok(())
            } else {
                Err(format!("\n  ours   {ours:?}\n  theirs {theirs:?}"))
            }
        }
        (Ok(_), None) if answer.code == 422 => Ok(()),
        (Ok(_), None) => Err(format!("we succeed, the server fails: {:?}", answer.message)),
        (Err(error), Some(_)) => Err(format!("we fail, the server succeeds: {error}")),
    }
}

/// Checks a write to a Scale. The recorded answer is the scaled object.
fn replay_scale(kind: &str, step: &Step, index: usize, live: &Value, answer: &Answer) -> Result<(), String> {
    let version = api_version(kind, step.version.as_deref().unwrap_or("v1"));
    let paths: Vec<_> = ["v1", "v2"]
        .iter()
        .map(|version| {
            (
                api_version(kind, version),
                Some(FieldPath::of_fields(&["spec", "replicas"])),
            )
        })
        .collect();
    let parent = Managed::of_object(live).unwrap();
    let scale = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {
            "name": live["metadata"]["name"],
            "namespace": live["metadata"]["namespace"],
            "uid": "u",
            "managedFields": scale::to_scale(&parent, &paths).to_value(),
        },
        "spec": {"replicas": live["spec"]["replicas"]},
    });
    let now = time_of_step(index);
    let manager = scale_manager();
    let written = match (step.verb.as_str(), &answer.object) {
        ("apply", _) => match manager.apply(Some(&scale), &step.body, &step.manager, step.force, now) {
            Ok(applied) => applied.into_object(Some(&scale)),
            Err(error) if Some(error.to_string()) == answer.message => return Ok(()),
            Err(error) => return Err(format!("ours: {error}, theirs: {:?}", answer.message)),
        },
        (_, None) => return Ok(()),
        (_, Some(_)) => {
            let mut new = scale.clone();
            new["spec"]["replicas"] = step.body["spec"]["replicas"].clone();
            manager.update(Some(&scale), new, &step.manager, now)
        }
    };
    let Some(wanted) = &answer.object else {
        return Err(format!("the server fails: {:?}", answer.message));
    };
    let after = scale::to_parent(&parent, &Managed::of_object(&written).unwrap(), &paths, &version);
    let ours = json!({"metadata": {"managedFields": after}});
    same_managed_fields(&ours, wanted)
}

/// Returns the object at the moment when the server computed the owners of an update. It is the stored object without addresses, which the
/// server adds later, and with the managedFields that the client sent.
fn expected_write(kind: &str, step: &Step, live: Option<&Value>, stored: &Value) -> Value {
    let mut written = stored.clone();
    let metadata = written["metadata"].as_object_mut().unwrap();
    metadata.remove("managedFields");
    let sent = step
        .body
        .get("metadata")
        .and_then(|metadata| metadata.get("managedFields"));
    let kept = live
        .filter(|_| step.verb == "merge")
        .and_then(|live| live["metadata"].get("managedFields"));
    if let Some(managed_fields) = sent.or(kept) {
        metadata.insert("managedFields".to_owned(), managed_fields.clone());
    }
    if step.verb == "merge" {
        return written;
    }
    // A field that the body lacks was added by the server later, or comes from the live object.
    let later: &[&str] = match kind {
        "Service" => &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"],
        "Pod" => &[
            "preemptionPolicy",
            "priority",
            "serviceAccount",
            "serviceAccountName",
            "tolerations",
        ],
        _ => &[],
    };
    for given in later {
        if step.body["spec"].get(given).is_none() {
            written["spec"].as_object_mut().unwrap().remove(*given);
        }
    }
    if step.subresource.is_none() && matches!(kind, "Widget" | "Deployment") {
        match step.body.get("status") {
            Some(status) => written["status"] = status.clone(),
            None => {
                written.as_object_mut().unwrap().remove("status");
            }
        }
    }
    written
}

/// Returns the part of a merged object that the server keeps. The server resets fields that the endpoint must not write.
fn after_reset(kind: &str, step: &Step, live: Option<&Value>, mut merged: Value) -> Value {
    let take = |merged: &mut Value, field: &str| match live.and_then(|live| live.get(field)) {
        Some(kept) => merged[field] = kept.clone(),
        None => {
            merged.as_object_mut().unwrap().remove(field);
        }
    };
    if step.subresource.as_deref() == Some("status") {
        take(&mut merged, "spec");
        take(&mut merged, "metadata");
    } else if kind == "Widget" || kind == "Deployment" {
        take(&mut merged, "status");
    } else if kind == "Service" && merged["spec"]["sessionAffinity"] != "ClientIP" {
        merged["spec"].as_object_mut().unwrap().remove("sessionAffinityConfig");
    }
    merged
}

/// Returns the lines of a message sorted: the server finds several errors in the order of a Go map.
fn in_any_order(message: &str) -> String {
    let mut lines: Vec<&str> = message.lines().collect();
    if lines.first().is_some_and(|line| line.ends_with("errors:")) {
        lines.sort_unstable();
    }
    lines.join("\n")
}

fn same_managed_fields(ours: &Value, theirs: &Value) -> Result<(), String> {
    let entries = |object: &Value| object["metadata"].get("managedFields").cloned().unwrap_or(Value::Null);
    let (ours, theirs) = (entries(ours), entries(theirs));
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("managedFields\n  ours   {ours}\n  theirs {theirs}"))
    }
}

/// Checks whether the server's object equals ours, apart from defaults.
fn covers(kind: &str, theirs: &Value, ours: &Value) -> Result<(), String> {
    fn walk(path: &str, theirs: &Value, ours: &Value, exact: bool) -> Result<(), String> {
        let differ = || Err(format!("{path}\n  ours   {ours}\n  theirs {theirs}"));
        match (theirs, ours) {
            (Value::Object(theirs), Value::Object(ours)) => {
                let in_metadata = path == ".metadata";
                for (name, ours) in ours
                    .iter()
                    .filter(|(name, _)| !(in_metadata && *name == "managedFields"))
                {
                    match theirs.get(name) {
                        Some(theirs) => walk(&format!("{path}.{name}"), theirs, ours, exact)?,
                        // A built-in kind has no nulls and no empty maps where Go has nil.
                        None if !exact
                            && (ours.is_null() || *ours == serde_json::json!({}) || *ours == serde_json::json!([])) => {
                        }
                        None => return Err(format!("{path}.{name}: ours has {ours}")),
                    }
                }
                let given = ["managedFields", "uid", "creationTimestamp"];
                let surplus = theirs
                    .keys()
                    .find(|name| !(ours.contains_key(*name) || in_metadata && given.contains(&name.as_str())));
                match surplus {
                    Some(name) if exact && name != "defaulted" && name != "protocol" => {
                        Err(format!("{path}.{name}: ours lacks {}", theirs[name]))
                    }
                    _ => Ok(()),
                }
            }
            (Value::Array(theirs), Value::Array(ours)) if theirs.len() == ours.len() => theirs
                .iter()
                .zip(ours)
                .enumerate()
                .try_for_each(|(at, (theirs, ours))| walk(&format!("{path}[{at}]"), theirs, ours, exact)),
            (theirs, ours) if theirs == ours => Ok(()),
            // The server reads 1.0 as 1, and integers beyond 64 bits as floats.
            (Value::Number(theirs), Value::Number(ours)) if theirs.as_f64() == ours.as_f64() => Ok(()),
            // A quantity is written in one way.
            (Value::String(theirs), Value::Number(ours)) if !exact && *theirs == ours.to_string() => Ok(()),
            _ if !exact && (ours.is_null()) => Ok(()),
            _ => differ(),
        }
    }
    walk("", theirs, ours, is_custom(kind))
}
