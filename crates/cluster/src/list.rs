//! Lists, page by page. Only one page of a list is in memory. A page that is too long is requested again with fewer objects. So a user that may create objects can
//! neither keep other users from listing nor make a list take more memory than a page.

use std::ops::ControlFlow;

use crate::client::Client;
use crate::discovery::Resource;
use crate::error::ClusterError;
use crate::path::{write_path, write_query};
use crate::raw_object::{RawObject, RawPage};
use crate::transport::{Call, LONGEST_ANSWER};
use crate::work_limit::WorkPermit;

/// The number of objects in the first request.
const MOST_OBJECTS: u32 = 500;
/// The longest page of several objects, in bytes. A page with a single object may have up to [`LONGEST_ANSWER`].
const LONGEST_PAGE: usize = 8 << 20;
/// The divisor for the number of objects after a page was too long.
const FEWER: u32 = 8;

/// A list that is read page by page, with the position of the next page.
pub(crate) struct PagedList<'c> {
    client: &'c Client,
    resource: &'c Resource,
    base: String,
    labels: Option<&'c str>,
    limit: u32,
    next: Option<String>,
}

/// A page of a list in memory. Until the page is dropped, its lane gets no other page.
pub(crate) struct HeldPage {
    pub(crate) items: Vec<RawObject>,
    pub(crate) resource_version: String,
    /// The length of the page's text.
    pub(crate) bytes: usize,
    _turn: Option<WorkPermit>,
}

impl<'c> PagedList<'c> {
    /// Returns a list of a namespace, or of all namespaces, without a request yet.
    pub(crate) fn new(
        client: &'c Client,
        resource: &'c Resource,
        namespace: Option<&str>,
        labels: Option<&'c str>,
    ) -> Result<Self, ClusterError> {
        Ok(Self {
            client,
            resource,
            base: write_path(resource, namespace, None, None)?,
            labels,
            limit: MOST_OBJECTS,
            next: Some(String::new()),
        })
    }

    /// Reads the next page; `None` after the last page.
    pub(crate) async fn read_next(&mut self) -> Result<Option<HeldPage>, ClusterError> {
        let Some(next) = self.next.take() else {
            return Ok(None);
        };
        // Another cluster may be slow, and its pages count against its own memory, so lists of other lanes don't wait for it.
        let turn = match self.client.terms() {
            Some(_) => None,
            None => Some(self.client.turns().take_page().await),
        };
        let (page, bytes) = loop {
            match self.read(&next).await {
                Err(ClusterError::TooLong { .. }) if self.limit > 1 => self.limit = (self.limit / FEWER).max(1),
                read => break read?,
            }
        };
        self.next = Some(page.next).filter(|next| !next.is_empty());
        Ok(Some(HeldPage {
            items: page.items,
            resource_version: page.resource_version,
            bytes,
            _turn: turn,
        }))
    }

    /// Reads a page, and returns it with the length of its text.
    async fn read(&self, next: &str) -> Result<(RawPage, usize), ClusterError> {
        let limit = self.limit.to_string();
        let mut parameters = vec![("limit", limit.as_str())];
        parameters.extend(self.labels.map(|labels| ("labelSelector", labels)));
        if !next.is_empty() {
            parameters.push(("continue", next));
        }
        let longest = if self.limit > 1 { LONGEST_PAGE } else { LONGEST_ANSWER };
        let call = Call {
            longest,
            ..Call::get(format!("{}{}", self.base, write_query(&parameters)))
        };
        let answer = self.client.ask(self.resource, &call).await?;
        let taken = || RawPage::from_text(&answer.text, self.resource);
        let page = self.client.turns().run(answer.text.len(), taken).await;
        let page = page.map_err(|error| ClusterError::Decode {
            what: call.what(),
            problem: error.to_string(),
        })?;
        Ok((page, answer.text.len()))
    }
}

/// Reads the present revision of a resource, by the shortest list.
pub(crate) async fn read_revision(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
) -> Result<String, ClusterError> {
    let mut list = PagedList::new(client, resource, namespace, None)?;
    list.limit = 1;
    let page = list.read_next().await?;
    Ok(page.map(|page| page.resource_version).unwrap_or_default())
}

/// The largest number of objects in a list that is returned as a whole.
const FEW_OBJECTS: usize = 1000;

impl Client {
    /// Reads all objects of a namespace with few objects from the API server, and not from a cache.
    ///
    /// # Errors
    /// [`ClusterError`] when the read fails, or the objects are too many.
    pub async fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<serde_json::Value>, ClusterError> {
        let mut objects = Vec::new();
        let few = |object| {
            objects.push(object);
            match objects.len() > FEW_OBJECTS {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        self.visit(resource, namespace, few).await?;
        if objects.len() > FEW_OBJECTS {
            return Err(ClusterError::Decode {
                what: format!("{} of {namespace}", resource.plural),
                problem: format!("there are more than {FEW_OBJECTS}"),
            });
        }
        Ok(objects)
    }

    /// Visits the objects of a namespace one by one, with one page in memory at a time, until the visitor has enough.
    ///
    /// # Errors
    /// [`ClusterError`] when the read fails.
    pub async fn visit(
        &self,
        resource: &Resource,
        namespace: &str,
        mut take: impl FnMut(serde_json::Value) -> ControlFlow<()>,
    ) -> Result<(), ClusterError> {
        let mut pages = PagedList::new(self, resource, Some(namespace), None)?;
        while let Some(page) = pages.read_next().await? {
            for seen in page.items {
                let read = seen.read().map_err(|error| ClusterError::Decode {
                    what: format!("{} {namespace}/{}", resource.plural, seen.name),
                    problem: error.to_string(),
                })?;
                if take(read).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
