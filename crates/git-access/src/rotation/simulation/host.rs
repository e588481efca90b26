//! The host of the model: it makes, lists and revokes credentials, with every kind of trouble of a real host.

use jiff::Timestamp;

use super::super::{Answer, Probe, StagedFacts};
use super::model::World;
use tenure_remote_requests::git_host::{HostError, ListedCredential, MintRequest, MintedCredential, Target};

/// A random generator with a seed.
#[derive(Clone, Copy)]
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn draw_below(&mut self, below: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }

    pub(super) fn is_one_of(&mut self, percent: u64) -> bool {
        self.draw_below(100) < percent
    }
}

/// The kind of credentials at the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    Token,
    Key,
    Hourly,
}

/// The kinds of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    KillBefore,
    KillAfter,
    /// Between the two parts of a step.
    KillBetween,
    /// The order takes effect, and its answer is lost.
    LostAfter,
    /// The order has no effect, and its answer is lost.
    LostBefore,
    /// The order takes effect a while after the sender has given it up.
    Late,
    Limited,
    Banned,
    Unauthenticated,
    Refused,
    Forbidden,
    Missing,
    Html,
}

impl Harm {
    pub(super) const TROUBLES: [Self; 10] = [
        Self::LostAfter,
        Self::LostBefore,
        Self::Late,
        Self::Limited,
        Self::Banned,
        Self::Unauthenticated,
        Self::Refused,
        Self::Forbidden,
        Self::Missing,
        Self::Html,
    ];
}

#[derive(Clone, Debug)]
pub(super) struct Credential {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) fingerprint: String,
    pub(super) expires: Option<i64>,
    pub(super) is_revoked: bool,
    /// A slow host refuses new credentials until this time.
    pub(super) works_from: i64,
}

impl World {
    /// Returns a time until which the host is unavailable.
    pub(super) fn draw_end(&mut self) -> Timestamp {
        let wait = 1 + self.chance.draw_below(self.longest_trouble.min(1_800));
        Timestamp::from_second(self.now + i64::try_from(wait).unwrap()).unwrap()
    }

    pub(super) fn trouble_of(&mut self, harm: Harm) -> Option<HostError> {
        Some(match harm {
            Harm::LostAfter | Harm::LostBefore | Harm::Late => HostError::Unknown("502".to_owned()),
            Harm::Limited => HostError::Limited { until: self.draw_end() },
            Harm::Banned => HostError::Banned { until: self.draw_end() },
            Harm::Unauthenticated => {
                // The trouble lasts for a while.
                let wait = i64::try_from(self.chance.draw_below(self.longest_trouble)).unwrap();
                self.unavailable = Some((self.now + wait, HostError::Unauthenticated));
                HostError::Unauthenticated
            }
            Harm::Refused => HostError::Refused {
                status: 422,
                message: "no".to_owned(),
            },
            Harm::Forbidden => HostError::Forbidden("403".to_owned()),
            Harm::Missing => HostError::Refused {
                status: 404,
                message: "404 Not Found".to_owned(),
            },
            Harm::Html => HostError::NotUnderstood("HTML".to_owned()),
            Harm::KillBefore | Harm::KillAfter | Harm::KillBetween => return None,
        })
    }

    /// Sends a request, unless the host takes none now: then the shell itself answers.
    pub(super) fn check_request(&mut self, harm: Option<Harm>, target: &Target) -> Result<(), (bool, HostError)> {
        if let Some(block) = self.restraint.find_block(self.moment()) {
            return Err((false, block));
        }
        let met = self.reach_host(harm, target);
        if let Err((_, trouble)) = &met {
            self.note_block(trouble);
        }
        met
    }

    /// Notes that the host takes no more requests for a while.
    pub(super) fn note_block(&mut self, trouble: &HostError) {
        self.restraint.record_block(trouble, self.moment());
        if let HostError::Banned { until } | HostError::Limited { until } = trouble {
            self.closed_until = self.closed_until.max(until.as_second());
        }
    }

    /// Checks whether the host answers. An error says whether the order takes effect.
    fn reach_host(&mut self, harm: Option<Harm>, target: &Target) -> Result<(), (bool, HostError)> {
        assert!(
            self.now >= self.closed_until,
            "seed {}: the host takes no requests before {}, and gets one at {}: {:?}",
            self.seed,
            self.closed_until,
            self.now,
            self.ledger
        );
        self.requests += 1;
        if self.host_authority.is_some() && self.authority != self.host_authority {
            return Err((
                false,
                HostError::Unreachable("the certificate is of an unknown authority".to_owned()),
            ));
        }
        if let Some((until, trouble)) = self.unavailable.clone()
            && self.now < until
        {
            return Err((false, trouble));
        }
        if let Some(harm) = harm
            && let Some(trouble) = self.trouble_of(harm)
        {
            return Err((harm == Harm::LostAfter, trouble));
        }
        match target.path == self.path {
            true => Ok(()),
            false => Err((false, HostError::Moved)),
        }
    }

    pub(super) fn make_credential(&mut self, request: &MintRequest, fingerprint: &str) -> MintedCredential {
        let id = self.next_id;
        self.next_id += 1;
        self.minted += 1;
        let now = self.now;
        self.mints.retain(|at| *at > now - 3_600);
        self.mints.push_back(now);
        assert!(
            self.mints.len() <= self.most_mints,
            "seed {}: {} credentials in an hour: {:?}",
            self.seed,
            self.mints.len(),
            self.ledger
        );
        let host_now = self.now + self.host_ahead;
        let expires = match self.flavour {
            Flavour::Token => request.expires_at.map(Timestamp::as_second),
            Flavour::Key => None,
            Flavour::Hourly => Some(host_now + 3_600),
        };
        let slow = i64::try_from(self.chance.draw_below(20)).unwrap();
        self.host.insert(
            id,
            Credential {
                id,
                name: request.name.clone(),
                fingerprint: fingerprint.to_owned(),
                expires,
                is_revoked: false,
                works_from: if self.refuses_new {
                    i64::MAX
                } else if self.chance.is_one_of(self.trouble) {
                    self.now + slow
                } else {
                    self.now
                },
            },
        );
        MintedCredential {
            id: (self.flavour != Flavour::Hourly).then_some(id),
            username: None,
            expires_at: expires.map(|at| Timestamp::from_second(at).unwrap()),
            fingerprint: fingerprint.to_owned(),
        }
    }

    pub(super) fn answer_mint(&mut self, request: &MintRequest, harm: Option<Harm>) -> Answer {
        self.orders += 1;
        let nonce = request.name.rsplit('/').next().unwrap().to_owned();
        let fingerprint = format!("value-{nonce}-{}", self.chance.draw_below(1 << 40));
        if self.flavour == Flavour::Key {
            self.staging = Some(StagedFacts {
                nonce: nonce.clone(),
                is_minted: false,
                id: None,
                fingerprint: fingerprint.clone(),
                expires_at: None,
            });
        }
        if harm == Some(Harm::KillBetween) && self.flavour == Flavour::Key {
            return Answer::Recorded;
        }
        match self.check_request(harm, &request.target) {
            Err((has_effect, trouble)) => {
                if has_effect {
                    let _lost = self.make_credential(request, &fingerprint);
                }
                if harm == Some(Harm::Late) && trouble.leaves_effect_unknown() {
                    let at = self.now + 1 + i64::try_from(self.chance.draw_below(50)).unwrap();
                    self.late.push((at, request.clone(), fingerprint));
                }
                Answer::MintFailed(trouble)
            }
            Ok(()) => {
                let minted = self.make_credential(request, &fingerprint);
                if harm == Some(Harm::KillBetween) {
                    return Answer::Recorded;
                }
                if self.chance.is_one_of(self.trouble / 5) && self.flavour != Flavour::Key {
                    return Answer::MintedOnly(minted, "etcd is slow".to_owned());
                }
                self.staging = Some(StagedFacts {
                    nonce,
                    is_minted: true,
                    id: minted.id,
                    fingerprint,
                    expires_at: minted.expires_at,
                });
                Answer::Minted(minted)
            }
        }
    }

    /// Reads a list page by page. The list is known only once its last page is.
    pub(super) fn list_pages(
        &mut self,
        harm: Option<Harm>,
        target: &Target,
    ) -> Result<Vec<ListedCredential>, HostError> {
        let all = self.list();
        let pages = (all.len() as u64).div_ceil(self.page_size.max(1)).max(1);
        // The trouble comes with one of the pages.
        let troubled = self.chance.draw_below(pages);
        for page in 0..pages {
            let harm = harm.filter(|_| page == troubled);
            self.check_request(harm, target).map_err(|(_, trouble)| trouble)?;
        }
        Ok(all)
    }

    pub(super) fn list(&self) -> Vec<ListedCredential> {
        let others = (0..self.others).map(|number| ListedCredential {
            id: (1 << 50) + number,
            name: format!("of-somebody-{number}"),
            expires_at: None,
            is_revoked: number % 3 == 0,
            is_expired: number % 5 == 0,
            may_write: true,
            last_used_at: None,
        });
        let list = self.host.values().map(|credential| ListedCredential {
            id: credential.id,
            name: credential.name.clone(),
            expires_at: credential.expires.map(|at| Timestamp::from_second(at).unwrap()),
            is_revoked: credential.is_revoked,
            is_expired: !credential.is_revoked && !self.is_alive(credential),
            may_write: false,
            last_used_at: None,
        });
        others.chain(list).collect()
    }

    pub(super) fn answer_probe(&mut self, fingerprint: Option<&str>, harm: Option<Harm>) -> Probe {
        if let Some(HostError::Banned { until } | HostError::Limited { until }) =
            self.restraint.find_block(self.moment())
        {
            return Probe::Banned(until);
        }
        if self.host_authority.is_some() && self.authority != self.host_authority {
            return Probe::Unreachable("the certificate is of an unknown authority".to_owned());
        }
        match harm {
            Some(Harm::Banned | Harm::Limited) => {
                let until = self.draw_end();
                self.note_block(&HostError::Banned { until });
                Probe::Banned(until)
            }
            Some(Harm::LostAfter | Harm::LostBefore | Harm::Late | Harm::Html) => {
                Probe::Unreachable("timeout".to_owned())
            }
            _ if self.works(fingerprint) => Probe::Works,
            _ => Probe::Refused("401".to_owned()),
        }
    }
}
