//! Cells of workloads.

use jiff::Timestamp;
use serde_json::Value;

use super::cells::{NONE, age, containers, labels, list, number, or, selector, text};
use super::duration::{human_duration, since};
use crate::schema::autoscaler::{STORED, convert};

const TEMPLATE: &str = "/spec/template/spec/containers";

fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE);
    let ready = format!(
        "{}/{}",
        number(object, "/status/readyReplicas"),
        number(object, "/spec/replicas")
    );
    let selected = selector(object, "/spec/selector");
    vec![
        name(object),
        ready.into(),
        number(object, "/status/updatedReplicas").into(),
        number(object, "/status/availableReplicas").into(),
        age(object, now),
        names,
        images,
        // A Deployment's selector is printed by another function, to which nothing is the empty text.
        if selected == NONE {
            Value::from("")
        } else {
            selected.into()
        },
    ]
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE);
    let plain = object
        .pointer("/spec/selector")
        .is_some_and(|found| found.get("matchLabels").is_none() && found.get("matchExpressions").is_none());
    vec![
        name(object),
        number(object, "/spec/replicas").into(),
        number(object, "/status/replicas").into(),
        number(object, "/status/readyReplicas").into(),
        age(object, now),
        names,
        images,
        // A ReplicationController's selector is a map.
        if plain {
            labels(object, "/spec/selector")
        } else {
            selector(object, "/spec/selector")
        }
        .into(),
    ]
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE);
    let ready = format!(
        "{}/{}",
        number(object, "/status/readyReplicas"),
        number(object, "/spec/replicas")
    );
    vec![name(object), ready.into(), age(object, now), names, images]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE);
    let status = |field: &str| Value::from(number(object, &format!("/status/{field}")));
    vec![
        name(object),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        labels(object, "/spec/template/spec/nodeSelector").into(),
        age(object, now),
        names,
        images,
        selector(object, "/spec/selector").into(),
    ]
}

pub(super) fn revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(object, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    let owner = owner.map_or(NONE.to_owned(), |owner| {
        let version = text(owner, "/apiVersion");
        let kind = text(owner, "/kind").to_lowercase();
        let kind = version
            .split_once('/')
            .map_or(kind.clone(), |(group, _)| format!("{kind}.{group}"));
        format!("{kind}/{}", text(owner, "/name"))
    });
    vec![
        name(object),
        owner.into(),
        number(object, "/revision").into(),
        age(object, now),
    ]
}

pub(super) fn pod_template(object: &Value) -> Vec<Value> {
    let [names, images] = containers(object, "/template/spec/containers");
    vec![
        name(object),
        names,
        images,
        labels(object, "/template/metadata/labels").into(),
    ]
}

pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = number(object, "/status/succeeded");
    let parallelism = number(object, "/spec/parallelism");
    let completions = match object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let time = |pointer: &str| text(object, pointer).parse::<Timestamp>().ok();
    let duration = match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(now).as_second() - start.as_second()),
    };
    let has = |kind: &str| {
        let found = |condition: &&Value| text(condition, "/type") == kind && text(condition, "/status") == "True";
        list(object, "/status/conditions")
            .iter()
            .any(|condition| found(&condition))
    };
    let deleted = !text(object, "/metadata/deletionTimestamp").is_empty();
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if deleted {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|kind| has(kind))
            .unwrap_or("Running")
    };
    let [names, images] = containers(object, TEMPLATE);
    vec![
        name(object),
        status.into(),
        completions.into(),
        duration.into(),
        age(object, now),
        names,
        images,
        selector(object, "/spec/selector").into(),
    ]
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let last = text(object, "/status/lastScheduleTime");
    let last = if last.is_empty() {
        NONE.to_owned()
    } else {
        since(last, now)
    };
    let suspended = match object.pointer("/spec/suspend") {
        Some(Value::Bool(true)) => "True",
        Some(Value::Bool(false)) => "False",
        _ => "<unset>",
    };
    let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec/containers");
    vec![
        name(object),
        text(object, "/spec/schedule").into(),
        or(text(object, "/spec/timeZone"), NONE).into(),
        suspended.into(),
        list(object, "/status/active").len().into(),
        last.into(),
        age(object, now),
        names,
        images,
        selector(object, "/spec/jobTemplate/spec/selector").into(),
    ]
}

pub(super) fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    // What is shown is what the version with all metrics says.
    let object = &convert(object.clone(), STORED);
    let reference = format!(
        "{}/{}",
        text(object, "/spec/scaleTargetRef/kind"),
        text(object, "/spec/scaleTargetRef/name")
    );
    let least = object.pointer("/spec/minReplicas").and_then(Value::as_i64);
    vec![
        name(object),
        reference.into(),
        targets(object).into(),
        least.map_or("<unset>".to_owned(), |least| least.to_string()).into(),
        number(object, "/spec/maxReplicas").into(),
        number(object, "/status/currentReplicas").into(),
        age(object, now),
    ]
}

fn targets(object: &Value) -> String {
    let metrics = list(object, "/spec/metrics");
    if metrics.is_empty() {
        return NONE.to_owned();
    }
    let statuses = list(object, "/status/currentMetrics");
    let parts: Vec<String> = metrics
        .iter()
        .enumerate()
        .map(|(index, metric)| target(metric, statuses.get(index)))
        .collect();
    let shown = parts.get(..2).unwrap_or(&parts).join(", ");
    if parts.len() > 2 {
        format!("{shown} + {} more...", parts.len() - 2)
    } else {
        shown
    }
}

fn target(metric: &Value, status: Option<&Value>) -> String {
    let kind = text(metric, "/type");
    let mut field = kind.to_owned();
    if let Some(first) = field.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    let Some(spec) = metric.get(&field) else {
        return "<unknown type>".to_owned();
    };
    let current = status
        .and_then(|status| status.get(&field))
        .and_then(|status| status.get("current"));
    let value = |name: &str| {
        current
            .and_then(|current| current.get(name))
            .and_then(Value::as_str)
            .unwrap_or("<unknown>")
            .to_owned()
    };
    let wanted = |name: &str| spec.pointer(&format!("/target/{name}")).and_then(Value::as_str);
    if matches!(kind, "Resource" | "ContainerResource") {
        let resource = text(spec, "/name");
        if let Some(average) = wanted("averageValue") {
            return format!("{resource}: {}/{average}", value("averageValue"));
        }
        let percent = |found: Option<&Value>, other: &str| {
            found
                .and_then(Value::as_i64)
                .map_or(other.to_owned(), |number| format!("{number}%"))
        };
        let now = percent(
            current.and_then(|current| current.get("averageUtilization")),
            "<unknown>",
        );
        return format!(
            "{resource}: {now}/{}",
            percent(spec.pointer("/target/averageUtilization"), "<auto>")
        );
    }
    match (wanted("averageValue"), kind) {
        (Some(average), "Pods") => format!("{}/{average}", value("averageValue")),
        (Some(average), _) => format!("{}/{average} (avg)", value("averageValue")),
        (None, _) => format!("{}/{}", value("value"), wanted("value").unwrap_or("0")),
    }
}

pub(super) fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let state = PodState::of(object);
    let mut restarts = state.restarts.to_string();
    if state.restarts != 0 && !state.last_restart.is_empty() {
        restarts = format!("{} ({} ago)", state.restarts, since(&state.last_restart, now));
    }
    let gates = list(object, "/spec/readinessGates");
    let conditions = list(object, "/status/conditions");
    let open = gates.iter().filter(|gate| {
        let wanted = text(gate, "/conditionType");
        conditions
            .iter()
            .find(|one| text(one, "/type") == wanted)
            .is_some_and(|one| text(one, "/status") == "True")
    });
    let gates = if gates.is_empty() {
        NONE.to_owned()
    } else {
        format!("{}/{}", open.count(), gates.len())
    };
    let address = list(object, "/status/podIPs")
        .first()
        .map_or("", |address| text(address, "/ip"));
    vec![
        name(object),
        format!("{}/{}", state.ready, state.containers).into(),
        state.reason.into(),
        restarts.into(),
        age(object, now),
        or(address, NONE).into(),
        or(text(object, "/spec/nodeName"), NONE).into(),
        or(text(object, "/status/nominatedNodeName"), NONE).into(),
        gates.into(),
    ]
}

/// What the containers' statuses add up to.
struct PodState {
    ready: usize,
    containers: usize,
    reason: String,
    restarts: i64,
    last_restart: String,
}

impl PodState {
    fn of(pod: &Value) -> Self {
        let phase = text(pod, "/status/phase");
        let conditions = list(pod, "/status/conditions");
        let mut state = Self {
            ready: 0,
            containers: list(pod, "/spec/containers").len(),
            reason: or(text(pod, "/status/reason"), phase).to_owned(),
            restarts: 0,
            last_restart: String::new(),
        };
        if conditions
            .iter()
            .any(|one| text(one, "/type") == "PodScheduled" && text(one, "/reason") == "SchedulingGated")
        {
            "SchedulingGated".clone_into(&mut state.reason);
        }
        let restartable = |name: &str| {
            let found = list(pod, "/spec/initContainers")
                .iter()
                .find(|one| text(one, "/name") == name);
            found.is_some_and(|one| text(one, "/restartPolicy") == "Always")
        };
        state.containers += list(pod, "/spec/initContainers")
            .iter()
            .filter(|one| text(one, "/restartPolicy") == "Always")
            .count();
        let mut sidecars = (0, String::new());
        let initializing = state.initialize(pod, &restartable, &mut sidecars);
        let initialized = conditions
            .iter()
            .any(|one| text(one, "/type") == "Initialized" && text(one, "/status") == "True");
        if !initializing || initialized {
            (state.restarts, state.last_restart) = sidecars;
            state.run(pod);
        }
        if !text(pod, "/metadata/deletionTimestamp").is_empty() {
            if text(pod, "/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut state.reason);
            } else if !matches!(phase, "Failed" | "Succeeded") {
                "Terminating".clone_into(&mut state.reason);
            }
        }
        state
    }

    /// Goes through the init containers; whether one of them is not through yet.
    fn initialize(&mut self, pod: &Value, restartable: &dyn Fn(&str) -> bool, sidecars: &mut (i64, String)) -> bool {
        for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.count_restarts(status);
            let sidecar = restartable(text(status, "/name"));
            if sidecar {
                sidecars.0 += number(status, "/restartCount");
                let finished = text(status, "/lastState/terminated/finishedAt");
                if finished > sidecars.1.as_str() {
                    finished.clone_into(&mut sidecars.1);
                }
            }
            let ended = status.pointer("/state/terminated");
            if ended.is_some_and(|ended| number(ended, "/exitCode") == 0) {
                continue;
            }
            if sidecar && status.get("started") == Some(&Value::Bool(true)) {
                self.ready += usize::from(status.get("ready") == Some(&Value::Bool(true)));
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.reason = match ended {
                Some(ended) => format!("Init:{}", ending(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", list(pod, "/spec/initContainers").len()),
            };
            return true;
        }
        false
    }

    fn run(&mut self, pod: &Value) {
        let mut running = false;
        let mut error = String::new();
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(ended) = status.pointer("/state/terminated") {
                self.reason = ending(ended);
                if number(ended, "/exitCode") != 0 {
                    error.clone_from(&self.reason);
                }
            } else if status.get("ready") == Some(&Value::Bool(true)) && status.pointer("/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            let ready = list(pod, "/status/conditions")
                .iter()
                .any(|one| text(one, "/type") == "Ready" && text(one, "/status") == "True");
            if running && ready {
                "Running".clone_into(&mut self.reason);
            } else if !error.is_empty() {
                self.reason = error;
            } else if running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += number(status, "/restartCount");
        let finished = text(status, "/lastState/terminated/finishedAt");
        if finished > self.last_restart.as_str() {
            finished.clone_into(&mut self.last_restart);
        }
    }
}

fn ending(ended: &Value) -> String {
    let reason = text(ended, "/reason");
    match (reason, number(ended, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(ended, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        _ => reason.to_owned(),
    }
}
