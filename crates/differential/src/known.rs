//! Differences that are kept on purpose, each with its reason in docs/reference/differences-from-kubernetes.md. Refuses to
//! allow more of an answer than the very place that differs.

use serde_json::Value;
use tenure_testkit::exchange::Step;

/// What is left of the differences of one answer.
pub(crate) enum Verdict {
    /// The answers are the same, as far as they have to be.
    Same,
    /// They differ on purpose, and so will everything that follows from them: the story ends here.
    Ends,
    /// They differ.
    Differs(Vec<(String, Value, Value)>),
}

/// Judges the differences of two answers.
pub(crate) fn judge(step: &Step, want: &Value, got: &Value, found: Vec<(String, Value, Value)>) -> Verdict {
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
        // The same complaints, in another order or more than once, as Go's maps and repeated checks have it.
        let (want_causes, got_causes) = (causes(want), causes(got));
        if !want_causes.is_empty() && want_causes == got_causes && only_in_causes(&found) {
            return Verdict::Same;
        }
        // What a patch made of the object is not repeated; and with it go uids that the names of later ones count from.
        let of_patch = |causes: &[(String, String)]| causes.iter().any(|(field, _)| field == "patch");
        if of_patch(&want_causes) && of_patch(&got_causes) && only_in_causes(&found) {
            return if want_message.contains("<uid:") || want_message.contains("<rv:") {
                Verdict::Ends
            } else {
                Verdict::Same
            };
        }
        // Of several faults against a schema, which one is told first is left to chance there.
        let untyped = "failed to create typed patch object";
        if want_message.starts_with(untyped) && got_message.starts_with(untyped) && only_in_causes(&found) {
            return Verdict::Same;
        }
    }
    // A refusal that is sent back as if it were the object: the words for how it does not fit are a parser's.
    let no_object = "Status in version ";
    if status(want) == status(got) && want_message.starts_with(no_object) && got_message.starts_with(no_object) {
        return Verdict::Same;
    }
    if status(want) == 500 && want_message.contains("to convert CR to an invalid group/version: autoscaling/v1") {
        return Verdict::Ends;
    }
    // Answers are in JSON alone.
    if status(want) == 406 && status(got) == 406 && want_message.contains("application/yaml") {
        return Verdict::Same;
    }
    // Which version is replaced is looked at before the writer's rights are.
    let outdated = ["strconv.ParseUint", "Operation cannot be fulfilled"];
    if status(want) == 403
        && want_message.contains("attempting to grant RBAC permissions not currently held")
        && outdated.iter().any(|start| got_message.starts_with(start))
    {
        return Verdict::Ends;
    }
    // A Scale that shows no number has none to take away here.
    let takes_number = body.contains("\"op\":\"remove\"") && body.contains("\"path\":\"/spec/replicas\"");
    if status(want) == 200 && status(got) == 422 && takes_number && step.path.contains("/scale") {
        return Verdict::Ends;
    }
    // An object that says something twice can't be brought into another version, which is told as it happens there.
    if status(want) == 500
        && want_message.contains(": duplicate entries for key [")
        && got_message.ends_with(&want_message)
    {
        return Verdict::Same;
    }
    // A Secret's body is repeated to nobody.
    let unrecognized = "the object provided is unrecognized (must be of type Secret)";
    let without_body = |message: &str| message.rsplit_once(" (").map(|(reason, _)| reason.to_owned());
    if status(want) == 400
        && want_message.starts_with(unrecognized)
        && without_body(&want_message) == without_body(&got_message)
        && only_at(&found, "/body/message")
    {
        return Verdict::Same;
    }
    // An empty map is none here, also where it is compared with none.
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
    // Of a value that is there twice, only the last one is looked at here.
    let twice = step
        .body
        .as_str()
        .is_some_and(|text| text.contains("\"data\":{\"a\":\"0\""));
    if status(want) == 400 && want_message.ends_with("illegal base64 data at input byte 0") && twice {
        return Verdict::Ends;
    }
    // Some objects are stored in another form than they are read in, and the first write stores them anew: a Job gets the
    // labels of its Pods when it is read, a claim its phase, and a custom resource loses what is empty or unknown in it.
    let stored_otherwise = ["/jobs/", "/persistentvolumeclaims/", "/differential.tenure.dev/"];
    if stored_otherwise.iter().any(|place| step.path.contains(place))
        && matches!(step.method.as_str(), "PUT" | "PATCH")
        && status(want) == 200
        && status(got) == 200
        && only_at(&found, "/body/metadata/resourceVersion")
    {
        return Verdict::Ends;
    }
    // A list that is one value is another one there if a quantity in it is written in another way.
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

/// The quantities in the data of this suite that Kubernetes prints in another way.
const UNUSUAL_QUANTITIES: [&str; 4] = ["\"1024Ki\"", "\"1000m\"", "\"2000m\"", "\"1024Mi\""];

/// Field and message of each cause, sorted, each once.
fn causes(answer: &Value) -> Vec<(String, String)> {
    let causes = answer.pointer("/body/details/causes").and_then(Value::as_array);
    let text = |cause: &Value, key: &str| cause.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut causes: Vec<(String, String)> = causes
        .into_iter()
        .flatten()
        .map(|cause| {
            let (field, message) = (text(cause, "field"), text(cause, "message"));
            // Behind a line feed is a picture of what changed, in Go's names for it.
            let mut message = message.split('\n').next().unwrap_or_default().to_owned();
            // And so is a template that may not change.
            if matches!(field.as_str(), "spec.template" | "spec.template.spec")
                && let Some((_, detail)) = message.rsplit_once("}: ")
            {
                message = detail.to_owned();
            }
            // A list or a map that was sent empty is shown so.
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
