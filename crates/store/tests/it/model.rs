//! Random writes compared with a plain map: the store agrees with the map at every revision and after a restart.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tenure_store::{Change, Expect, Payload, Write};

use crate::open;

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u8, any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => (0..6_u8).prop_map(Step::Delete),
        1 => Just(Step::Restart),
    ]
}

type Model = BTreeMap<String, (String, u64)>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_a_map_with_a_past(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut store = Some(open(directory.path()));
        let mut model = Model::new();
        let mut past: Vec<(u64, Model)> = vec![(1, Model::new())];
        for step in steps {
            let (key, change, value) = match step {
                Step::Put(key, value) => (key, Change::Put(Payload::plain(vec![value])), Some(value)),
                Step::Delete(key) => (key, Change::Delete(Payload::plain("gone")), None),
                Step::Restart => {
                    store = None;
                    store.get_or_insert_with(|| open(directory.path()));
                    continue;
                }
            };
            let key = format!("/{key}");
            let expect = match model.get(&key) {
                Some((_, revision)) => Expect::Revision(*revision),
                None if value.is_none() => continue,
                None => Expect::Absent,
            };
            let open_store = store.as_ref().unwrap();
            let written = runtime.block_on(open_store.write(Write { key: key.as_str().into(), expect, change, frees: false })).unwrap();
            match value {
                Some(value) => model.insert(key, (char::from(value % 128).to_string(), written.revision)),
                None => model.remove(&key),
            };
            past.push((written.revision, model.clone()));
        }
        let store = store.unwrap();
        for (revision, model) in past {
            let snapshot = store.snapshot_at(revision).unwrap();
            let held: Vec<(String, u64)> =
                snapshot.range("/", None).map(|(key, entry)| (key.to_string(), entry.revision)).collect();
            let wanted: Vec<(String, u64)> =
                model.iter().map(|(key, (_, revision))| (key.clone(), *revision)).collect();
            prop_assert_eq!(held, wanted);
        }
    }
}
