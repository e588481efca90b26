//! What a kind has to say of itself to be reconciled. What is the same for all kinds is written once, for any of them; what differs stands
//! in the kind's folder. Refuses to know any kind.

use std::sync::Arc;

use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cache::{self, Change};
use crate::drive::Reconciler;
use crate::key::{Key, Kind};
use crate::world::World;

/// A kind that is reconciled.
pub(crate) trait Reconciled:
    Resource<DynamicType = ()> + HasStatus<Status: Serialize> + DeserializeOwned + Send + Sync + 'static
{
    /// What is to be known of it without an object.
    const KIND: &'static Kind;

    /// Who reconciles one object.
    fn reconciler(world: Arc<World>, key: Key) -> impl Reconciler;

    /// The objects of this kind that look at another one, of any kind: they are told that it changed.
    fn list_dependents(_world: &World, _changed: &Key) -> Vec<Key> {
        Vec::new()
    }

    /// A watch told of an object. What follows besides that its reconciler is told?
    fn take_change(_world: &World, _change: &Change<Self>) {}

    /// An object is another in the cache, or gone from it, by a watch or by the answer to a write.
    fn refresh(_world: &World, _key: &Key) {}

    /// Everything that is there has been seen, and nothing is reconciled yet.
    fn take_stock(_world: Arc<World>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Takes an object from the answer to a write.
pub(crate) fn take_written<R: Reconciled>(world: &World, object: Value) {
    let Some(object) = cache::read::<R>(object) else { return };
    let key = Key::of(R::KIND, object.meta());
    world.caches.of::<R>().written(object);
    R::refresh(world, &key);
}
