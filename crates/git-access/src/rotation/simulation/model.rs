//! A host, a cluster and a shell that follow their orders, except for random trouble.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::request::CredentialLedger;

use super::super::rate_limits::HostRateLimiter;
use super::super::{
    Answer, Listing, NamespaceState, Order, Probe, SecretFacts, SecretState, Snapshot, SourceState, StagedFacts,
    StagingState, Step, WantedState, WriteFailure, plan,
};
use super::entry::Side;
use super::host::{Chance, Credential, Flavour, Harm};
use tenure_remote_requests::git_host::{
    Capabilities, CredentialKind, HostError, MintRequest, Role, Scope, Target, TargetDescription,
};

pub(super) struct Source {
    seen: SourceState,
    pub(super) cached: Option<String>,
    pub(super) next_fetch: i64,
    /// The source never fetches again, even on request.
    pub(super) is_dead: bool,
}

pub(super) struct World {
    pub(super) seed: u64,
    /// The acting request.
    pub(super) name: &'static str,
    pub(super) uid: &'static str,
    /// True if the acting request takes over from the other one. False for the reverse.
    pub(super) is_heir: bool,
    /// The other request of the entry, if any.
    pub(super) other: Option<Side>,
    pub(super) chance: Chance,
    pub(super) flavour: Flavour,
    pub(super) now: i64,
    /// In percent of steps.
    pub(super) trouble: u64,
    pub(super) kills: u64,
    pub(super) longest_trouble: u64,
    pub(super) planned_harm: Option<(u64, Harm)>,
    /// True if sources have to work.
    pub(super) is_strict: bool,
    pub(super) host_ahead: i64,
    pub(super) path: String,
    pub(super) target_id: u64,
    pub(super) host: BTreeMap<u64, Credential>,
    pub(super) late: Vec<(i64, MintRequest, String)>,
    pub(super) unavailable: Option<(i64, HostError)>,
    /// The certificate authority of the host. A client with another one doesn't reach it.
    pub(super) host_authority: Option<String>,
    /// The host takes no requests before this time, and its answers say so.
    pub(super) closed_until: i64,
    /// Credentials of others at the host. Lists have pages of this size.
    pub(super) others: u64,
    pub(super) page_size: u64,
    /// In percent of turns, another user interferes.
    pub(super) outside: u64,
    /// The times of the credentials that were made in the last hour.
    pub(super) mints: VecDeque<i64>,
    /// The largest number of credentials that the host may be asked for in an hour.
    pub(super) most_mints: usize,
    pub(super) next_id: u64,
    pub(super) wanted: WantedState,
    pub(super) order: Option<Order>,
    pub(super) ledger: CredentialLedger,
    pub(super) secret: Option<SecretFacts>,
    pub(super) staging: Option<StagedFacts>,
    pub(super) account: Option<serde_json::Value>,
    pub(super) sources: Vec<Source>,
    pub(super) answer: Option<Answer>,
    pub(super) authority: Option<String>,
    pub(super) listing: Option<Listing>,
    pub(super) restraint: HostRateLimiter,
    /// True if the controller was restarted, and has not planned since.
    pub(super) is_restarted: bool,
    /// True if the host refuses all new credentials.
    pub(super) refuses_new: bool,
    /// True if the cluster refuses all writes but those of the ledger.
    pub(super) refuses_writes: bool,
    /// The time of the next plan, if no change is observed before.
    pub(super) again: i64,
    pub(super) steps: u64,
    pub(super) versions: u64,
    pub(super) minted: u64,
    pub(super) orders: u64,
    pub(super) verified: u64,
    pub(super) fetches: u64,
    pub(super) refused: u64,
    /// The number of requests that reached for the host.
    pub(super) requests: u64,
    /// The number of writes to the cluster but those of the ledger.
    pub(super) writes: u64,
}

impl World {
    pub(super) fn new(seed: u64, flavour: Flavour) -> Self {
        let mut chance = Chance(seed);
        let source = |name: &str, interval: u64, is_suspended: bool| Source {
            seen: SourceState {
                name: name.to_owned(),
                is_suspended,
                interval: Duration::from_secs(interval),
                asked: None,
                last_handled: None,
                refused_at: None,
            },
            cached: None,
            next_fetch: 0,
            is_dead: false,
        };
        let sources = vec![
            source("GitRepository/a", 60 * (10 + chance.draw_below(60)), false),
            source("GitRepository/b", 60 * (10 + chance.draw_below(120)), false),
            source("GitRepository/off", 86_400 * 30, true),
        ];
        Self {
            seed,
            name: "request-1",
            uid: "0badcafe-0000",
            is_heir: false,
            other: None,
            chance,
            flavour,
            now: 1_790_000_000,
            trouble: 0,
            kills: 0,
            longest_trouble: 6 * 3_600,
            planned_harm: None,
            is_strict: true,
            host_ahead: 0,
            path: "group-1/a".to_owned(),
            target_id: 42,
            host: BTreeMap::new(),
            late: Vec::new(),
            unavailable: None,
            host_authority: None,
            closed_until: 0,
            others: 0,
            page_size: 100,
            outside: 0,
            mints: VecDeque::new(),
            most_mints: usize::MAX,
            next_id: 1,
            wanted: WantedState::Delivered,
            order: None,
            ledger: CredentialLedger {
                namespace: "team-a".to_owned(),
                ..CredentialLedger::default()
            },
            secret: None,
            staging: None,
            account: Some(super::accounts::make(0)),
            sources,
            answer: None,
            authority: None,
            listing: None,
            restraint: HostRateLimiter::default(),
            is_restarted: false,
            refuses_new: false,
            again: 0,
            steps: 0,
            versions: 0,
            minted: 0,
            orders: 0,
            verified: 0,
            fetches: 0,
            refused: 0,
            requests: 0,
            writes: 0,
            refuses_writes: false,
        }
    }

    pub(super) fn moment(&self) -> Timestamp {
        Timestamp::from_second(self.now).unwrap()
    }

    pub(super) fn target(&self) -> Target {
        Target {
            scope: Scope::Project,
            id: self.target_id,
            path: "group-1/a".to_owned(),
        }
    }

    pub(super) fn is_alive(&self, credential: &Credential) -> bool {
        !credential.is_revoked && credential.expires.is_none_or(|end| self.now + self.host_ahead < end)
    }

    pub(super) fn live(&self) -> Vec<&Credential> {
        self.host
            .values()
            .filter(|credential| self.is_alive(credential))
            .collect()
    }

    pub(super) fn works(&self, fingerprint: Option<&str>) -> bool {
        self.live()
            .iter()
            .any(|credential| Some(credential.fingerprint.as_str()) == fingerprint && credential.works_from <= self.now)
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        let nonce = format!("{:08x}", self.chance.draw_below(1 << 32));
        Snapshot {
            request_uid: self.uid.to_owned(),
            request_name: self.name.to_owned(),
            secret_name: "gitlab-flux-token".to_owned(),
            cluster_uid: "c0ffee00-0000".to_owned(),
            target: self.target(),
            kind: match self.flavour {
                Flavour::Token => CredentialKind::DeployToken,
                Flavour::Key => CredentialKind::DeployKey,
                Flavour::Hourly => CredentialKind::InstallationToken,
            },
            capabilities: Capabilities {
                overlap: true,
                expiry: self.flavour == Flavour::Token,
                last_used: false,
                idempotent_create: self.flavour == Flavour::Key,
                group_scope: false,
                listed: self.flavour != Flavour::Hourly,
            },
            role: Role::ReadRepository,
            username: None,
            rotate: "1d".parse().unwrap(),
            wanted: self.wanted.clone(),
            predecessors: self.list_predecessors(),
            successor: self.find_successor(),
            order: self.order.clone(),
            ledger: self.ledger.clone(),
            namespace: NamespaceState::Present,
            secret: self.secret.clone().map_or(SecretState::Absent, SecretState::Present),
            is_mark_valid: self.is_mark_valid(),
            staging: self.staging.clone().map_or(StagingState::Absent, StagingState::Present),
            accounts: self.see_accounts(),
            sources: self.sources.iter().map(|source| source.seen.clone()).collect(),
            authority: self.authority.clone(),
            listing: self.listing.clone(),
            restraint: self.see_restraint(),
            host_ahead: SignedDuration::from_secs(self.host_ahead),
            nonce,
            answer: self.answer.take(),
        }
    }

    /// Plans at once after a change.
    pub(super) fn wake(&mut self) {
        self.again = 0;
    }

    /// Runs one round of the shell, or waits until a step is due.
    pub(super) fn take_turn(&mut self) {
        self.pass_time();
        self.interfere();
        if self.now < self.again {
            self.sleep();
            return;
        }
        let snapshot = self.snapshot();
        let planned = plan(&snapshot, self.moment());
        let Some(step) = planned.step else {
            self.again = planned.again.as_second().max(self.now + 1);
            self.sleep();
            return;
        };
        let is_record = matches!(step, Step::Record | Step::Begin);
        assert!(
            is_record || planned.ledger == snapshot.ledger,
            "nothing is done before it is recorded: {step:?}"
        );
        self.steps += 1;
        if is_record {
            self.verified += u64::try_from(
                planned
                    .happened
                    .iter()
                    .filter(|event| event.action == "Verified")
                    .count(),
            )
            .unwrap();
        }
        if let Some(result) = planned.trial {
            let (target, owner) = (self.target(), self.name_owner());
            self.restraint.record_trial(&target, &owner, result, self.moment());
        }
        if step == Step::Begin && !self.begin_trial(&planned.ledger) {
            return;
        }
        let harm = self.choose_harm(&step);
        if harm == Some(Harm::KillBefore) {
            self.kill_controller();
            return;
        }
        let answer = self.execute_step(step, planned.ledger, harm);
        if let Some(Answer::Probed(Probe::Refused(_))) = &answer {
            self.refused += 1;
            self.restraint.record_refused_probe(self.moment());
        }
        self.check();
        match harm {
            Some(Harm::KillAfter | Harm::KillBetween) => self.kill_controller(),
            _ => self.answer = answer,
        }
        self.now += i64::try_from(self.chance.draw_below(3)).unwrap();
    }

    /// Waits until the next plan, or until an event of the model.
    fn sleep(&mut self) {
        let fetches = self
            .sources
            .iter()
            .filter(|source| !source.seen.is_suspended)
            .map(|source| source.next_fetch);
        let late = self.late.iter().map(|(at, _, _)| *at);
        let next = fetches
            .chain(late)
            .filter(|at| *at > self.now)
            .min()
            .unwrap_or(self.again);
        self.now = self.again.min(next);
    }

    /// Starts the controller again: the limits and the last answer of the host were in memory only.
    pub(super) fn restart(&mut self) {
        self.answer = None;
        self.restraint = HostRateLimiter::default();
        self.is_restarted = true;
    }

    fn kill_controller(&mut self) {
        self.restart();
        self.closed_until = 0;
        self.now += i64::try_from(self.chance.draw_below(90)).unwrap();
    }

    fn choose_harm(&mut self, step: &Step) -> Option<Harm> {
        if let Some((at, harm)) = self.planned_harm {
            // The first step from this number on to which the trouble applies.
            let is_met = self.steps >= at && (harm != Harm::Late || matches!(step, Step::MintAndStage(_)));
            return is_met.then(|| {
                self.planned_harm = None;
                harm
            });
        }
        if self.chance.is_one_of(self.kills) {
            let kills = [Harm::KillBefore, Harm::KillAfter, Harm::KillBetween];
            return Some(kills[usize::try_from(self.chance.draw_below(3)).unwrap()]);
        }
        self.chance.is_one_of(self.trouble).then(|| {
            let count = u64::try_from(Harm::TROUBLES.len()).unwrap();
            Harm::TROUBLES[usize::try_from(self.chance.draw_below(count)).unwrap()]
        })
    }

    /// Returns whether a write to the cluster is made, and its answer.
    fn write(&mut self, harm: Option<Harm>) -> (bool, Result<(), WriteFailure>) {
        self.writes += 1;
        Self::answer_write(if self.refuses_writes { Some(Harm::Refused) } else { harm })
    }

    fn answer_write(harm: Option<Harm>) -> (bool, Result<(), WriteFailure>) {
        match harm {
            Some(Harm::LostAfter) => (true, Err(WriteFailure::Unknown("timeout".to_owned()))),
            Some(Harm::LostBefore | Harm::Late) => (false, Err(WriteFailure::Unknown("timeout".to_owned()))),
            Some(Harm::Limited | Harm::Html | Harm::Missing) => (false, Err(WriteFailure::Changed)),
            Some(Harm::Refused | Harm::Banned | Harm::Unauthenticated | Harm::Forbidden) => {
                (false, Err(WriteFailure::Refused("may not update secrets".to_owned())))
            }
            None | Some(Harm::KillBefore | Harm::KillAfter | Harm::KillBetween) => (true, Ok(())),
        }
    }

    fn put_secret(&mut self, fingerprint: Option<String>) -> String {
        self.versions += 1;
        let uid = self
            .secret
            .as_ref()
            .map_or_else(|| format!("s-{}", self.versions), |secret| secret.uid.clone());
        self.secret = Some(SecretFacts {
            uid: uid.clone(),
            resource_version: self.versions.to_string(),
            marked_for: Some(self.name.to_owned()),
            fingerprint,
            authority: self.authority.clone(),
        });
        uid
    }

    fn execute_step(&mut self, step: Step, ledger: CredentialLedger, harm: Option<Harm>) -> Option<Answer> {
        Some(match step {
            Step::Record | Step::Begin => {
                let is_begun = step == Step::Begin;
                match Self::answer_write(harm) {
                    (false, _) => return None,
                    (true, result) => {
                        // The ledger is written and read again, as through the API server.
                        self.ledger = serde_json::from_value(serde_json::to_value(&ledger).unwrap()).unwrap();
                        if result.is_err() {
                            return None;
                        }
                    }
                }
                if is_begun { Answer::Begun } else { Answer::Recorded }
            }
            Step::Preflight => Answer::Preflight(match self.write(harm).1 {
                Err(WriteFailure::Refused(why) | WriteFailure::Unknown(why)) => Err(why),
                _ => Ok(()),
            }),
            Step::MintAndStage(request) => self.answer_mint(&request, harm),
            Step::List(target) => {
                self.restraint.record_list(self.moment());
                let listed = self.list_pages(harm, &target);
                if let Ok(credentials) = &listed {
                    self.listing = Some(Listing {
                        asked_at: self.moment(),
                        credentials: credentials.clone(),
                    });
                }
                Answer::Listed(listed)
            }
            Step::Find(mut target) => {
                // A lookup by number needs no path, so it can't be moved.
                target.path.clone_from(&self.path);
                let met = self.check_request(harm, &target);
                Answer::Found(match met {
                    Err((_, trouble)) => Err(trouble),
                    Ok(()) => Ok(Some(TargetDescription {
                        target,
                        http_url: None,
                        ssh_url: None,
                        registry_prefix: None,
                    })),
                })
            }
            Step::Revoke { target, id } => Answer::Revoked(
                id,
                match self.check_request(harm, &target) {
                    Err((has_effect, trouble)) => {
                        if has_effect {
                            self.host.remove(&id);
                        }
                        Err(trouble)
                    }
                    Ok(()) => {
                        self.host.remove(&id);
                        Ok(())
                    }
                },
            ),
            Step::ProbeStaged => {
                let fingerprint = self.staging.as_ref().map(|staged| staged.fingerprint.clone());
                Answer::Probed(self.answer_probe(fingerprint.as_deref(), harm))
            }
            Step::ProbeDelivered => {
                let fingerprint = self.secret.as_ref().and_then(|secret| secret.fingerprint.clone());
                Answer::Probed(self.answer_probe(fingerprint.as_deref(), harm))
            }
            Step::Spread(expected) => {
                let is_as_seen = expected == self.secret;
                let Some(staged) = self.staging.clone().filter(|_| is_as_seen) else {
                    return Some(Answer::Spread(Err(WriteFailure::Changed)));
                };
                let (has_effect, result) = self.write(harm);
                let uid = has_effect.then(|| self.put_secret(Some(staged.fingerprint)));
                Answer::Spread(result.map(|()| uid.unwrap()))
            }
            Step::Mark(expected) => {
                let (has_effect, result) = self.write(harm);
                let uid = has_effect.then(|| self.put_secret(expected.fingerprint));
                Answer::Spread(result.map(|()| uid.unwrap()))
            }
            Step::AskSources { sources, token } => {
                let (has_effect, _) = self.write(harm);
                for source in self
                    .sources
                    .iter_mut()
                    .filter(|source| has_effect && sources.contains(&source.seen.name))
                {
                    source.seen.asked = Some(token.clone());
                    if !source.is_dead {
                        source.next_fetch = self.now + i64::try_from(self.chance.draw_below(40)).unwrap();
                    }
                }
                Answer::Asked
            }
            Step::DeleteSecret(expected) => {
                assert_eq!(Some(expected), self.secret);
                let (has_effect, result) = self.write(harm);
                if has_effect {
                    self.secret = None;
                }
                Answer::SecretDeleted(result)
            }
            Step::ChangeAccounts(changes) => {
                let (has_effect, result) = self.write(harm);
                let is_as_seen = !has_effect || self.change_account(&changes);
                Answer::Named(if is_as_seen { result } else { Err(WriteFailure::Changed) })
            }
            Step::ClearStaging => {
                let (has_effect, result) = self.write(harm);
                if has_effect {
                    self.staging = None;
                }
                Answer::StagingCleared(result)
            }
        })
    }

    /// Runs the events of the model: late orders arrive, sources fetch, the host is listed every hour.
    fn pass_time(&mut self) {
        let now = self.now;
        let (arrived, late): (Vec<_>, Vec<_>) = self.late.drain(..).partition(|(at, _, _)| *at <= now);
        self.late = late;
        for (_, request, fingerprint) in arrived {
            let _arrived = self.make_credential(&request, &fingerprint);
            self.check();
        }
        let is_wanted = self.wanted == WantedState::Delivered;
        for index in 0..self.sources.len() {
            let value = self.secret.as_ref().and_then(|secret| secret.fingerprint.clone());
            let works = self.works(value.as_deref()) && self.is_trusted();
            let source = &mut self.sources[index];
            if source.seen.is_suspended || source.next_fetch > now {
                continue;
            }
            source.next_fetch = now + i64::try_from(source.seen.interval.as_secs()).unwrap();
            if value.is_none() && source.cached.is_none() {
                // Nothing was delivered yet.
                continue;
            }
            if source.seen.refused_at.is_none() != works || source.seen.last_handled != source.seen.asked {
                self.again = 0;
            }
            let refused_at = source.seen.refused_at.or(Timestamp::from_second(now).ok());
            source.seen.refused_at = refused_at.filter(|_| !works);
            source.seen.last_handled.clone_from(&source.seen.asked);
            source.cached = value;
            self.fetches += 1;
            assert!(
                works || !self.is_strict || !is_wanted,
                "seed {}: a source fetches with what does not work: {:?}",
                self.seed,
                self.ledger
            );
        }
        if self.is_strict && is_wanted {
            for source in self.sources.iter().filter(|source| source.cached.is_some()) {
                assert!(
                    self.works(source.cached.as_deref()),
                    "seed {}: what {} has fetched with is gone: {:?}",
                    self.seed,
                    source.seen.name,
                    self.ledger
                );
            }
        }
        let is_old = |listing: &Listing| listing.asked_at.as_second() + 3_600 <= now;
        if self.listing.as_ref().is_none_or(is_old) && self.flavour != Flavour::Hourly {
            self.listing = Some(Listing {
                asked_at: self.moment(),
                credentials: self.list(),
            });
            self.again = 0;
            self.check();
        }
    }

    /// Checks whether a client with the Secret trusts the host's certificate.
    fn is_trusted(&self) -> bool {
        let authority = self.secret.as_ref().and_then(|secret| secret.authority.as_ref());
        self.host_authority.is_none() || authority == self.host_authority.as_ref()
    }
}
