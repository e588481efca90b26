//! The conversation with a Git server: its references, and a pack of requested objects.
//!
//! The same steps serve every repository of a fetch. All repositories of a fetch share one dialer, and so one allowance of bytes, one deadline and one account.

use tokio::time::Instant;

use crate::artifact::{ArtifactStore, IncomingFile};
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::fetch_budgets::{FetchBudgets, GrowingCharge};
use crate::git::oid::{Algorithm, Oid};
use crate::git::wire::{self, Advertisement, PackRequest, PackWriter, RemoteReference};
use crate::limits::Limits;
use crate::secret::{Credentials, TlsOptions};
use crate::transport::Transport;
use crate::url::RemoteUrl;

/// Bytes of the buffers of a connection.
const CONNECTION_BYTES: u64 = 512 << 10;

/// The URL of a Git repository, with the credentials and TLS settings for its server.
#[derive(Debug, Clone)]
pub(crate) struct RemoteRepository {
    pub(crate) url: RemoteUrl,
    pub(crate) credentials: Credentials,
    pub(crate) tls: TlsOptions,
}

/// Requests references and packs of one repository from its server, within the limits and budgets of the fetch.
pub(crate) struct PackTransfer<'a> {
    pub(crate) remote: &'a RemoteRepository,
    pub(crate) dialer: &'a Dialer,
    pub(crate) limits: &'a Limits,
    pub(crate) store: &'a ArtifactStore,
    pub(crate) account: &'a FetchBudgets,
    pub(crate) deadline: Instant,
}

/// A received pack, and the hash algorithm of its ids.
pub(crate) struct ReceivedPack {
    pub(crate) pack: IncomingFile,
    pub(crate) algorithm: Algorithm,
}

impl PackTransfer<'_> {
    /// Acquires memory for a connection. The server's list of references comes on top.
    pub(crate) async fn acquire_memory(&self) -> Result<GrowingCharge, FetchError> {
        let FetchBudgets { lane, memory, .. } = self.account;
        let held = memory.acquire(lane, CONNECTION_BYTES, self.deadline).await?;
        Ok(GrowingCharge::new_used(held))
    }

    /// Receives a bare commit: directly if the server allows it, else with the history of its branch. Returns `None` if no branch can contain the commit. The caller
    /// still has to check whether the pack contains the commit.
    pub(crate) async fn receive_commit(
        &self,
        commit: Oid,
        branch: Option<&str>,
    ) -> Result<Option<ReceivedPack>, FetchError> {
        let mut memory = self.acquire_memory().await?;
        let (mut transport, advertisement) = self.connect(&mut memory).await?;
        let algorithm = advertisement.algorithm();
        let direct = match &advertisement {
            Advertisement::Two { .. } => true,
            Advertisement::Zero {
                capabilities,
                references,
                ..
            } => {
                references.iter().any(|reference| reference.oid == commit)
                    || capabilities.iter().any(|offered| {
                        matches!(
                            offered.as_str(),
                            "allow-reachable-sha1-in-want" | "allow-any-sha1-in-want"
                        )
                    })
            }
        };
        if direct {
            let ask = PackRequest::new(&advertisement, &[commit], true);
            match self.receive_pack(&mut transport, ask).await {
                Ok(pack) => return Ok(Some(ReceivedPack { pack: pack?, algorithm })),
                // The server may give out only the tips of references.
                Err(wire::WireError::Remote(message)) => {
                    tracing::debug!(%message, "the server refuses a commit by its id");
                }
                Err(error) => return Err(self.explain_error(&transport, error)),
            }
        }
        drop(transport);
        let (mut transport, advertisement) = self.connect(&mut memory).await?;
        let prefix = branch.unwrap_or("refs/heads/").to_owned();
        let references = self
            .list(&mut transport, &advertisement, vec![prefix], &mut memory)
            .await?;
        let mut wants: Vec<Oid> = references
            .iter()
            .filter(|reference| match branch {
                Some(name) => reference.name == *name,
                None => reference.name.starts_with("refs/heads/"),
            })
            .map(|reference| reference.oid)
            .collect();
        wants.sort_unstable();
        wants.dedup();
        if wants.is_empty() {
            return Ok(None);
        }
        let ask = PackRequest::new(&advertisement, &wants, false);
        let pack = self.receive_explained(&mut transport, ask).await?;
        Ok(Some(ReceivedPack { pack, algorithm }))
    }

    pub(crate) async fn connect(&self, memory: &mut GrowingCharge) -> Result<(Transport, Advertisement), FetchError> {
        let mut transport = Transport::open(self.remote, self.dialer).await?;
        match Advertisement::read(transport.reader(), self.limits, memory).await {
            Ok(advertisement) => Ok((transport, advertisement)),
            Err(error) => Err(self.explain_error(&transport, error)),
        }
    }

    /// Lists the references of the server under these prefixes.
    pub(crate) async fn list(
        &self,
        transport: &mut Transport,
        advertisement: &Advertisement,
        prefixes: Vec<String>,
        memory: &mut GrowingCharge,
    ) -> Result<Vec<RemoteReference>, FetchError> {
        match advertisement {
            Advertisement::Zero { references, .. } => Ok(references.clone()),
            Advertisement::Two { algorithm, .. } => {
                transport.send(wire::write_list_request(*algorithm, &prefixes)).await?;
                let list = wire::read_list(transport.reader(), self.limits, memory).await;
                list.map_err(|error| self.explain_error(transport, error))
            }
        }
    }

    /// Receives a pack into a file, with explained errors.
    pub(crate) async fn receive_explained(
        &self,
        transport: &mut Transport,
        ask: PackRequest,
    ) -> Result<IncomingFile, FetchError> {
        let received = self.receive_pack(transport, ask).await;
        received.map_err(|error| self.explain_error(transport, error))?
    }

    /// Receives a pack into a file. The outer error is the conversation's, the inner one everything else.
    async fn receive_pack(
        &self,
        transport: &mut Transport,
        ask: PackRequest,
    ) -> Result<Result<IncomingFile, FetchError>, wire::WireError> {
        let mut ask = ask;
        let mut incoming = match self.store.incoming_file(&self.account.lane) {
            Ok(incoming) => incoming,
            Err(error) => return Ok(Err(error.into())),
        };
        if let Err(error) = transport.send(std::mem::take(&mut ask.body)).await {
            return Ok(Err(error));
        }
        // This task writes to the disk itself: pieces of 64 KiB go to the page cache, so the task blocks only briefly.
        let mut out = incoming.task_writer(self.store);
        let mut writer = PackWriter::new(&mut out, self.limits);
        ask.read(transport.reader(), &mut writer).await?;
        drop(out);
        incoming.complete();
        Ok(Ok(incoming))
    }

    fn explain_error(&self, transport: &Transport, error: wire::WireError) -> FetchError {
        transport.explain_error(error, &self.remote.url.to_string())
    }
}
