//! The issue that shows a request to the owner of its project: found, opened and closed as planned. It makes no choice. An answer in the issue does
//! not count for the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use tenure_api::access::FluxAccessRequest;
use tenure_cluster::ClusterError;
use tenure_git_access::notice::{NoticeEvent, NoticeFacts, OpenIssues, Plan, Step, StepResult, plan, record_plan};
use tenure_git_access::status::decide_state;
use tenure_planner::{Event, EventKind, EventPlace};
use tenure_remote_requests::git_host::{HostError, HostQuery, HostReply, Issue};

use super::request::RequestReconciler;
use super::step_facts::StepFacts;
use super::steps::{Actor, not_understood};
use super::{hosts, lock};
use crate::reconcile_loop::object_writer::ObjectWriter;

impl RequestReconciler {
    /// Executes the due step about the request's issue at the host. Returns whether a step was due.
    pub(super) async fn announce(
        &mut self,
        request: &Arc<FluxAccessRequest>,
        planned: &Plan,
        now: Timestamp,
    ) -> Result<bool, ClusterError> {
        let answer = match &planned.step {
            None => return Ok(false),
            Some(Step::Begin) => {
                let recorded = self.record_notice(request, planned, None, now).await;
                lock(&self.access_hub.notices).settle_issue(request, recorded.is_ok());
                recorded?;
                StepResult::Recorded
            }
            Some(Step::Record(happening)) => {
                self.record_notice(request, planned, happening.as_ref(), now).await?;
                StepResult::Recorded
            }
            Some(Step::Find(ask)) => StepResult::Found(self.ask_about_issue(request, ask).await),
            Some(Step::Open(ask)) => {
                let opened = self.ask_about_issue(request, ask).await;
                StepResult::Opened(opened.and_then(|issue| issue.ok_or_else(not_understood)))
            }
            Some(Step::Close(ask)) => StepResult::Closed(self.ask_about_issue(request, ask).await.map(|_| ())),
        };
        self.notice = Some(answer);
        Ok(true)
    }

    /// Gives up the planned step: it is not executed.
    pub(super) fn drop_notice(&self, request: &FluxAccessRequest, planned: &Plan) {
        if planned.step == Some(Step::Begin) {
            lock(&self.access_hub.notices).settle_issue(request, false);
        }
    }

    /// Plans with the state of all requests. A begun issue counts immediately.
    pub(super) fn plan_notice(
        &mut self,
        request: &FluxAccessRequest,
        circumstances: &StepFacts,
        now: Timestamp,
    ) -> Plan {
        let answer = self.notice.take();
        let provider = self.access_hub.find_provider(&request.spec.provider);
        let status = request.status.clone().unwrap_or_default();
        let all = self.access_hub.list_requests(&request.spec.provider);
        let mut book = lock(&self.access_hub.notices);
        let seen = NoticeFacts {
            request,
            state: decide_state(&status, &circumstances.verdict),
            provider_state: self.access_hub.find_provider_state(provider.as_deref()),
            host: provider.as_deref().and_then(hosts::read_kind),
            is_wanted: provider.is_some_and(|provider| provider.spec.gives_notice()),
            reaches: circumstances.reaching.as_ref().map(|there| !there.is_empty()),
            open_issues: OpenIssues::count(request, all.iter().map(Arc::as_ref), &mut book, now),
            answer: answer.as_ref(),
        };
        let planned = plan(&seen, now);
        if planned.step == Some(Step::Begin) {
            book.add_issue(request, now);
        }
        planned
    }

    async fn ask_about_issue(
        &self,
        request: &Arc<FluxAccessRequest>,
        ask: &HostQuery,
    ) -> Result<Option<Issue>, HostError> {
        let actor = Actor::new(&self.access_hub, Arc::clone(request)).await;
        match actor.ask(ask, None).await?.reply {
            HostReply::Issue(issue) => Ok(issue),
            HostReply::IssueClosed => Ok(None),
            _ => Err(not_understood()),
        }
    }

    async fn record_notice(
        &mut self,
        request: &FluxAccessRequest,
        planned: &Plan,
        happening: Option<&NoticeEvent>,
        now: Timestamp,
    ) -> Result<(), ClusterError> {
        let mut status = request.status.clone().unwrap_or_default();
        record_plan(&mut status, planned, now);
        let writer = ObjectWriter::new(request);
        writer.write_status(&self.access_hub, &status).await?;
        let Some(happening) = happening else { return Ok(()) };
        tracing::info!(
            request = request.name_any(),
            happening.action,
            happening.cause,
            "a request for access"
        );
        let event = Event {
            kind: if happening.is_bad {
                EventKind::Warning
            } else {
                EventKind::Normal
            },
            reason: happening.action.to_owned(),
            message: happening.cause.clone(),
            annotations: BTreeMap::new(),
            place: EventPlace::Beside,
        };
        writer
            .write_events(&self.access_hub, &mut self.event_history, &[event])
            .await;
        Ok(())
    }
}
