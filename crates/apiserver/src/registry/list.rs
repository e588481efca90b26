//! Listing: one consistent snapshot, selectors, pages.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_store::Entry;

use super::encode::decode_stored;
use super::versions::is_verbatim;
use super::{ContinueToken, Operation, Registry, Selectors, revision};
use crate::conversion::BATCH;
use crate::http::ApiError;

/// How the resourceVersion of a list is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionMatch {
    Exact,
    NotOlderThan,
}

/// What a list asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) selectors: Selectors,
    pub(crate) limit: usize,
    pub(crate) continue_token: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) resource_version_match: Option<RevisionMatch>,
}

/// One object of a list; decoded if that was necessary on the way.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) entry: Arc<Entry>,
    pub(crate) decoded: Option<Value>,
}

/// One page.
#[derive(Debug, Clone)]
pub(crate) struct ListResult {
    pub(crate) revision: u64,
    pub(crate) items: Vec<Item>,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl ListOptions {
    fn validate(&self) -> Result<(), ApiError> {
        let version = self.resource_version.as_deref().unwrap_or_default();
        if self.continue_token.is_some() && !version.is_empty() && version != "0" {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Ok(())
    }
}

impl Registry {
    /// One page of the objects of a resource.
    pub(crate) async fn list(&self, op: &Operation, options: &ListOptions) -> Result<ListResult, ApiError> {
        options.validate()?;
        let prefix = op.resource.prefix(op.namespace.as_deref());
        let token = options
            .continue_token
            .as_deref()
            .map(ContinueToken::decode)
            .transpose()?;
        let wanted = revision::parse(options.resource_version.as_deref())?;
        let snapshot = match (&token, wanted, options.resource_version_match) {
            (Some(token), _, _) => self
                .store()
                .snapshot_at(token.rv)
                .map_err(|_| expired_token(token.rv))?,
            (None, None | Some(0), _) => self.store().snapshot(),
            (None, Some(wanted), Some(RevisionMatch::Exact)) => revision::exactly(self.store(), wanted).await?,
            // Without a word on it, a limit makes the revision exact: a rule from before the match parameter existed.
            (None, Some(wanted), None) if options.limit > 0 => revision::exactly(self.store(), wanted).await?,
            (None, Some(wanted), _) => revision::not_older_than(self.store(), wanted).await?,
        };
        let revision = snapshot.revision();
        let from = token.map(|token| format!("{prefix}{}", token.start));
        let verbatim = is_verbatim(&op.resource);
        let selecting = !options.selectors.is_empty();
        let mut result = ListResult {
            revision,
            items: Vec::new(),
            next: None,
            remaining: None,
        };
        let mut last_key: Option<&str> = None;
        let only = options
            .selectors
            .only_name()
            .filter(|_| op.namespace.is_some() || !op.resource.namespaced);
        let mut range: Box<dyn Iterator<Item = (&Arc<str>, &Arc<Entry>)> + Send> = match only {
            Some(name) => {
                let key = op.key(name);
                Box::new(
                    snapshot
                        .range(&prefix, None)
                        .skip_while(move |(found, _)| ***found < *key)
                        .take(1),
                )
            }
            None => Box::new(snapshot.range(&prefix, from.as_deref())),
        };
        'pages: loop {
            let room = if options.limit > 0 {
                options.limit - result.items.len()
            } else {
                BATCH.0
            };
            if room == 0 && !selecting {
                if range.next().is_some() {
                    result.next = Some(continuation(revision, &prefix, last_key));
                    result.remaining = Some(1 + range.count());
                }
                break;
            }
            let batch = batch(range.as_mut(), if selecting { BATCH.0 } else { room });
            if batch.is_empty() {
                break;
            }
            let mut presented = if selecting || !verbatim {
                let entries: Vec<Arc<Entry>> = batch.iter().map(|(_, entry)| Arc::clone(entry)).collect();
                self.present_all(op, &entries).await?.into_iter()
            } else {
                Vec::new().into_iter()
            };
            for (key, entry) in batch {
                let decoded = presented.next();
                if options.limit > 0 && result.items.len() == options.limit {
                    // Whether what is left would be in the list is seen when it is asked for.
                    result.next = Some(continuation(revision, &prefix, last_key));
                    break 'pages;
                }
                if decoded
                    .as_ref()
                    .is_some_and(|object| !options.selectors.matches(object))
                {
                    continue;
                }
                last_key = Some(key);
                result.items.push(Item {
                    entry: entry.clone(),
                    decoded,
                });
            }
        }
        Ok(result)
    }

    /// All objects of a resource, in the requested version.
    ///
    /// # Errors
    /// When a stored object is unreadable.
    pub async fn list_all(&self, op: &Operation) -> Result<(u64, Vec<Value>), ApiError> {
        let page = self.list(op, &ListOptions::default()).await?;
        let mut objects = Vec::with_capacity(page.items.len());
        for item in page.items {
            objects.push(match item.decoded {
                Some(object) => object,
                None => decode_stored(&item.entry)?,
            });
        }
        Ok((page.revision, objects))
    }
}

/// The next entries, as many as are presented at once.
fn batch<'a>(
    range: &mut dyn Iterator<Item = (&'a Arc<str>, &'a Arc<Entry>)>,
    most: usize,
) -> Vec<(&'a Arc<str>, &'a Arc<Entry>)> {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    while taken.len() < most.min(BATCH.0)
        && bytes < BATCH.1
        && let Some(next) = range.next()
    {
        bytes += next.1.bytes.len();
        taken.push(next);
    }
    taken
}

/// Where the next page goes on.
fn continuation(revision: u64, prefix: &str, last_key: Option<&str>) -> String {
    let last = last_key.and_then(|key| key.strip_prefix(prefix)).unwrap_or_default();
    ContinueToken::after(revision, last).encode()
}

fn expired_token(revision: u64) -> ApiError {
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
    );
    error.details.insert(
        "causes".to_owned(),
        json!([{"reason": "ResourceExpired", "message": format!("the list was started at revision {revision}")}]),
    );
    error
}
