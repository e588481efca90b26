//! The controllers' loop: it reads the store's changes, passes them to the dispatcher, and runs a number of tasks.
//! The loop makes no decisions. It runs until the server ends: a watch that fell behind starts again from a snapshot.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tenure_store::{Compacted, Event, EventKind, Watcher};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dispatch::{Dispatcher, Task};
use super::expiry::last_event_time;
use super::found_objects::owner_of;
use super::object_name::ObjectName;
use super::queue::Queue;
use super::tasks::{TaskError, TaskOutcome, Worker};
use crate::authentication::ServiceAccountTokens;
use crate::keys;
use crate::long_work::StepLimiter;
use crate::registry::Registry;
use crate::stored::decode_stored;

/// How many tasks run at a time.
const AT_ONCE: usize = 32;

/// Delay between the write of a definition and the serving of its kind: the usual and the longest one.
const SERVED_WITHIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// The settings of a cluster's controllers, which choose the tasks that run.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The CA's certificate, for the ConfigMap in every namespace.
    pub(crate) ca_pem: String,
    /// Creates the tokens of Secrets.
    pub(crate) tokens: Arc<ServiceAccountTokens>,
    /// Whether stored workloads are reported as rolled out.
    pub(crate) workload_status: bool,
    /// Whether to run a kube-controller-manager's controllers, and not only a kube-apiserver's.
    pub(crate) all: bool,
}

impl Settings {
    /// Checks whether these settings include a task.
    fn includes(&self, task: &Task) -> bool {
        match task {
            Task::Expire(_) => true,
            Task::Workload(_) => self.workload_status,
            _ => self.all,
        }
    }
}

/// Starts the controllers. After `shutdown` they finish their running tasks and end.
pub(crate) fn start(registry: Registry, settings: Settings, shutdown: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(run(registry, Arc::new(settings), shutdown))
}

async fn run(registry: Registry, settings: Arc<Settings>, shutdown: CancellationToken) {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let worker = Worker {
        registry,
        settings,
        turns: StepLimiter::of_server((processors / 2).max(1)),
    };
    let mut running = JoinSet::new();
    while !shutdown.is_cancelled() {
        let mut controllers = Controllers {
            dispatcher: Dispatcher::new(worker.settings.workload_status),
            queue: Queue::default(),
            worker: worker.clone(),
        };
        match controllers.load() {
            Ok(watcher) => match controllers.follow_events(watcher, &mut running, &shutdown).await {
                End::Shutdown => break,
                End::FellBehind => tracing::warn!("the controllers fell behind the store's history and start over"),
            },
            Err(_) => {
                tracing::warn!("the store's history ended before the controllers could follow it; they start over")
            }
        }
        running.shutdown().await;
    }
    while running.join_next().await.is_some() {}
}

/// The reason why the controllers stopped following a watch.
enum End {
    Shutdown,
    FellBehind,
}

/// A finished task with its result.
type Ended = (Task, Result<TaskOutcome, TaskError>);

/// The state of the controllers' loop.
struct Controllers {
    dispatcher: Dispatcher,
    queue: Queue,
    worker: Worker,
}

impl Controllers {
    /// Reads all stored objects, and starts a watch from that revision.
    fn load(&mut self) -> Result<Watcher, Compacted> {
        let store = self.worker.registry.store();
        let snapshot = store.snapshot();
        let watcher = store.watch(keys::ALL, snapshot.revision())?;
        // Namespaces first: an object whose namespace is missing is a stray.
        let namespaces = keys::resource_prefix("", "namespaces", None);
        for (key, entry) in snapshot.range(&namespaces, None).chain(snapshot.range(keys::ALL, None)) {
            let Some(name) = ObjectName::from_key(key) else {
                continue;
            };
            if !self.dispatcher.cares_about(&name, &entry.bytes) {
                continue;
            }
            if let Ok(object) = decode_stored(entry) {
                let written = last_event_time(&object);
                self.dispatch_change(&name, &object, written);
            }
        }
        Ok(watcher)
    }

    async fn follow_events(
        &mut self,
        mut watcher: Watcher,
        running: &mut JoinSet<Ended>,
        shutdown: &CancellationToken,
    ) -> End {
        loop {
            self.start_tasks(running);
            let wake = self.next_wake();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return End::Shutdown,
                Some(ended) = running.join_next(), if !running.is_empty() => {
                    if let Ok((task, outcome)) = ended {
                        self.finish_task(task, outcome);
                    }
                }
                event = watcher.next() => match event {
                    Some(Ok(event)) => self.handle_event(&event),
                    Some(Err(_)) => return End::FellBehind,
                    None => return End::Shutdown,
                },
                () = sleep_until(wake) => {
                    self.queue.release(Instant::now());
                    for task in self.dispatcher.take_due(self.worker.registry.now()) {
                        self.queue.push(task);
                    }
                }
            }
        }
    }

    fn dispatch_change(&mut self, name: &ObjectName, object: &Value, written: Timestamp) {
        let tasks = self.dispatcher.record_change(name, object, written);
        self.push(tasks);
    }

    fn push(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            if self.worker.settings.includes(&task) {
                self.queue.push(task);
            }
        }
    }

    /// Passes a change of the store to the dispatcher, and queues the resulting tasks.
    fn handle_event(&mut self, event: &Event) {
        let Some(name) = ObjectName::from_key(&event.key) else {
            return;
        };
        let deleted = event.kind == EventKind::Delete;
        if !deleted && !self.dispatcher.cares_about(&name, &event.entry.bytes) {
            return;
        }
        let Ok(object) = decode_stored(&event.entry) else {
            return;
        };
        if deleted {
            let tasks = self.dispatcher.record_deletion(&name, &object);
            self.push(tasks);
        } else {
            let now = self.worker.registry.now();
            self.dispatch_change(&name, &object, now);
            if name.is("apiextensions.k8s.io", "customresourcedefinitions") {
                self.retry_unresolved_tasks();
            }
        }
    }

    /// Checks tasks that wait for a kind again after a short delay, as a definition is stored a moment before its
    /// kind is served.
    fn retry_unresolved_tasks(&mut self) {
        let now = Instant::now();
        for task in self.dispatcher.unresolved_tasks() {
            for delay in SERVED_WITHIN {
                if !self.worker.settings.includes(&task) {
                    continue;
                }
                self.queue.push_at(task.clone(), now + delay);
            }
        }
    }

    fn start_tasks(&mut self, running: &mut JoinSet<Ended>) {
        while self.queue.running() < AT_ONCE {
            let Some(task) = self.queue.start() else {
                return;
            };
            let dependents = owner_of(&self.worker.registry, &task)
                .map(|uid| self.dispatcher.dependents(&uid))
                .unwrap_or_default();
            running.spawn(self.worker.clone().run_task(task, dependents));
        }
    }

    /// Ends a task: records unresolved owners, logs an error, and schedules the retry of a failed task.
    fn finish_task(&mut self, task: Task, outcome: Result<TaskOutcome, TaskError>) {
        match &outcome {
            Ok(TaskOutcome::Unresolved) => {
                if let Task::Dependent(name) = &task {
                    self.dispatcher.record_unresolved(name.clone());
                }
            }
            Ok(TaskOutcome::Complete) => {
                if let Task::Dependent(name) = &task {
                    self.dispatcher.record_resolved(name);
                }
            }
            Err(TaskError::NotServed { .. }) => {
                if let Task::Dependent(name) = &task {
                    self.dispatcher.record_unresolved(name.clone());
                }
                self.queue.finish(task, false, Instant::now());
                return;
            }
            Err(TaskError::Raced) => tracing::debug!(
                ?task,
                "another write came before a controller's write, which is retried"
            ),
            // Logged at debug level: neither a user with unservable objects nor a repeated failure may fill the log.
            Err(error) if error.is_its_owners() || self.queue.has_failed(&task) => {
                tracing::debug!(%error, ?task, "a task of a controller failed and is retried");
            }
            Err(error) => tracing::warn!(%error, ?task, "a task of a controller failed and is retried"),
        }
        self.queue.finish(task, outcome.is_err(), Instant::now());
    }

    /// Returns the time of the next expiry or delayed task; `None` if there is neither.
    fn next_wake(&self) -> Option<Instant> {
        let due = self.dispatcher.next_due().map(|at| {
            let left = at.duration_since(self.worker.registry.now());
            Instant::now() + Duration::try_from(left).unwrap_or_default()
        });
        [due, self.queue.next_delayed()].into_iter().flatten().min()
    }
}

/// Sleeps until this time, or forever.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
