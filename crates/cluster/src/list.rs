//! Lists, page by page. Owns how much of a list is in memory: one page, which asks for fewer objects where those are large. So nobody who
//! may create objects can keep others from listing, nor make them take more memory than a page.

use std::ops::ControlFlow;

use crate::client::Client;
use crate::discovery::Resource;
use crate::error::ClusterError;
use crate::path::{write_path, write_query};
use crate::seen::{Page, Seen};
use crate::transport::{Call, LONGEST_ANSWER};
use crate::turns::Turn;

/// How many objects are asked for at first.
const MOST_OBJECTS: u32 = 500;
/// The longest page, in bytes; one of a single object may be as long as any answer.
const LONGEST_PAGE: usize = 8 << 20;
/// What the number of objects is divided by when a page was too long.
const FEWER: u32 = 8;

/// A list that is being read.
pub(crate) struct PagedList<'c> {
    client: &'c Client,
    resource: &'c Resource,
    base: String,
    labels: Option<&'c str>,
    limit: u32,
    next: Option<String>,
}

/// One page; while it is there, its lane gets no other.
pub(crate) struct HeldPage {
    pub(crate) items: Vec<Seen>,
    pub(crate) resource_version: String,
    /// How long its text was.
    pub(crate) bytes: usize,
    _turn: Option<Turn>,
}

impl<'c> PagedList<'c> {
    /// A list of what is in a namespace, or in all. Asks for nothing yet.
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

    /// Reads the next page; nothing after the last.
    pub(crate) async fn read_next(&mut self) -> Result<Option<HeldPage>, ClusterError> {
        let Some(next) = self.next.take() else {
            return Ok(None);
        };
        // Another cluster may take its time, and what it sends takes room of its own: nobody else's lists wait for it.
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

    /// Reads a page, and says how long its text was.
    async fn read(&self, next: &str) -> Result<(Page, usize), ClusterError> {
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
        let taken = || Page::from_text(&answer.text, self.resource);
        let page = self.client.turns().run(answer.text.len(), taken).await;
        let page = page.map_err(|error| ClusterError::Decode {
            what: call.what(),
            problem: error.to_string(),
        })?;
        Ok((page, answer.text.len()))
    }
}

/// Objects of a list that is held as a whole.
const FEW_OBJECTS: usize = 1000;

impl Client {
    /// All objects of a namespace of which there are few, as they are now and not as a cache may have them.
    ///
    /// # Errors
    /// [`ClusterError`] when they can't be read, or are no few.
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

    /// Takes the objects of a namespace one by one, of which a page is held at a time, until that is enough.
    ///
    /// # Errors
    /// [`ClusterError`] when they can't be read.
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
