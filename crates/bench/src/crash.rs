//! `kill -9` under write load, many times. After each start, every acknowledged write exists, and revisions only grew. Watchers that resume have seen every acknowledged
//! change, once and in order. The first violation ends the run with an error that names the loss.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::load::{Connection, Target};
use crate::process::ControlPlane;
use crate::report::Report;

const WRITERS: usize = 6;
const WATCHERS: usize = 2;
const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// A writer keeps one of this many created objects and deletes the others.
const KEPT: usize = 10;

/// The writes that clients have sent, with their answers, to find lost writes after a kill.
#[derive(Debug, Default)]
struct Writes {
    /// By name: the revision of the last acknowledged write, and whether it was a deletion.
    acknowledged: BTreeMap<String, (u64, bool)>,
    /// By name: a write without an answer when the process was killed, and whether it was a deletion.
    on_its_way: BTreeMap<String, bool>,
    /// Acknowledged changes by revision that not every watcher has seen yet, with names.
    unseen: BTreeMap<u64, String>,
    writes: usize,
}

/// Kills and starts `times` times.
pub(crate) async fn measure(program: &Path, times: usize, report: &mut Report) -> anyhow::Result<()> {
    let mut plane = ControlPlane::start(program, &[]).await?;
    let writes = Arc::new(Mutex::new(Writes::default()));
    let mut watchers: Vec<Seen> = Vec::new();
    let mut revision = list_objects(&Target::read(&plane.kubeconfig()).await?.connect().await?)
        .await?
        .0;
    for _ in 0..WATCHERS {
        watchers.push(Seen::starting_at(revision));
    }
    let mut random = u64::from(std::process::id()) | 1;
    for round in 0..times {
        let target = Target::read(&plane.kubeconfig()).await?;
        let mut tasks = Vec::new();
        for writer in 0..WRITERS {
            let connection = target.connect().await?;
            tasks.push(tokio::spawn(write_objects(
                connection,
                format!("r{round}-w{writer}"),
                writes.clone(),
            )));
        }
        let mut following = Vec::new();
        for seen in watchers.drain(..) {
            following.push(tokio::spawn(follow_objects(target.connect().await?, seen)));
        }
        // A pseudo-random moment between 20 and 275 ms, so that rounds end at different points.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        tokio::time::sleep(Duration::from_millis(20 + random % 256)).await;
        plane.kill_and_start().await?;
        for task in tasks {
            task.await?;
        }
        for task in following {
            watchers.push(task.await??);
        }
        let target = Target::read(&plane.kubeconfig()).await?;
        let (now, objects) = list_objects(&target.connect().await?).await?;
        ensure!(now >= revision, "round {round}: revision {now} after {revision}");
        let highest = compare_objects(&writes, &objects, now).with_context(|| format!("round {round}"))?;
        revision = now.max(highest);
        // A resumed watch delivers everything up to now, in order, without a gap in the acknowledged changes.
        for seen in &mut watchers {
            catch_up(&target, seen, now)
                .await
                .with_context(|| format!("round {round}"))?;
        }
        let mut writes = lock(&writes)?;
        for (at, name) in std::mem::take(&mut writes.unseen) {
            for seen in &watchers {
                ensure!(
                    seen.events.get(&at) == Some(&name),
                    "round {round}: revision {at} of {name} was acknowledged, and a watcher that resumed missed it"
                );
            }
        }
        for seen in &mut watchers {
            seen.events.clear();
        }
    }
    let writes = lock(&writes)?.writes;
    report.add(
        format!("`kill -9` under write load, {times} times: acknowledged writes"),
        writes.to_string(),
        None,
        "",
    );
    report.add(
        "of them lost, out of order, or missed by a watcher that resumed",
        "0".to_owned(),
        None,
        "0",
    );
    Ok(())
}

fn lock(writes: &Mutex<Writes>) -> anyhow::Result<std::sync::MutexGuard<'_, Writes>> {
    writes.lock().map_err(|_| anyhow::anyhow!("a writer panicked"))
}

/// Creates, changes and deletes objects, one after the other, until the server is gone.
async fn write_objects(connection: Connection, prefix: String, writes: Arc<Mutex<Writes>>) {
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        let create = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "a".repeat(300)}});
        let change = json!({"data": {"text": "b".repeat(500)}});
        let one = format!("{PATH}/{name}");
        let mut steps = vec![
            ("POST", PATH.to_owned(), "application/json", create.to_string()),
            ("PATCH", one.clone(), "application/merge-patch+json", change.to_string()),
        ];
        if number % KEPT != 0 {
            steps.push(("DELETE", one, "", String::new()));
        }
        for (method, path, form, body) in steps {
            let deletes = method == "DELETE";
            if let Ok(mut writes) = writes.lock() {
                writes.on_its_way.insert(name.clone(), deletes);
            }
            let Ok(answer) = connection.call(method, &path, form, Bytes::from(body)).await else {
                return;
            };
            let revision = revision_of(&serde_json::from_slice(&answer).unwrap_or_default());
            let Ok(mut writes) = writes.lock() else { return };
            writes.on_its_way.remove(&name);
            writes.writes += 1;
            // The answer of a deletion has no revision.
            let before = writes.acknowledged.get(&name).map_or(0, |(revision, _)| *revision);
            writes
                .acknowledged
                .insert(name.clone(), (revision.unwrap_or(before), deletes));
            if let Some(revision) = revision {
                writes.unseen.insert(revision, name.clone());
            }
        }
    }
}

fn revision_of(object: &Value) -> Option<u64> {
    object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// Lists the objects: the list's revision, and each object's by name.
async fn list_objects(connection: &Connection) -> anyhow::Result<(u64, BTreeMap<String, u64>)> {
    let list: Value = serde_json::from_slice(&connection.get(PATH).await?)?;
    let items = list
        .get("items")
        .and_then(Value::as_array)
        .context("a list without items")?;
    let named = |item: &Value| Some((item.pointer("/metadata/name")?.as_str()?.to_owned(), revision_of(item)?));
    Ok((
        revision_of(&list).context("a list without a revision")?,
        items.iter().filter_map(named).collect(),
    ))
}

/// Compares the known writes with the stored objects.
fn compare_objects(writes: &Mutex<Writes>, objects: &BTreeMap<String, u64>, now: u64) -> anyhow::Result<u64> {
    let mut writes = lock(writes)?;
    let on_its_way = std::mem::take(&mut writes.on_its_way);
    let mut highest = 0;
    for (name, (revision, deleted)) in &writes.acknowledged {
        highest = highest.max(*revision);
        match (objects.get(name), deleted) {
            (None, true) => {}
            (Some(there), true) => bail!("the deletion of {name} was acknowledged, and it is there at {there}"),
            (None, false) if on_its_way.get(name) == Some(&true) => {}
            (None, false) => bail!("{name} was acknowledged at {revision}, and it is gone"),
            (Some(there), false) if there == revision => {}
            (Some(there), false) if there > revision && on_its_way.contains_key(name) => {}
            (Some(there), false) => bail!("{name} was acknowledged at {revision}, and it is there at {there}"),
        }
    }
    ensure!(now >= highest, "the list is at {now}, and {highest} was acknowledged");
    // Settled objects need no second check. Objects that the kill may have affected are taken as they are now.
    writes
        .acknowledged
        .retain(|name, (_, deleted)| !*deleted && objects.contains_key(name));
    for (name, revision) in &mut writes.acknowledged {
        if let Some(there) = objects.get(name) {
            revision.0 = *there;
        }
    }
    Ok(highest)
}

/// The events that a watcher has seen, and the revision from which it resumes.
#[derive(Debug)]
struct Seen {
    position: u64,
    events: BTreeMap<u64, String>,
}

impl Seen {
    fn starting_at(position: u64) -> Self {
        Self {
            position,
            events: BTreeMap::new(),
        }
    }

    fn record_event(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let event: Value = serde_json::from_slice(line)?;
        let object = event.get("object").context("an event without an object")?;
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        ensure!(kind != "ERROR", "a watcher that resumed was refused: {object}");
        let revision = revision_of(object).context("an event without a revision")?;
        if kind == "BOOKMARK" {
            ensure!(
                revision >= self.position,
                "a bookmark at {revision} after {}",
                self.position
            );
        } else {
            ensure!(
                revision > self.position,
                "an event at {revision} after {}",
                self.position
            );
            let name = object
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default();
            self.events.insert(revision, name.to_owned());
        }
        self.position = revision;
        Ok(())
    }
}

/// Watches from its last position until the connection breaks.
async fn follow_objects(connection: Connection, mut seen: Seen) -> anyhow::Result<Seen> {
    watch_objects(&connection, &mut seen, u64::MAX).await?;
    Ok(seen)
}

/// Watches from its last position until it has seen `until`.
async fn catch_up(target: &Target, seen: &mut Seen, until: u64) -> anyhow::Result<()> {
    let connection = target.connect().await?;
    // One more change, so that an event follows everything that is checked.
    let mark = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("mark-{until}")}});
    let url = format!("{PATH}/mark-{until}?fieldManager=bench&force=true");
    let form = "application/apply-patch+yaml";
    connection
        .call("PATCH", &url, form, Bytes::from(mark.to_string()))
        .await?;
    let watching = watch_objects(&connection, seen, until);
    tokio::time::timeout(Duration::from_secs(20), watching)
        .await
        .with_context(|| format!("a watcher that resumed did not come to {until}"))?
}

async fn watch_objects(connection: &Connection, seen: &mut Seen, until: u64) -> anyhow::Result<()> {
    let url = format!(
        "{PATH}?watch=true&allowWatchBookmarks=true&resourceVersion={}",
        seen.position
    );
    let Ok(mut body) = connection.send("GET", &url, "", Bytes::new()).await else {
        return Ok(());
    };
    let mut line = Vec::new();
    while seen.position < until {
        let Some(Ok(frame)) = body.frame().await else {
            return Ok(());
        };
        let Ok(data) = frame.into_data() else { continue };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.ends_with(b"\n") {
                seen.record_event(&line)?;
                line.clear();
            }
        }
    }
    Ok(())
}
