//! The table cells of a Pod, and whether it has finished.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::table::{cells, duration};

/// Shows the table cells of a Pod.
pub(super) fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let state = PodState::from_pod(object);
    let mut restarts = state.restarts.to_string();
    if state.restarts != 0 && !state.last_restart.is_empty() {
        restarts = format!(
            "{} ({} ago)",
            state.restarts,
            duration::format_since(&state.last_restart, now)
        );
    }
    let gates = cells::list_items(object, "/spec/readinessGates");
    let conditions = cells::list_items(object, "/status/conditions");
    let open = gates.iter().filter(|gate| {
        let wanted = cells::get_text(gate, "/conditionType");
        conditions
            .iter()
            .find(|one| cells::get_text(one, "/type") == wanted)
            .is_some_and(|one| cells::get_text(one, "/status") == "True")
    });
    let gates = if gates.is_empty() {
        cells::NONE.to_owned()
    } else {
        format!("{}/{}", open.count(), gates.len())
    };
    let address = cells::list_items(object, "/status/podIPs")
        .first()
        .map_or("", |address| cells::get_text(address, "/ip"));
    vec![
        cells::name_cell(object),
        format!("{}/{}", state.ready, state.containers).into(),
        state.reason.into(),
        restarts.into(),
        cells::format_age(object, now),
        cells::non_empty_or(address, cells::NONE).into(),
        cells::non_empty_or(cells::get_text(object, "/spec/nodeName"), cells::NONE).into(),
        cells::non_empty_or(cells::get_text(object, "/status/nominatedNodeName"), cells::NONE).into(),
        gates.into(),
    ]
}

/// The summary of the containers' statuses.
struct PodState {
    ready: usize,
    containers: usize,
    reason: String,
    restarts: i64,
    last_restart: String,
}

impl PodState {
    fn from_pod(pod: &Value) -> Self {
        let phase = cells::get_text(pod, "/status/phase");
        let conditions = cells::list_items(pod, "/status/conditions");
        let mut state = Self {
            ready: 0,
            containers: cells::list_items(pod, "/spec/containers").len(),
            reason: cells::non_empty_or(cells::get_text(pod, "/status/reason"), phase).to_owned(),
            restarts: 0,
            last_restart: String::new(),
        };
        if conditions.iter().any(|one| {
            cells::get_text(one, "/type") == "PodScheduled" && cells::get_text(one, "/reason") == "SchedulingGated"
        }) {
            "SchedulingGated".clone_into(&mut state.reason);
        }
        let restartable = |name: &str| {
            let found = cells::list_items(pod, "/spec/initContainers")
                .iter()
                .find(|one| cells::get_text(one, "/name") == name);
            found.is_some_and(|one| cells::get_text(one, "/restartPolicy") == "Always")
        };
        state.containers += cells::list_items(pod, "/spec/initContainers")
            .iter()
            .filter(|one| cells::get_text(one, "/restartPolicy") == "Always")
            .count();
        let mut sidecars = (0, String::new());
        let initializing = state.read_init_containers(pod, &restartable, &mut sidecars);
        let initialized = conditions
            .iter()
            .any(|one| cells::get_text(one, "/type") == "Initialized" && cells::get_text(one, "/status") == "True");
        if !initializing || initialized {
            (state.restarts, state.last_restart) = sidecars;
            state.run(pod);
        }
        if !cells::get_text(pod, "/metadata/deletionTimestamp").is_empty() {
            if cells::get_text(pod, "/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut state.reason);
            } else if !matches!(phase, "Failed" | "Succeeded") {
                "Terminating".clone_into(&mut state.reason);
            }
        }
        state
    }

    /// Processes the init containers. Returns whether one of them has not finished.
    fn read_init_containers(
        &mut self,
        pod: &Value,
        restartable: &dyn Fn(&str) -> bool,
        sidecars: &mut (i64, String),
    ) -> bool {
        for (index, status) in cells::list_items(pod, "/status/initContainerStatuses")
            .iter()
            .enumerate()
        {
            self.count_restarts(status);
            let sidecar = restartable(cells::get_text(status, "/name"));
            if sidecar {
                sidecars.0 += cells::get_number(status, "/restartCount");
                let finished = cells::get_text(status, "/lastState/terminated/finishedAt");
                if finished > sidecars.1.as_str() {
                    finished.clone_into(&mut sidecars.1);
                }
            }
            let ended = status.pointer("/state/terminated");
            if ended.is_some_and(|ended| cells::get_number(ended, "/exitCode") == 0) {
                continue;
            }
            if sidecar && status.get("started") == Some(&Value::Bool(true)) {
                self.ready += usize::from(status.get("ready") == Some(&Value::Bool(true)));
                continue;
            }
            let waiting = cells::get_text(status, "/state/waiting/reason");
            self.reason = match ended {
                Some(ended) => format!("Init:{}", format_exit(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", cells::list_items(pod, "/spec/initContainers").len()),
            };
            return true;
        }
        false
    }

    fn run(&mut self, pod: &Value) {
        let mut running = false;
        let mut error = String::new();
        for status in cells::list_items(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = cells::get_text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(ended) = status.pointer("/state/terminated") {
                self.reason = format_exit(ended);
                if cells::get_number(ended, "/exitCode") != 0 {
                    error.clone_from(&self.reason);
                }
            } else if status.get("ready") == Some(&Value::Bool(true)) && status.pointer("/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            let ready = cells::list_items(pod, "/status/conditions")
                .iter()
                .any(|one| cells::get_text(one, "/type") == "Ready" && cells::get_text(one, "/status") == "True");
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
        self.restarts += cells::get_number(status, "/restartCount");
        let finished = cells::get_text(status, "/lastState/terminated/finishedAt");
        if finished > self.last_restart.as_str() {
            finished.clone_into(&mut self.last_restart);
        }
    }
}

fn format_exit(ended: &Value) -> String {
    let reason = cells::get_text(ended, "/reason");
    match (reason, cells::get_number(ended, "/signal")) {
        ("", 0) => format!("ExitCode:{}", cells::get_number(ended, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        _ => reason.to_owned(),
    }
}

/// Returns the condition with which kubectl can hide finished Pods.
pub(super) fn row_condition(object: &Value) -> Option<Value> {
    let (reason, message) = match cells::get_text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}
