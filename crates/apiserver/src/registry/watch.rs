//! Watches: the initial state on request, then changes filtered by the selectors, with bookmarks in between.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tenure_store::{Compacted, Entry, Event, EventKind, Watcher};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use futures::FutureExt as _;

use super::list::{Item, ListOptions, PageReader, without_waiting};
use super::{Operation, Registry, Selectors, revision};
use crate::contents::is_verbatim;
use crate::conversion::BATCH;
use crate::http::ApiError;
use crate::long_work::{StepLimiter, run_part};

/// Interval of bookmarks for a client that asked for them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Time between the last bookmark and the end of the watch.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Shortest pause of a watch before it calls a failed conversion webhook again. The pauses grow.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
/// Longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Bytes of initial objects that are read at once.
const READ: usize = 64 * 1024;
/// Bytes of initial objects that are read before the answer begins.
const LITTLE: usize = 16 * 1024;

/// Options of a watch request.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchOptions {
    pub(crate) selectors: Selectors,
    pub(crate) resource_version: Option<String>,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    /// Permits to read the initial objects; `None` for a user that is not counted.
    pub(crate) turns: Option<StepLimiter>,
}

/// A line of a watch stream: a change, a bookmark or the final error.
#[derive(Debug, Clone)]
pub(crate) enum WatchFrame {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    Change { kind: &'static str, item: Item },
    /// All changes up to this revision were sent.
    Bookmark { revision: u64, initial_events_end: bool },
    /// The error that ends the watch.
    Error(ApiError),
}

/// A running watch: it turns changes of the store into the frames of one client.
#[derive(Debug)]
pub(crate) struct WatchStream {
    registry: Registry,
    op: Arc<Operation>,
    selectors: Selectors,
    /// The initial objects that are still to be sent, and their revision.
    initial: Option<(PageReader, u64)>,
    turns: Option<StepLimiter>,
    watcher: Option<Watcher>,
    /// A change that must be translated away from this thread.
    postponed: Option<Arc<Event>>,
    pending: VecDeque<WatchFrame>,
    bookmarks: bool,
    next_bookmark: Instant,
    last_bookmark: Option<Instant>,
    end: Instant,
    /// Timer for the next bookmark, or for the end.
    alarm: Pin<Box<Sleep>>,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Registry {
    /// Starts a watch. Faults of its options are errors; a revision that is too old becomes the watch's first and
    /// last frame.
    pub(crate) async fn watch(
        &self,
        op: Operation,
        options: WatchOptions,
        shutdown: CancellationToken,
    ) -> Result<WatchStream, ApiError> {
        let wanted = revision::parse(options.resource_version.as_deref()).map_err(|error| {
            // A watch gives no reason for this error, unlike a list.
            let message = error
                .message
                .trim_start_matches("invalid resource version: ")
                .to_owned();
            ApiError::new(500, "", message)
        })?;
        let initial = options.send_initial_events == Some(true)
            || (options.send_initial_events.is_none() && matches!(wanted, None | Some(0)));
        let op = Arc::new(op);
        let mut pending = VecDeque::new();
        let (from, initial) = if initial {
            if let Some(wanted) = wanted.filter(|wanted| *wanted > 0) {
                revision::not_older_than(self.store(), wanted).await?;
            }
            let list = ListOptions {
                selectors: options.selectors.clone(),
                ..ListOptions::default()
            };
            let mut page = self.list(&op, &list).await?;
            // Faults of the first objects are an error of the request, and not a frame of the watch.
            let converted = page.items.are_converted_elsewhere();
            let first = page.items.read_batch(if converted { BATCH.1 } else { LITTLE }).await?;
            pending.extend(first.into_iter().flatten().map(make_added_frame));
            page.items.limit_held_bytes();
            (page.revision, Some((page.items, page.revision)))
        } else {
            match wanted {
                Some(wanted) if wanted > 0 => (wanted, None),
                _ => (self.store().revision(), None),
            }
        };
        let prefix = op.resource.prefix(op.namespace.as_deref());
        let watcher = match self.store().watch(prefix, from) {
            Ok(watcher) => Some(watcher),
            Err(compacted) => {
                pending.push_back(WatchFrame::Error(too_old(compacted)));
                None
            }
        };
        let now = Instant::now();
        let end = now + options.timeout;
        Ok(WatchStream {
            registry: self.clone(),
            op,
            selectors: options.selectors,
            initial,
            turns: options.turns,
            watcher,
            postponed: None,
            pending,
            bookmarks: options.bookmarks,
            next_bookmark: now + BOOKMARK_EVERY,
            last_bookmark: end.checked_sub(BOOKMARK_BEFORE_END).filter(|at| *at > now),
            end,
            alarm: Box::pin(tokio::time::sleep_until(end)),
            shutdown: Box::pin(shutdown.cancelled_owned()),
        })
    }
}

impl WatchStream {
    /// Returns the operation of the watch.
    pub(crate) fn operation(&self) -> &Arc<Operation> {
        &self.op
    }

    /// Returns the permits to compute large frames; `None` for a user that is not counted.
    pub(crate) fn step_limiter(&self) -> Option<&StepLimiter> {
        self.turns.as_ref()
    }

    /// Returns the next frame without waiting, so that a burst is sent as one piece.
    pub(crate) fn next_ready(&mut self) -> Option<WatchFrame> {
        loop {
            if let Some(frame) = self.pending.pop_front() {
                return Some(frame);
            }
            follow_definition(&self.registry, &mut self.op);
            if self.initial.is_some() || self.postponed.is_some() || self.op.resource.webhook().is_some() {
                return None;
            }
            let event = self.watcher.as_mut()?.next_pending()?;
            if is_long_to_translate(&self.op, &self.selectors, &event) {
                self.postponed = Some(event);
                return None;
            }
            let translated = translate_event(&self.registry, &self.op, &self.selectors, &event).now_or_never();
            match translated.transpose() {
                Ok(frame) => self.pending.extend(frame.flatten()),
                Err(error) => {
                    self.watcher = None;
                    return Some(WatchFrame::Error(error));
                }
            }
        }
    }

    /// Reads more initial objects. `false` when the watch is over.
    async fn read_initial(&mut self) -> bool {
        let Some((items, revision)) = self.initial.take() else {
            return true;
        };
        if self.alarm.deadline() != self.end {
            self.alarm.as_mut().reset(self.end);
        }
        let read = tokio::select! {
            biased;
            read = read(items, self.turns.clone()) => read,
            () = self.shutdown.as_mut() => return false,
            () = self.alarm.as_mut() => return false,
        };
        match read {
            Ok((items, Some(batch))) => {
                self.pending.extend(batch.into_iter().map(make_added_frame));
                self.initial = Some((items, revision));
            }
            Ok((_, None)) if self.bookmarks => self.pending.push_back(WatchFrame::Bookmark {
                revision,
                initial_events_end: true,
            }),
            Ok((_, None)) => {}
            Err(error) => {
                self.watcher = None;
                self.pending.push_back(WatchFrame::Error(error));
            }
        }
        true
    }

    /// Waits for the next frame; `None` when the watch is over.
    pub(crate) async fn next(&mut self) -> Option<WatchFrame> {
        loop {
            if let Some(frame) = self.pending.pop_front() {
                return Some(frame);
            }
            if self.initial.is_some() {
                if !self.read_initial().await {
                    return None;
                }
                continue;
            }
            let watcher = self.watcher.as_mut()?;
            let wake = match self.last_bookmark {
                Some(last) if self.bookmarks => last.min(self.next_bookmark),
                _ if self.bookmarks => self.next_bookmark,
                _ => self.end,
            }
            .min(self.end);
            if self.alarm.deadline() != wake {
                self.alarm.as_mut().reset(wake);
            }
            let event = tokio::select! {
                biased;
                Some(event) = std::future::ready(self.postponed.take()) => Some(Ok(event)),
                event = watcher.next() => event,
                () = self.shutdown.as_mut() => return None,
                () = self.alarm.as_mut() => {
                    let now = Instant::now();
                    if now >= self.end {
                        return None;
                    }
                    if self.last_bookmark.is_some_and(|last| now >= last) {
                        self.last_bookmark = None;
                    }
                    self.next_bookmark = now + BOOKMARK_EVERY;
                    return Some(WatchFrame::Bookmark { revision: watcher.position(), initial_events_end: false });
                }
            };
            match event? {
                Ok(event) => {
                    // A webhook may have to convert the object. The watch ends at its time, even without the
                    // webhook's answer.
                    if self.alarm.deadline() != self.end {
                        self.alarm.as_mut().reset(self.end);
                    }
                    let translated = tokio::select! {
                        biased;
                        translated = translate_patiently(&self.registry, &mut self.op, (&self.selectors, self.turns.as_ref()), event) => translated,
                        () = self.shutdown.as_mut() => return None,
                        () = self.alarm.as_mut() => return None,
                    };
                    match translated {
                        Ok(Some(frame)) => return Some(frame),
                        Ok(None) => {}
                        Err(error) => {
                            self.watcher = None;
                            return Some(WatchFrame::Error(error));
                        }
                    }
                }
                Err(compacted) => {
                    self.watcher = None;
                    return Some(WatchFrame::Error(too_old(compacted)));
                }
            }
        }
    }
}

fn make_added_frame(item: Item) -> WatchFrame {
    WatchFrame::Change { kind: "ADDED", item }
}

/// Reads the next batch. Objects that must be decoded are read on another thread than the one that serves requests.
async fn read(mut items: PageReader, turns: Option<StepLimiter>) -> Result<(PageReader, Option<Vec<Item>>), ApiError> {
    if items.are_converted_elsewhere() {
        let batch = items.read_batch(BATCH.1).await?;
        return Ok((items, batch));
    }
    if !items.are_decoded() {
        let batch = items.read_batch(READ).await?;
        return Ok((items, batch));
    }
    let reading = run_part(turns.as_ref(), move || {
        let batch = items.batch_now(READ)?;
        Ok((items, batch))
    });
    reading.await.map_err(ApiError::internal)?
}

/// Translates a change, and retries while a conversion webhook fails: a watch survives an unreachable webhook.
async fn translate_patiently(
    registry: &Registry,
    op: &mut Arc<Operation>,
    (selectors, turns): (&Selectors, Option<&StepLimiter>),
    event: Arc<Event>,
) -> Result<Option<WatchFrame>, ApiError> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let served = follow_definition(registry, op);
        if op.resource.webhook().is_none() && is_long_to_translate(op, selectors, &event) {
            let (registry, op, selectors, event) = (registry.clone(), op.clone(), selectors.clone(), event.clone());
            let translating = run_part(turns, move || {
                without_waiting(translate_event(&registry, &op, &selectors, &event))
            });
            return translating.await.map_err(ApiError::internal)?;
        }
        let translated = translate_event(registry, op, selectors, &event).await;
        match &translated {
            Err(error) if served && op.resource.webhook().is_some() => {
                tracing::debug!(resource = op.resource.qualified_name(), %error, "a watch waits for a conversion");
            }
            _ => return translated,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Checks whether a change has to be decoded, and is large. Each of a client's watches decodes each change.
fn is_long_to_translate(op: &Operation, selectors: &Selectors, event: &Event) -> bool {
    if selectors.is_empty() && is_verbatim(&op.resource) {
        return false;
    }
    let previous = event.previous.as_ref().filter(|_| !selectors.is_empty());
    event.entry.bytes.len() + previous.map_or(0, |previous| previous.bytes.len()) > LITTLE
}

/// Updates the resource of a watch after a change of its definition, which may name another webhook. Returns whether
/// the resource is still served.
fn follow_definition(registry: &Registry, op: &mut Arc<Operation>) -> bool {
    let watched = &op.resource;
    if !watched.is_custom() {
        return true;
    }
    let catalog = registry.catalog();
    let Some(now) = catalog.find(&watched.group, &watched.version, &watched.plural) else {
        return false;
    };
    if !Arc::ptr_eq(now, watched) {
        Arc::make_mut(op).resource = now.clone();
    }
    true
}

/// Translates a change for a watch's selectors: an object that starts to match is added, one that stops is deleted.
async fn translate_event(
    registry: &Registry,
    op: &Operation,
    selectors: &Selectors,
    event: &Event,
) -> Result<Option<WatchFrame>, ApiError> {
    let deleted = event.kind == EventKind::Delete;
    if selectors.is_empty() {
        let kind = match (deleted, &event.previous) {
            (true, _) => "DELETED",
            (false, None) => "ADDED",
            (false, Some(_)) => "MODIFIED",
        };
        let decoded = if is_verbatim(&op.resource) {
            None
        } else {
            Some(present_one(registry, op, &event.entry).await?)
        };
        return Ok(Some(WatchFrame::Change {
            kind,
            item: Item {
                entry: event.entry.clone(),
                decoded,
            },
        }));
    }
    let before = match &event.previous {
        Some(previous) => Some(present_one(registry, op, previous).await?),
        None => None,
    };
    let matched = before.as_ref().is_some_and(|object| selectors.matches(object));
    let object = present_one(registry, op, &event.entry).await?;
    let matches = !deleted && selectors.matches(&object);
    let kind = match (matched, matches) {
        (true, true) => "MODIFIED",
        (false, true) => "ADDED",
        (true, false) => "DELETED",
        (false, false) => return Ok(None),
    };
    // An object that only stopped to match is sent in its previous state, at the revision of the change.
    let item = match before {
        Some(mut before) if kind == "DELETED" && !deleted => {
            use super::ObjectExt;
            before.set_meta("resourceVersion", Value::from(event.revision.to_string()));
            let bytes = serde_json::to_vec(&before).map_err(ApiError::internal)?;
            let entry = Arc::new(Entry {
                revision: event.revision,
                bytes: bytes.into(),
            });
            Item {
                entry,
                decoded: Some(before),
            }
        }
        _ => Item {
            entry: event.entry.clone(),
            decoded: Some(object),
        },
    };
    Ok(Some(WatchFrame::Change { kind, item }))
}

/// Returns an object of a watch, converted once for all watches of its version.
async fn present_one(registry: &Registry, op: &Operation, entry: &Arc<Entry>) -> Result<Value, ApiError> {
    let presented = registry
        .contents()
        .present_all(&op.resource, std::slice::from_ref(entry))
        .await?;
    Ok(presented.into_iter().next().unwrap_or_default())
}

fn too_old(compacted: Compacted) -> ApiError {
    ApiError::expired(format!(
        "too old resource version: {} ({})",
        compacted.requested, compacted.compacted
    ))
}
