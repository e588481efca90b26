//! Lists: one consistent snapshot, selectors and pages. A list is read batch by batch, so that it is never in memory
//! as a whole.

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt as _;
use serde_json::{Value, json};
use tenure_store::{Entry, Snapshot};

use super::list_sources::{ListSource, SourceSlot};
use super::{ContinueToken, Operation, Registry, Selectors, revision};
use crate::contents::{is_verbatim, stored_prefixes};
use crate::conversion::BATCH;
use crate::http::ApiError;
use crate::long_work::{StepLimiter, run_part};
use crate::stored::decode_stored;

/// The parameter `resourceVersionMatch` of a list: the meaning of its resourceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionMatch {
    Exact,
    NotOlderThan,
}

/// Options of a list request.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) selectors: Selectors,
    pub(crate) limit: usize,
    pub(crate) continue_token: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) resource_version_match: Option<RevisionMatch>,
    /// Permits to search for the objects of a page; `None` for a user that is not counted.
    pub(crate) turns: Option<StepLimiter>,
}

/// One object of a list, decoded if an earlier step needed its value.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) entry: Arc<Entry>,
    pub(crate) decoded: Option<Value>,
}

/// One page: the facts that are known before its first object is read.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) revision: u64,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
    pub(crate) items: PageReader,
}

/// Reads the objects of a page batch by batch.
#[derive(Debug)]
pub(crate) struct PageReader {
    registry: Registry,
    op: Arc<Operation>,
    /// The selectors that are still to be applied.
    selectors: Selectors,
    slot: Arc<SourceSlot>,
    /// Whether the entries already have the form in which they are sent, whatever form is stored.
    presented: bool,
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
    /// Returns one page of the objects of a resource. Faults of the request or of stored objects are returned here,
    /// except errors of conversion webhooks.
    pub(crate) async fn list(&self, op: &Arc<Operation>, options: &ListOptions) -> Result<Listing, ApiError> {
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
            (None, Some(wanted), Some(RevisionMatch::Exact)) => {
                revision::take_snapshot_at(self.store(), wanted).await?
            }
            // A limit without a match parameter makes the revision exact: a rule that is older than the match
            // parameter.
            (None, Some(wanted), None) if options.limit > 0 => revision::take_snapshot_at(self.store(), wanted).await?,
            (None, Some(wanted), _) => revision::not_older_than(self.store(), wanted).await?,
        };
        let revision = snapshot.revision();
        let from = token.map_or_else(|| prefix.clone(), |token| format!("{prefix}{}", token.start));
        self.check_stored_versions(op, &snapshot, &prefix, &from)?;
        let mut listing = Listing {
            revision,
            next: None,
            remaining: None,
            items: PageReader {
                registry: self.clone(),
                op: op.clone(),
                selectors: options.selectors.clone(),
                slot: SourceSlot::new(ListSource::Chosen(Vec::new().into_iter())),
                presented: false,
            },
        };
        let only = options
            .selectors
            .only_name()
            .filter(|_| op.namespace.is_some() || !op.resource.namespaced);
        if let Some(name) = only {
            let entries: Vec<Arc<Entry>> = snapshot.get(&op.key(name)).cloned().into_iter().collect();
            listing.items.slot = SourceSlot::new(ListSource::Chosen(entries.into_iter()));
            return Ok(listing);
        }
        let range = |left| ListSource::Range {
            snapshot: snapshot.clone(),
            prefix: prefix.clone(),
            next: from.clone(),
            left,
        };
        if options.limit == 0 {
            listing.items.slot = SourceSlot::new(range(usize::MAX));
        } else if options.selectors.is_empty() {
            let mut keys = snapshot.range(&prefix, Some(&from));
            let last = keys.by_ref().take(options.limit).last();
            if keys.next().is_some() {
                listing.next = Some(encode_continuation(revision, &prefix, last.map(|(key, _)| &**key)));
                listing.remaining = Some(1 + keys.count());
            }
            listing.items.slot = SourceSlot::new(range(options.limit));
        } else {
            // The end of the page is known only after the selection.
            listing.items.slot = SourceSlot::new(range(usize::MAX));
            let (items, entries, next) = listing
                .items
                .choose_entries(options.limit, options.turns.as_ref())
                .await?;
            listing.items = items;
            if next && let Some(name) = entries.last().map(|entry| key_below(&prefix, op, entry)).transpose()? {
                listing.next = Some(ContinueToken::after(revision, &name).encode());
            }
            listing.items.selectors = Selectors::default();
            listing.items.slot = SourceSlot::new(ListSource::Chosen(entries.into_iter()));
        }
        Ok(listing)
    }

    /// Refuses a list with an object in a version that its definition no longer has.
    fn check_stored_versions(
        &self,
        op: &Arc<Operation>,
        snapshot: &Snapshot,
        prefix: &str,
        from: &str,
    ) -> Result<(), ApiError> {
        let known = stored_prefixes(&op.resource);
        if known.is_empty() {
            return Ok(());
        }
        for (_, entry) in snapshot.range(prefix, Some(from)) {
            if known.iter().any(|known| entry.bytes.starts_with(known)) {
                continue;
            }
            // Either this server did not write the object, or its version was removed: the second case has an error
            // of its own.
            let presented = self
                .contents()
                .present_all(&op.resource, std::slice::from_ref(entry))
                .now_or_never();
            presented.transpose()?;
        }
        Ok(())
    }

    /// Returns a page of objects that were chosen earlier.
    pub(crate) fn list_chosen(
        &self,
        op: &Arc<Operation>,
        revision: u64,
        entries: Vec<Arc<Entry>>,
        presented: bool,
    ) -> Listing {
        Listing {
            revision,
            next: None,
            remaining: None,
            items: PageReader {
                registry: self.clone(),
                op: op.clone(),
                selectors: Selectors::default(),
                slot: SourceSlot::new(ListSource::Chosen(entries.into_iter())),
                presented,
            },
        }
    }

    /// Checks whether all objects of a resource can be read.
    pub(crate) async fn check_list(&self, op: &Operation) -> Result<(), ApiError> {
        let mut page = self.list(&Arc::new(op.clone()), &ListOptions::default()).await?;
        while page.items.read_batch(SEARCHED).await?.is_some() {}
        Ok(())
    }

    /// Returns all objects of a resource, in the requested version.
    ///
    /// # Errors
    /// If a stored object is unreadable.
    pub async fn list_all(&self, op: &Operation) -> Result<(u64, Vec<Value>), ApiError> {
        let mut page = self.list(&Arc::new(op.clone()), &ListOptions::default()).await?;
        let mut objects = Vec::new();
        while let Some(batch) = page.items.read_batch(BATCH.1).await? {
            for item in batch {
                objects.push(match item.decoded {
                    Some(object) => object,
                    None => decode_stored(&item.entry)?,
                });
            }
        }
        Ok((page.revision, objects))
    }
}

impl PageReader {
    /// Counts the entries as held: after this call the client decides how fast they are read.
    pub(crate) fn limit_held_bytes(&self) {
        self.registry.hold(&self.slot);
    }

    /// Checks whether a webhook converts the objects: that may fail, and may take long.
    pub(crate) fn are_converted_elsewhere(&self) -> bool {
        !self.presented && self.op.resource.webhook().is_some()
    }

    /// Checks whether each object has to be decoded.
    pub(crate) fn are_decoded(&self) -> bool {
        !(self.presented || self.selectors.is_empty() && is_verbatim(&self.op.resource))
    }

    /// Checks whether the bytes of the entries are sent without a change.
    pub(crate) fn are_as_sent(&self) -> bool {
        self.presented || is_verbatim(&self.op.resource)
    }

    /// Returns the next objects, out of entries with this many bytes or a little more; `None` at the end. A batch
    /// without a selected object is not the end.
    pub(crate) async fn read_batch(&mut self, bytes: usize) -> Result<Option<Vec<Item>>, ApiError> {
        let Some(mut items) = self.read(bytes).await? else {
            return Ok(None);
        };
        items.retain(|item| self.selects(item));
        Ok(Some(items))
    }

    /// Returns the next objects without waiting, for lists without a conversion webhook.
    pub(crate) fn batch_now(&mut self, bytes: usize) -> Result<Option<Vec<Item>>, ApiError> {
        without_waiting(self.read_batch(bytes))
    }

    async fn read(&mut self, bytes: usize) -> Result<Option<Vec<Item>>, ApiError> {
        let entries = self.registry.take_entries(&self.slot, bytes)?;
        if entries.is_empty() {
            return Ok(None);
        }
        let mut presented = if self.are_decoded() {
            self.registry
                .contents()
                .present_all(&self.op.resource, &entries)
                .await?
                .into_iter()
        } else {
            Vec::new().into_iter()
        };
        let items = entries.into_iter().map(|entry| Item {
            entry,
            decoded: presented.next(),
        });
        Ok(Some(items.collect()))
    }

    fn selects(&self, item: &Item) -> bool {
        item.decoded
            .as_ref()
            .is_none_or(|object| self.selectors.matches(object))
    }

    /// Returns the first selected entries, and whether more entries follow. Only the first few are searched on this
    /// thread: a search may visit all objects of the resource.
    async fn choose_entries(
        mut self,
        limit: usize,
        turns: Option<&StepLimiter>,
    ) -> Result<(Self, Vec<Arc<Entry>>, bool), ApiError> {
        let (mut chosen, mut bytes) = (Vec::new(), LITTLE);
        loop {
            let found;
            if bytes <= LITTLE || self.are_converted_elsewhere() {
                found = self.search_entries(bytes).await?;
            } else {
                let searching = run_part(turns, move || {
                    let found = without_waiting(self.search_entries(bytes))?;
                    Ok::<_, ApiError>((self, found))
                });
                (self, found) = searching.await.map_err(ApiError::internal)??;
            }
            let Some(found) = found else {
                return Ok((self, chosen, false));
            };
            for (entry, is_selected) in found {
                if chosen.len() == limit {
                    // Whether the remaining entries match the selectors shows only on the next page.
                    return Ok((self, chosen, true));
                }
                if is_selected {
                    chosen.push(entry);
                }
            }
            bytes = SEARCHED;
            // A long search yields to other tasks.
            tokio::task::yield_now().await;
        }
    }

    /// Returns the next entries, and whether each is selected; `None` at the end.
    async fn search_entries(&mut self, bytes: usize) -> Result<Option<Vec<(Arc<Entry>, bool)>>, ApiError> {
        let Some(items) = self.read(bytes).await? else {
            return Ok(None);
        };
        let found = items.into_iter().map(|item| {
            let is_selected = self.selects(&item);
            (item.entry, is_selected)
        });
        Ok(Some(found.collect()))
    }
}

/// Returns the result of reading objects that no webhook converts.
pub(super) fn without_waiting<T>(reading: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let read = reading.now_or_never();
    read.unwrap_or_else(|| Err(ApiError::internal("a list without a conversion webhook had to wait")))
}

/// Bytes of entries that a list searches on the thread that serves requests, before other threads continue.
const LITTLE: usize = 16 * 1024;
/// Bytes of entries that one step searches.
const SEARCHED: usize = 256 * 1024;

/// Returns the key of an entry below a prefix.
fn key_below(prefix: &str, op: &Operation, entry: &Entry) -> Result<String, ApiError> {
    use super::ObjectExt as _;
    let object = decode_stored(entry)?;
    let namespace = Some(object.namespace()).filter(|_| op.resource.namespaced);
    let key = op.resource.key(namespace, object.name());
    Ok(key.strip_prefix(prefix).unwrap_or_default().to_owned())
}

/// Returns the token with which the next page continues.
fn encode_continuation(revision: u64, prefix: &str, last_key: Option<&str>) -> String {
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
