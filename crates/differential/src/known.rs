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
    if status(want) == status(got) && want.get("warnings") == got.get("warnings") {
        // The same complaints, in another order or more than once, as Go's maps and repeated checks have it.
        let (want_causes, got_causes) = (causes(want), causes(got));
        if !want_causes.is_empty() && want_causes == got_causes && only_in_causes(&found) {
            return Verdict::Same;
        }
        // What a patch made of the object is not repeated.
        let of_patch = |causes: &[(String, String)]| causes.iter().any(|(field, _)| field == "patch");
        if of_patch(&want_causes) && of_patch(&got_causes) && only_in_causes(&found) {
            return Verdict::Same;
        }
        // Of several faults against a schema, which one is told first is left to chance there.
        let untyped = "failed to create typed patch object";
        if want_message.starts_with(untyped) && got_message.starts_with(untyped) && only_in_causes(&found) {
            return Verdict::Same;
        }
    }
    // A refusal that is sent back as if it were the object: the words for how it does not fit are a parser's.
    let no_object = "Status in version \"v1\" cannot be handled";
    if status(want) == status(got) && want_message.starts_with(no_object) && got_message.starts_with(no_object) {
        return Verdict::Same;
    }
    if status(want) == 500 && want_message.contains("to convert CR to an invalid group/version: autoscaling/v1") {
        return Verdict::Ends;
    }
    // A Job gets the labels of its Pods when it is read for the first time, and the first write stores them.
    if step.path.contains("/jobs") && status(want) == status(got) && only_at(&found, "/body/metadata/resourceVersion") {
        return Verdict::Ends;
    }
    Verdict::Differs(found)
}

/// Field and message of each cause, sorted, each once.
fn causes(answer: &Value) -> Vec<(String, String)> {
    let causes = answer.pointer("/body/details/causes").and_then(Value::as_array);
    let text = |cause: &Value, key: &str| cause.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut causes: Vec<(String, String)> = causes
        .into_iter()
        .flatten()
        // Behind a line feed is a picture of what changed, in Go's names for it.
        .map(|cause| {
            (
                text(cause, "field"),
                text(cause, "message").split('\n').next().unwrap_or_default().to_owned(),
            )
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
