//! HorizontalPodAutoscalers in both versions of their group.
//!
//! Version 2 has all fields. Version 1 has only one metric, the utilization of the CPU. Kubernetes stores the rest in annotations, as JSON
//! with ordered fields: metrics and their values with version 1's field names, the behavior with Go's names. An annotation that can't be
//! read is ignored. The conversion is pure: an object in, an object out.

mod fields;

use serde_json::{Map, Value, json};

use crate::schema::quantity::Quantity;

use fields::{Field, Form, OBSERVED, Source, WANTED};

/// The version with all fields, in which objects are stored.
pub(super) const STORED: &str = "autoscaling/v2";
/// The version with one number.
pub(super) const OLD: &str = "autoscaling/v1";

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// The annotations of the conversion. A value from a client is never kept.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];
/// The default target utilization.
const UTILIZATION: i64 = 80;

/// Converts an autoscaler into the version `api_version`.
pub(super) fn convert(object: Value, api_version: &str) -> Value {
    let Value::Object(mut object) = object else {
        return object;
    };
    let from = object.insert("apiVersion".to_owned(), Value::from(api_version));
    match (from.as_ref().and_then(Value::as_str), api_version) {
        (Some(STORED), OLD) => {
            add_required_fields(&mut object);
            to_old(&mut object);
        }
        (Some(OLD), STORED) => {
            add_required_fields(&mut object);
            to_stored(&mut object);
        }
        _ => {}
    }
    Value::Object(object)
}

/// Adds the fields that a conversion always writes, and removes nulls. An object in the middle of an apply may lack such fields and contain
/// nulls.
fn add_required_fields(object: &mut Map<String, Value>) {
    object.values_mut().for_each(drop_nulls);
    let wanted = json!({"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0});
    for (part, always) in [("spec", wanted), ("status", json!({"desiredReplicas": 0}))] {
        fill_missing_fields(object.entry(part).or_insert(Value::Null), &always);
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn fill_missing_fields(value: &mut Value, always: &Value) {
    if value.is_null() {
        *value = always.clone();
    }
    if let (Some(value), Some(always)) = (value.as_object_mut(), always.as_object()) {
        for (field, always) in always {
            fill_missing_fields(value.entry(field.as_str()).or_insert(Value::Null), always);
        }
    }
}

/// Returns the stored form of an autoscaler that came in its version: without the conversion's annotations, or with the annotations that
/// the conversion writes.
pub(super) fn round_trip(object: Value) -> Value {
    match object.get("apiVersion").and_then(Value::as_str) {
        Some(OLD) => convert(convert(object, STORED), OLD),
        Some(STORED) => {
            let mut object = object;
            if let Some(map) = object.as_object_mut() {
                take_annotations(map);
            }
            object
        }
        _ => object,
    }
}

/// Removes the annotations that belong to conversion, and returns them.
fn take_annotations(object: &mut Map<String, Value>) -> Map<String, Value> {
    let mut taken = Map::new();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return taken;
    };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return taken;
    };
    for name in ANNOTATIONS {
        if let Some(value) = annotations.remove(name) {
            taken.insert(name.to_owned(), value);
        }
    }
    if annotations.is_empty() && !taken.is_empty() {
        metadata.remove("annotations");
    }
    taken
}

fn is_cpu(metric: &Value) -> bool {
    metric.get("type").and_then(Value::as_str) == Some("Resource")
        && metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu")
}

fn list_items<'a>(object: Option<&'a Value>, field: &str) -> &'a [Value] {
    let list = object.and_then(|object| object.get(field)).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn to_old(object: &mut Map<String, Value>) {
    take_annotations(object);
    let mut annotations = Vec::new();
    let utilization = |metric: &Value| {
        let aimed = metric.pointer("/resource/target/averageUtilization").cloned();
        aimed.filter(|_| is_cpu(metric))
    };
    let metrics = list_items(object.get("spec"), "metrics");
    let wanted = metrics.iter().find_map(utilization);
    let others: Vec<String> = metrics
        .iter()
        .filter(|metric| utilization(metric).is_none())
        .map(|metric| old_metric(metric, &WANTED))
        .collect();
    if !others.is_empty() {
        annotations.push((METRICS, format!("[{}]", others.join(","))));
    }
    let observed = list_items(object.get("status"), "currentMetrics");
    let current = observed
        .iter()
        .filter(|metric| is_cpu(metric))
        .filter_map(|metric| metric.pointer("/resource/current/averageUtilization").cloned())
        .next_back();
    if !observed.is_empty() {
        let all: Vec<String> = observed.iter().map(|metric| old_metric(metric, &OBSERVED)).collect();
        annotations.push((CURRENT_METRICS, format!("[{}]", all.join(","))));
    }
    if let Some(behavior) = object.get("spec").and_then(|spec| spec.get("behavior")) {
        annotations.push((BEHAVIOR, old_behavior(behavior)));
    }
    let conditions = list_items(object.get("status"), "conditions");
    if !conditions.is_empty() {
        let all: Vec<String> = conditions.iter().map(old_condition).collect();
        annotations.push((CONDITIONS, format!("[{}]", all.join(","))));
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("metrics");
        spec.remove("behavior");
        if let Some(wanted) = wanted {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), wanted);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("currentMetrics");
        status.remove("conditions");
        status.entry("currentReplicas").or_insert(json!(0));
        if let Some(current) = current {
            status.insert("currentCPUUtilizationPercentage".to_owned(), current);
        }
    }
    if annotations.is_empty() {
        return;
    }
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        let all = metadata.entry("annotations").or_insert_with(|| json!({}));
        for (name, text) in annotations {
            if let Some(all) = all.as_object_mut() {
                all.insert(name.to_owned(), Value::from(text));
            }
        }
    }
}

fn to_stored(object: &mut Map<String, Value>) {
    let annotations = take_annotations(object);
    // The value of an annotation, if Go's decoder can read its text.
    let text = |name: &str| -> Option<Value> { serde_json::from_str(annotations.get(name)?.as_str()?).ok() };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let cpu = |utilization: Value| {
            let target = json!({"type": "Utilization", "averageUtilization": utilization});
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        };
        let wanted = spec.remove("targetCPUUtilizationPercentage");
        let mut metrics = text(METRICS)
            .and_then(|all| new_metrics(&all, true))
            .unwrap_or_default();
        metrics.extend(wanted.map(cpu));
        if metrics.is_empty() {
            metrics.push(cpu(json!(UTILIZATION)));
        }
        spec.insert("metrics".to_owned(), Value::Array(metrics));
        if let Some(behavior) = text(BEHAVIOR).and_then(|behavior| new_behavior(&behavior)) {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let current = status.remove("currentCPUUtilizationPercentage");
        let alone = current.map(|current| {
            let current = json!({"averageUtilization": current});
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}])
        });
        let metrics = text(CURRENT_METRICS)
            .and_then(|all| new_metrics(&all, false))
            .map(Value::Array);
        status.insert("currentMetrics".to_owned(), metrics.or(alone).unwrap_or(Value::Null));
        if let Some(conditions) = text(CONDITIONS).and_then(|all| new_conditions(&all)) {
            status.insert("conditions".to_owned(), conditions);
        }
        if status.get("currentReplicas") == Some(&json!(0)) {
            status.remove("currentReplicas");
        }
    }
}

/// Writes the fields that have a value as `"name":value`, in the given order.
fn write_fields(fields: &[(&str, Option<String>)]) -> String {
    let written: Vec<String> = fields
        .iter()
        .filter_map(|(name, value)| Some(format!("{}:{}", Value::from(*name), value.as_ref()?)))
        .collect();
    format!("{{{}}}", written.join(","))
}

/// Returns a part of an object, as JSON.
fn write_part(value: &Value, field: &str) -> Option<String> {
    value.get(field).filter(|part| !part.is_null()).map(write_go_json)
}

/// Returns JSON as Go writes it, with the escapes for HTML.
fn write_go_json(value: &Value) -> String {
    let mut text = value.to_string();
    for (sign, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        if text.contains(sign) {
            text = text.replace(sign, escaped);
        }
    }
    text
}

fn or_empty(value: Option<String>) -> Option<String> {
    Some(value.unwrap_or_else(|| "\"\"".to_owned()))
}

fn old_metric(metric: &Value, sources: &[Source]) -> String {
    let mut fields = vec![("type", or_empty(write_part(metric, "type")))];
    for (source, parts) in sources {
        let found = metric.get(source).filter(|found| !found.is_null());
        fields.push((source, found.map(|found| old_source(found, parts))));
    }
    write_fields(&fields)
}

fn old_source(source: &Value, parts: &[Field]) -> String {
    let fields: Vec<(&str, Option<String>)> = parts
        .iter()
        .map(|field| {
            let found = source.pointer(field.new).filter(|found| !found.is_null());
            let written = found.map(|found| match field.form {
                Form::Text | Form::Number | Form::Amount => self::write_go_json(found),
                Form::Selector => old_selector(found),
                Form::Reference => write_fields(&[
                    ("kind", or_empty(write_part(found, "kind"))),
                    ("name", or_empty(write_part(found, "name"))),
                    (
                        "apiVersion",
                        write_part(found, "apiVersion").filter(|version| version != "\"\""),
                    ),
                ]),
            });
            let nothing = match field.form {
                Form::Amount => "\"0\"",
                Form::Reference => r#"{"kind":"","name":""}"#,
                _ => "\"\"",
            };
            (field.old, written.or_else(|| field.always.then(|| nothing.to_owned())))
        })
        .collect();
    write_fields(&fields)
}

fn old_selector(selector: &Value) -> String {
    let expressions = list_items(Some(selector), "matchExpressions");
    let expressions: Vec<String> = expressions
        .iter()
        .map(|one| {
            write_fields(&[
                ("key", or_empty(write_part(one, "key"))),
                ("operator", or_empty(write_part(one, "operator"))),
                ("values", write_part(one, "values")),
            ])
        })
        .collect();
    let expressions = (!expressions.is_empty()).then(|| format!("[{}]", expressions.join(",")));
    write_fields(&[
        ("matchLabels", write_part(selector, "matchLabels")),
        ("matchExpressions", expressions),
    ])
}

/// Writes the behavior with the names of the server's internal types. A missing value is null.
fn old_behavior(behavior: &Value) -> String {
    let null = |value: Option<String>| Some(value.unwrap_or_else(|| "null".to_owned()));
    let rules = |direction: &str| {
        let rules = behavior.get(direction).filter(|rules| !rules.is_null())?;
        let policies: Vec<String> = list_items(Some(rules), "policies")
            .iter()
            .map(|policy| {
                write_fields(&[
                    ("Type", or_empty(write_part(policy, "type"))),
                    ("Value", write_part(policy, "value").or_else(|| Some("0".to_owned()))),
                    (
                        "PeriodSeconds",
                        write_part(policy, "periodSeconds").or_else(|| Some("0".to_owned())),
                    ),
                ])
            })
            .collect();
        let policies = rules.get("policies").map(|_| format!("[{}]", policies.join(",")));
        Some(write_fields(&[
            (
                "StabilizationWindowSeconds",
                null(write_part(rules, "stabilizationWindowSeconds")),
            ),
            ("SelectPolicy", null(write_part(rules, "selectPolicy"))),
            ("Policies", null(policies)),
            ("Tolerance", null(write_part(rules, "tolerance"))),
        ]))
    };
    write_fields(&[
        ("ScaleUp", null(rules("scaleUp"))),
        ("ScaleDown", null(rules("scaleDown"))),
    ])
}

fn old_condition(condition: &Value) -> String {
    let unless_empty = |field: &str| write_part(condition, field).filter(|text| text != "\"\"");
    write_fields(&[
        ("type", or_empty(write_part(condition, "type"))),
        ("status", or_empty(write_part(condition, "status"))),
        (
            "lastTransitionTime",
            Some(write_part(condition, "lastTransitionTime").unwrap_or_else(|| "null".to_owned())),
        ),
        ("reason", unless_empty("reason")),
        ("message", unless_empty("message")),
    ])
}

/// Reads a field of an annotation's object; the case of its name does not matter. `None` if the value has another form, which makes the
/// whole annotation unreadable.
fn read(object: &Map<String, Value>, name: &str, form: Form) -> Option<Option<Value>> {
    let found = object.get(name).or_else(|| {
        object
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    });
    let Some(found) = found.filter(|found| !found.is_null()) else {
        return Some(None);
    };
    let read = match form {
        Form::Text => Value::from(found.as_str()?),
        Form::Number => Value::from(i32::try_from(found.as_i64()?).ok()?),
        Form::Amount => {
            let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            Value::from(Quantity::parse(&text).ok()?.canonical())
        }
        Form::Selector | Form::Reference => Value::Object(found.as_object()?.clone()),
    };
    Some(Some(read))
}

/// Writes a value at a pointer of two steps at most, making the object on the way.
fn set_at_pointer(object: &mut Map<String, Value>, pointer: &str, value: Value) {
    let pointer = pointer.trim_start_matches('/');
    match pointer.split_once('/') {
        Some((outer, inner)) => {
            let outer = object.entry(outer).or_insert_with(|| json!({}));
            if let Some(outer) = outer.as_object_mut() {
                outer.insert(inner.to_owned(), value);
            }
        }
        None => {
            object.insert(pointer.to_owned(), value);
        }
    }
}

/// Returns the metrics of an annotation; `None` if it can't be read.
fn new_metrics(annotation: &Value, wanted: bool) -> Option<Vec<Value>> {
    if annotation.is_null() {
        return Some(Vec::new());
    }
    annotation
        .as_array()?
        .iter()
        .map(|metric| new_metric(metric, wanted))
        .collect()
}

fn new_metric(metric: &Value, wanted: bool) -> Option<Value> {
    let old = metric.as_object()?;
    let mut new = Map::new();
    new.insert(
        "type".to_owned(),
        read(old, "type", Form::Text)?.unwrap_or_else(|| json!("")),
    );
    for (source, parts) in if wanted { &WANTED } else { &OBSERVED } {
        let Some(found) = old.get(*source).filter(|found| !found.is_null()) else {
            continue;
        };
        let found = found.as_object()?;
        let mut made = Map::new();
        made.insert(if wanted { "target" } else { "current" }.to_owned(), json!({}));
        for field in *parts {
            let nothing = || match field.form {
                Form::Amount => json!("0"),
                Form::Reference => json!({"kind": "", "name": ""}),
                _ => json!(""),
            };
            let value = read(found, field.old, field.form)?;
            if let Some(value) = value.or_else(|| field.always.then(nothing)) {
                set_at_pointer(&mut made, field.new, value);
            }
        }
        if wanted {
            set_target_type(source, &mut made);
        }
        new.insert((*source).to_owned(), Value::Object(made));
    }
    Some(Value::Object(new))
}

/// Sets which number of a target counts. Version 1 does not say it explicitly.
fn set_target_type(source: &str, made: &mut Map<String, Value>) {
    let Some(target) = made.get_mut("target").and_then(Value::as_object_mut) else {
        return;
    };
    let has = |field: &str| target.contains_key(field);
    let kind = match source {
        "object" if has("averageValue") => {
            // The field always exists, and 0 in it means nothing beside the other field.
            if target.get("value") == Some(&json!("0")) {
                target.remove("value");
            }
            "AverageValue"
        }
        "object" => "Value",
        "external" if has("value") => "Value",
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    };
    target.insert("type".to_owned(), json!(kind));
}

fn new_behavior(annotation: &Value) -> Option<Value> {
    let old = annotation.as_object()?;
    let mut new = Map::new();
    for (from, to) in [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")] {
        let Some(Value::Object(rules)) = read(old, from, Form::Reference)? else {
            continue;
        };
        let mut made = Map::new();
        for (from, to, form) in [
            ("StabilizationWindowSeconds", "stabilizationWindowSeconds", Form::Number),
            ("SelectPolicy", "selectPolicy", Form::Text),
            ("Tolerance", "tolerance", Form::Amount),
        ] {
            if let Some(value) = read(&rules, from, form)? {
                made.insert(to.to_owned(), value);
            }
        }
        let policies = rules.iter().find(|(key, _)| key.eq_ignore_ascii_case("Policies"));
        if let Some((_, policies)) = policies.filter(|(_, policies)| !policies.is_null()) {
            let policies = policies
                .as_array()?
                .iter()
                .map(new_policy)
                .collect::<Option<Vec<Value>>>()?;
            made.insert("policies".to_owned(), Value::Array(policies));
        }
        new.insert(to.to_owned(), Value::Object(made));
    }
    (!new.is_empty()).then_some(Value::Object(new))
}

fn new_policy(policy: &Value) -> Option<Value> {
    let policy = policy.as_object()?;
    Some(json!({
        "type": read(policy, "Type", Form::Text)?.unwrap_or_else(|| json!("")),
        "value": read(policy, "Value", Form::Number)?.unwrap_or_else(|| json!(0)),
        "periodSeconds": read(policy, "PeriodSeconds", Form::Number)?.unwrap_or_else(|| json!(0)),
    }))
}

fn new_conditions(annotation: &Value) -> Option<Value> {
    let mut all = Vec::new();
    for condition in annotation.as_array()? {
        let condition = condition.as_object()?;
        let mut made = Map::new();
        for (field, always) in [("type", true), ("status", true), ("reason", false), ("message", false)] {
            let found = read(condition, field, Form::Text)?;
            if let Some(text) = found.or_else(|| always.then(|| json!(""))) {
                made.insert(field.to_owned(), text);
            }
        }
        let time = read(condition, "lastTransitionTime", Form::Text)?;
        made.insert("lastTransitionTime".to_owned(), time.unwrap_or(Value::Null));
        all.push(Value::Object(made));
    }
    Some(Value::Array(all))
}
