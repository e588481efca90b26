//! A kind that no file of `tenure_kinds` has is written to the store: its value alone defines its behaviour.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_auth::identity::UserInfo;
use tenure_kinds::kind::{self, Generation, Kind, Origin, Plugin, Rule, ServiceRange, Subresource};
use tenure_kinds::object::{ObjectExt as _, set_status};
use tenure_store::{Limits, Store};

use super::{Answer, DeleteOptions, Deleted, Operation, Outcome, Registry};
use crate::catalog::{Catalog, Resource};
use crate::kind_properties;
use crate::stored::decode_stored;

static ASKED: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn record_hook(hook: &'static str) {
    ASKED.lock().push(hook);
}

fn list_recorded_hooks() -> Vec<&'static str> {
    let mut asked = std::mem::take(&mut *ASKED.lock());
    asked.dedup();
    asked
}

/// Gadgets look like ConfigMaps, as their type has to be a known one.
static GADGET: Kind = Kind {
    is_answered_when_deleted: true,
    needs_resource_version: true,
    generation: Generation::Counted,
    initial_status: Some(|| json!({"phase": "New"})),
    normalize: |_, _| record_hook("normalize"),
    defaults: |_, object| {
        record_hook("defaults");
        object.insert("immutable".to_owned(), json!(false));
    },
    write_nulls: |_, _, _| record_hook("write_nulls"),
    drop_disabled: |_, _| record_hook("drop_disabled"),
    prepare_create: |request, object| {
        record_hook("prepare_create");
        object.set_meta("annotations", json!({"by": request.user.name}));
        (request.warn)("a gadget".to_owned());
    },
    complete_created: |_| record_hook("complete_created"),
    prepare_update: |_, _, _| record_hook("prepare_update"),
    prepare_delete: |object, _| {
        record_hook("prepare_delete");
        set_status(object, json!({"phase": "Going"}));
    },
    reset: |_, _, _| {
        record_hook("reset");
        None
    },
    keep_from_status: |_, _| record_hook("keep_from_status"),
    check_rights: |admitted, _| {
        record_hook("check_rights");
        assert!((admitted.plural_of)("", "v1", "Pod").is_some_and(|plural| plural == "pods"));
        Vec::new()
    },
    check_create: |request, _| {
        record_hook("check_create");
        assert!(request.objects.list("", "gadgets", None).is_empty());
        Vec::new()
    },
    check_update: |_, _, _| {
        record_hook("check_update");
        Vec::new()
    },
    validate: |_, _| record_hook("validate"),
    validate_create: |_, _| record_hook("validate_create"),
    validate_update: |_, _, _| record_hook("validate_update"),
    validate_status: |_, _, _| record_hook("validate_status"),
    validate_part: |_, _, _| {
        record_hook("validate_part");
        None
    },
    warnings: |_, _| {
        record_hook("warnings");
        vec!["it is experimental".to_owned()]
    },
    admission: &[Rule {
        mutate: |admitted, object| {
            record_hook("admission mutates");
            assert_eq!(admitted.is_creation(), admitted.old.is_none() && admitted.is_whole());
            object.set_meta("labels", json!({"admitted": "yes"}));
            Ok(())
        },
        validate: |_, object| {
            record_hook("admission validates");
            match object.pointer("/data/refused") {
                Some(_) => Err("gadgets are not refused".to_owned()),
                None => Ok(()),
            }
        },
        ..Rule::new(Plugin::Priority)
    }],
    cells: |object, _| vec![object.name().into(), "shown".into()],
    ..Kind::new("", "ConfigMap", "gadgets")
};

fn gadgets() -> Resource {
    let verbs = ["create", "delete", "get", "update"].map(str::to_owned).to_vec();
    let status = Subresource {
        name: "status".to_owned(),
        group: String::new(),
        version: String::new(),
        kind: "ConfigMap".to_owned(),
        verbs: verbs.clone(),
    };
    let served = kind::Resource {
        group: String::new(),
        version: "v1".to_owned(),
        plural: "gadgets".to_owned(),
        singular: "gadget".to_owned(),
        kind: "ConfigMap".to_owned(),
        list_kind: "GadgetList".to_owned(),
        namespaced: false,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs,
        subresources: vec![status],
        stored_as: (String::new(), "gadgets".to_owned()),
        storage_api_version: "v1".to_owned(),
        behavior: &GADGET,
        origin: Origin::Builtin,
    };
    Resource::new(served, None)
}

fn object_of(outcome: Outcome) -> Value {
    match outcome.answer {
        Answer::Stored(entry) => decode_stored(&entry).unwrap(),
        Answer::Object(object) => object,
    }
}

#[tokio::test]
async fn a_kind_is_its_value() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), Limits::default()).unwrap();
    let registry = Registry::new(store, Catalog::builtin(), ServiceRange::default());
    let resource = Arc::new(gadgets());
    let op = || Operation::new(resource.clone(), None, UserInfo::loopback(), "test");

    let creating = op();
    let sent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}});
    let created = object_of(registry.create(&creating, sent).await.unwrap());
    assert_eq!(
        list_recorded_hooks(),
        [
            "write_nulls",
            "normalize",
            "defaults",
            "admission mutates",
            "drop_disabled",
            "prepare_create",
            "write_nulls",
            "check_create",
            "validate",
            "validate_create",
            "check_rights",
            "warnings",
            "admission validates",
            "complete_created",
        ]
    );
    assert_eq!(created["immutable"], json!(false));
    assert_eq!(created["metadata"]["labels"]["admitted"], json!("yes"));
    assert_eq!(created["status"], json!({"phase": "New"}));
    assert_eq!(created["metadata"]["generation"], json!(1));
    assert_eq!(
        created["metadata"]["annotations"]["by"],
        json!(UserInfo::loopback().name)
    );
    assert_eq!(*creating.warnings.lock(), ["a gadget", "it is experimental"]);

    let mut changed = created.clone();
    changed["data"]["a"] = json!("c");
    changed["status"] = json!({"phase": "Old"});
    let updated = object_of(registry.update(&op(), "one", changed).await.unwrap());
    let during = list_recorded_hooks();
    for hook in [
        "reset",
        "prepare_update",
        "admission mutates",
        "check_update",
        "validate_part",
        "validate_update",
        "check_rights",
        "admission validates",
    ] {
        assert!(during.contains(&hook), "{hook} of {during:?}");
    }
    assert_eq!(updated["metadata"]["generation"], json!(2));
    assert_eq!(
        updated["status"],
        json!({"phase": "New"}),
        "status has an endpoint of its own"
    );

    let mut to_be_denied = updated.clone();
    to_be_denied["data"]["refused"] = json!("");
    let denied = registry.update(&op(), "one", to_be_denied).await.unwrap_err();
    assert_eq!(denied.code, 403, "{denied}");
    assert!(denied.message.ends_with("gadgets are not refused"), "{denied}");

    let mut without_version = updated.clone();
    without_version.remove_meta("resourceVersion");
    let refused = registry.update(&op(), "one", without_version).await.unwrap_err();
    assert_eq!(refused.code, 422, "{refused}");
    list_recorded_hooks();

    let mut held = updated.clone();
    held["status"] = json!({"phase": "Held"});
    held.set_meta("finalizers", json!(["example.com/held"]));
    let held = object_of(registry.update(&op().subresource("status"), "one", held).await.unwrap());
    let during = list_recorded_hooks();
    for hook in ["keep_from_status", "validate_status"] {
        assert!(during.contains(&hook), "{hook} of {during:?}");
    }
    assert_eq!(held["status"], json!({"phase": "Held"}));

    let deleted = registry.delete(&op(), "one", &DeleteOptions::default()).await.unwrap();
    assert!(list_recorded_hooks().contains(&"prepare_delete"));
    let Deleted::Waiting(going) = deleted else {
        panic!("its finalizer holds it");
    };
    assert_eq!(going["status"], json!({"phase": "Going"}));

    let columns = kind_properties::find_columns(&resource);
    assert_eq!(
        columns.cells(&going, Timestamp::UNIX_EPOCH),
        [json!("one"), json!("shown")]
    );
}
