//! Requests from the listeners of the program, on their way to lanes: artifacts for other controllers, and requests to Receivers.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_planner::artifact_address::ArtifactAddress;
use tenure_planner::receiver::{Delivery, Verdict};

use crate::artifacts::storage::locate_archive;
use crate::artifacts::untrusted_folder::open_archive;
use crate::cluster_view::key::Key;
use crate::endpoints::artifact_endpoint::{ArtifactKeeper, OpenArchive};
use crate::endpoints::receiver_endpoint::RequestForwarder;
use crate::hub::Hub;
use crate::lane::lane_table::name_share;
use crate::lane_kinds::receiver;
use crate::lane_kinds::served_source::ServedSource;

impl ArtifactKeeper for Hub {
    fn is_ready(&self) -> bool {
        self.context.ready.is_cancelled()
    }

    fn name_share(&self, namespace: &str) -> String {
        name_share(&self.find_placement(namespace), namespace)
    }

    fn open<'a>(&'a self, address: &'a ArtifactAddress) -> BoxFuture<'a, Option<OpenArchive>> {
        async move {
            if let Some(fleet) = self.fleet() {
                return fleet.open_served(address).await;
            }
            // Artifacts of another instance are not in this process.
            let shard = self.find_shard(&address.namespace)?;
            let named = ServedSource::find(&shard, address).filter(|_| self.works_on(&address.namespace))?;
            let stored = shard.artifacts.record(&named.source);
            let stored_at = named.check(address, stored.as_ref())?;
            let archive = locate_archive(&named.source, &address.digest).ok()?;
            let folder = self.context.artifact_storage.folder().to_owned();
            Some((open_archive(folder, archive).await?, stored_at))
        }
        .boxed()
    }
}

impl RequestForwarder for Hub {
    fn is_ready(&self) -> bool {
        self.context.ready.is_cancelled()
    }

    fn name_share(&self, namespace: &str) -> String {
        name_share(&self.find_placement(namespace), namespace)
    }

    fn deliver<'a>(&'a self, receiver: &'a Key, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        async move {
            if let Some(fleet) = self.fleet() {
                return fleet.deliver(receiver, delivery).await;
            }
            match self.find_shard(&receiver.namespace) {
                Some(shard) => receiver::handle_delivery(&shard, &receiver.name, delivery).await,
                None => Verdict::Unknown,
            }
        }
        .boxed()
    }

    fn announce<'a>(&'a self, url: &'a str) -> BoxFuture<'a, ()> {
        async move {
            for shard in self.list_shards() {
                receiver::announce_url(&shard, url).await;
            }
        }
        .boxed()
    }
}
