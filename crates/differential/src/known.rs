//! Intended differences, each with its reason in docs/reference/differences-from-kubernetes.md. A rule accepts only the exact place that differs, and no more of the
//! answer.

use serde_json::Value;
use tenure_testkit::exchange::Step;

/// The result of comparing one answer.
pub(crate) enum Verdict {
    /// The answers are equal where they have to be.
    Same,
    /// The answers differ on purpose, and so will all following ones: the story ends here.
    Ends,
    /// The answers differ.
    Differs(Vec<(String, Value, Value)>),
}

/// Decides about the differences of two answers.
pub(crate) fn judge_differences(step: &Step, want: &Value, got: &Value, found: Vec<(String, Value, Value)>) -> Verdict {
    if found.is_empty() {
        return Verdict::Same;
    }
    let message = |answer: &Value| {
        answer
            .pointer("/body/message")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let status = |answer: &Value| answer.get("status").and_then(Value::as_u64).unwrap_or_default();
    let (want_message, got_message) = (message(want), message(got));
    let body = step
        .edit
        .as_ref()
        .map_or_else(|| step.body.to_string(), |edit| edit.merge.to_string());
    if status(want) == status(got) && want.get("warnings") == got.get("warnings") {
        // The same causes in another order or repeated, as Go's maps and repeated checks produce them.
        let (want_causes, got_causes) = (list_causes(want), list_causes(got));
        if !want_causes.is_empty() && want_causes == got_causes && only_in_causes(&found) {
            return Verdict::Same;
        }
        // The result of a patch is not repeated here. With it, some uids are missing, from which the names of later uids count.
        let of_patch = |causes: &[(String, String)]| causes.iter().any(|(field, _)| field == "patch");
        if of_patch(&want_causes) && of_patch(&got_causes) && only_in_causes(&found) {
            return if want_message.contains("<uid:") || want_message.contains("<rv:") {
                Verdict::Ends
            } else {
                Verdict::Same
            };
        }
        // With several schema violations, the real server reports any of them first.
        let untyped = "failed to create typed patch object";
        if want_message.starts_with(untyped) && got_message.starts_with(untyped) && only_in_causes(&found) {
            return Verdict::Same;
        }
    }
    // A refusal was sent back as the object: the message is a parser's description of the mismatch.
    let no_object = "Status in version ";
    if status(want) == status(got) && want_message.starts_with(no_object) && got_message.starts_with(no_object) {
        return Verdict::Same;
    }
    if status(want) == 500 && want_message.contains("to convert CR to an invalid group/version: autoscaling/v1") {
        return Verdict::Ends;
    }
    // Answers are only in JSON.
    if status(want) == 406 && status(got) == 406 && want_message.contains("application/yaml") {
        return Verdict::Same;
    }
    // Here the version is checked before the writer's rights.
    let outdated = ["strconv.ParseUint", "Operation cannot be fulfilled"];
    if status(want) == 403
        && want_message.contains("attempting to grant RBAC permissions not currently held")
        && outdated.iter().any(|start| got_message.starts_with(start))
    {
        return Verdict::Ends;
    }
    // Here a Scale without a number has no number to remove.
    let takes_number = body.contains("\"op\":\"remove\"") && body.contains("\"path\":\"/spec/replicas\"");
    if status(want) == 200 && status(got) == 422 && takes_number && step.path.contains("/scale") {
        return Verdict::Ends;
    }
    // An object with duplicate keys can't be converted to another version, which the real server reports in the middle of the conversion.
    if status(want) == 500
        && want_message.contains(": duplicate entries for key [")
        && got_message.ends_with(&want_message)
    {
        return Verdict::Same;
    }
    // A Secret's body is never repeated here.
    let unrecognized = "the object provided is unrecognized (must be of type Secret)";
    let without_body = |message: &str| message.rsplit_once(" (").map(|(reason, _)| reason.to_owned());
    if status(want) == 400
        && want_message.starts_with(unrecognized)
        && without_body(&want_message) == without_body(&got_message)
        && only_at(&found, "/body/message")
    {
        return Verdict::Same;
    }
    // An empty map counts as no map here, also in a comparison.
    let emptied = ["\"data\":{}", "\"binaryData\":{}"]
        .iter()
        .any(|field| body.contains(field));
    if status(want) == 422
        && want_message.contains("field is immutable when `immutable` is set")
        && status(got) == 200
        && emptied
    {
        return Verdict::Ends;
    }
    // Of a duplicate key, only the last value counts here.
    let twice = step
        .body
        .as_str()
        .is_some_and(|text| text.contains("\"data\":{\"a\":\"0\""));
    if status(want) == 400 && want_message.ends_with("illegal base64 data at input byte 0") && twice {
        return Verdict::Ends;
    }
    // Some objects are stored in another form than they are read in, and the first write stores them again: a Job gets the labels of its Pods when it is read, a claim
    // its phase, and a custom resource loses its empty and unknown fields.
    let stored_otherwise = ["/jobs/", "/persistentvolumeclaims/", "/differential.tenure.dev/"];
    if stored_otherwise.iter().any(|place| step.path.contains(place))
        && matches!(step.method.as_str(), "PUT" | "PATCH")
        && status(want) == 200
        && status(got) == 200
        && only_at(&found, "/body/metadata/resourceVersion")
    {
        return Verdict::Ends;
    }
    // There, an atomic list counts as changed if a quantity in it is written differently.
    if status(want) == status(got)
        && ["/limitranges/", "/horizontalpodautoscalers/"]
            .iter()
            .any(|place| step.path.contains(place))
        && UNUSUAL_QUANTITIES.iter().any(|quantity| body.contains(quantity))
        && found.iter().all(|(path, ..)| {
            path.starts_with("/body/metadata/managedFields") || path == "/body/metadata/resourceVersion"
        })
    {
        return Verdict::Ends;
    }
    Verdict::Differs(found)
}

/// The quantities in the data of this suite that Kubernetes prints differently.
const UNUSUAL_QUANTITIES: [&str; 4] = ["\"1024Ki\"", "\"1000m\"", "\"2000m\"", "\"1024Mi\""];

/// Returns field and message of each cause, sorted and without duplicates.
fn list_causes(answer: &Value) -> Vec<(String, String)> {
    let causes = answer.pointer("/body/details/causes").and_then(Value::as_array);
    let text = |cause: &Value, key: &str| cause.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut causes: Vec<(String, String)> = causes
        .into_iter()
        .flatten()
        .map(|cause| {
            let (field, message) = (text(cause, "field"), text(cause, "message"));
            // After a line feed follows a diff with Go's names.
            let mut message = message.split('\n').next().unwrap_or_default().to_owned();
            // And a message about an immutable template contains the template.
            if matches!(field.as_str(), "spec.template" | "spec.template.spec")
                && let Some((_, detail)) = message.rsplit_once("}: ")
            {
                message = detail.to_owned();
            }
            // A list or a map that was sent empty is shown as such.
            let message = message.replace("Invalid value: []: ", "Invalid value: null: ");
            let message = message.replace("Invalid value: {}: ", "Invalid value: null: ");
            let message = message.replace("Unsupported value: {}: ", "Unsupported value: null: ");
            (field, message)
        })
        .collect();
    causes.sort();
    causes.dedup();
    causes
}

fn only_in_causes(found: &[(String, Value, Value)]) -> bool {
    found
        .iter()
        .all(|(path, ..)| path == "/body/message" || path.starts_with("/body/details/causes"))
}

fn only_at(found: &[(String, Value, Value)], place: &str) -> bool {
    found.iter().all(|(path, ..)| path == place)
}
