//! The watches of the hub. Each finds its kind, follows it as the controller, and records how far its objects have been seen. A kind that only some
//! objects need never delays the start.

use std::sync::Arc;
use std::time::Duration;

use tenure_cluster::{ClusterError, WatchEvent, watch};
use tokio::sync::watch as signal;

use super::Manager;
use crate::cluster_view::object_change::ObjectChange;
use crate::hub::task_table::is_platforms;

/// The interval between searches for a kind that the API server does not serve: at first, and after [`ABSENCES`].
const ABSENT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));
/// The interval between later searches for a kind in [`OPTIONAL`].
const OPTIONAL_ABSENT: Duration = Duration::from_secs(15);
/// The number of failed searches after which a kind counts as unserved. A server that has just started does not list all of its kinds at once.
const ABSENCES: u32 = 10;

/// The kinds without which nothing is reconciled: they decide which identity acts in a namespace.
pub(super) const NEEDED_BY_ALL: [&str; 4] = ["Namespace", "RoleBinding", "ServiceAccount", "Tenant"];

/// The kinds of a platform's packages. A cluster without these kinds lacks nothing.
pub(super) const OPTIONAL: [&str; 3] = ["Package", "PackageSource", PACKAGE_VALUES];
/// The kind of changes of Packages. A cluster with Cozystack's own definitions doesn't have it.
const PACKAGE_VALUES: &str = "PackageValues";

/// Whether the controllers have seen the existing objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    /// The objects were not listed yet.
    Waiting,
    /// The API server does not serve the kind, so it has no objects.
    Unserved,
    /// The controllers have seen all objects.
    Synced,
}

/// A watch that was opened.
pub(super) struct OpenedWatch {
    pub(super) kind: &'static str,
    state: signal::Receiver<WatchState>,
}

impl OpenedWatch {
    /// Waits until reconciling can begin as far as this kind is concerned.
    pub(super) async fn wait(&mut self) {
        let is_needed = NEEDED_BY_ALL.contains(&self.kind);
        let is_known = |state: &WatchState| match state {
            WatchState::Waiting => false,
            WatchState::Unserved => !is_needed,
            WatchState::Synced => true,
        };
        let _the_watch_has_ended = self.state.wait_for(is_known).await;
    }

    /// Waits until all objects have been seen.
    pub(super) async fn wait_until_synced(&mut self) {
        let _the_watch_has_ended = self.state.wait_for(|state| *state == WatchState::Synced).await;
    }

    pub(super) fn is_unserved(&self) -> bool {
        *self.state.borrow() == WatchState::Unserved
    }
}

impl Manager {
    /// Follows a watch as the controller.
    pub(super) fn watch(
        &self,
        watched: (&'static str, &'static str, Option<&'static str>),
        take: impl Fn(&Manager, ObjectChange<'_>) + Send + Sync + 'static,
    ) -> OpenedWatch {
        self.watch_in(None, watched, take)
    }

    /// Follows a watch as the controller, in the platform namespace alone.
    pub(super) fn watch_in_platform(
        &self,
        (api_version, kind): (&'static str, &'static str),
        take: impl Fn(&Manager, ObjectChange<'_>) + Send + Sync + 'static,
    ) -> OpenedWatch {
        let platform = self.hub.context.settings.platform_namespace.clone();
        self.watch_in(Some(platform), (api_version, kind, None), take)
    }

    fn watch_in(
        &self,
        namespace: Option<String>,
        (api_version, kind, labels): (&'static str, &'static str, Option<&'static str>),
        take: impl Fn(&Manager, ObjectChange<'_>) + Send + Sync + 'static,
    ) -> OpenedWatch {
        let (send, receive) = signal::channel(WatchState::Waiting);
        let manager = self.clone();
        let following = async move {
            let controller = &manager.hub.context.controller;
            let health = manager.hub.context.clients.health();
            // One kind may have several watches.
            let watched = labels.map_or_else(|| kind.to_owned(), |labels| format!("{kind} with {labels}"));
            let mut complaint = String::new();
            let mut absent = 0_u32;
            let resource = loop {
                match controller.resource(api_version, kind).await {
                    Ok(resource) => break resource,
                    Err(ClusterError::NoKindMatch { .. }) => {
                        absent += 1;
                        if absent == ABSENCES {
                            manager.report_unserved_kind((api_version, kind), &watched);
                            send.send_replace(WatchState::Unserved);
                        }
                    }
                    Err(error) => {
                        health.set_seen(&watched, false);
                        let problem = error.to_string();
                        if problem != complaint {
                            tracing::warn!(kind, %error, "the API server can't be asked");
                            complaint = problem;
                        }
                    }
                }
                let pause = match absent {
                    _ if absent < ABSENCES => ABSENT.0,
                    _ if OPTIONAL.contains(&kind) => OPTIONAL_ABSENT,
                    _ => ABSENT.1,
                };
                tokio::time::sleep(pause).await;
            };
            let seen = Arc::clone(&manager.seen);
            let take_event = |event| match event {
                WatchEvent::Changed(object) => take(&manager, ObjectChange::Changed(&object)),
                WatchEvent::Deleted {
                    namespace,
                    name,
                    revision,
                } => take(&manager, ObjectChange::Gone((&namespace, &name), &revision)),
                WatchEvent::Synced { .. } => {
                    health.set_seen(&watched, true);
                    if send.send_replace(WatchState::Synced) == WatchState::Unserved && !OPTIONAL.contains(&kind) {
                        tracing::warn!(kind, api_version, "the API server serves this kind now");
                        manager.hub.announce_all();
                    }
                }
                WatchEvent::Failed(error) => {
                    let is_gone = matches!(error, ClusterError::PathGone { .. });
                    health.set_seen(&watched, is_gone && !NEEDED_BY_ALL.contains(&kind));
                    tracing::warn!(kind, %error, "the watch broke; it begins again");
                }
                WatchEvent::Resumed => health.set_seen(&watched, true),
                WatchEvent::Listing | WatchEvent::Progress { .. } => {}
            };
            // A watch of only a part of a kind does not count here.
            let counted = if labels.is_none() && namespace.is_none() {
                kind
            } else {
                ""
            };
            let sink = |event| seen.track_event(counted, event, take_event);
            watch(controller, &resource, namespace.as_deref(), labels, sink).await;
        };
        let end = self.end.clone();
        self.tasks
            .spawn(async move { end.run_until_cancelled(following).await });
        OpenedWatch { kind, state: receive }
    }

    /// Lets Packages be reconciled after all of them and all PackageSources have been seen: with half of them, the first claim of a name would be
    /// wrong. Without their PackageValues, they would get values back that an administrator has changed.
    pub(super) fn begin_packages(&self, mut watches: Vec<OpenedWatch>) {
        let (hub, end) = (Arc::clone(&self.hub), self.end.clone());
        let beginning = async move {
            for watch in &mut watches {
                match watch.kind == PACKAGE_VALUES {
                    true => watch.wait().await,
                    false => watch.wait_until_synced().await,
                }
            }
            hub.packages.set_complete();
            hub.context.mailboxes.wake_where(is_platforms);
        };
        self.tasks
            .spawn(async move { end.run_until_cancelled(beginning).await });
    }

    /// Reports a kind that the API server does not serve. The controllers are well without it, unless everything needs it.
    fn report_unserved_kind(&self, (api_version, kind): (&str, &str), watched: &str) {
        let is_needed = NEEDED_BY_ALL.contains(&kind);
        self.hub.context.clients.health().set_seen(watched, !is_needed);
        if OPTIONAL.contains(&kind) {
            tracing::debug!(kind, api_version, "the API server does not serve this kind");
            return;
        }
        if is_needed {
            tracing::warn!(
                kind,
                api_version,
                "the API server does not serve this kind, and the controllers need it to start: `tenure install` creates it if it is Tenure's"
            );
        } else {
            tracing::warn!(
                kind,
                api_version,
                "the API server does not serve this kind, and only the controllers that need it stop: `tenure install` creates it if it is Tenure's"
            );
        }
    }
}
