//! The table of kinds is complete, and agrees with the served resources.

use std::collections::HashSet;

use super::{find_kind, find_resource, list_kinds, list_resources};

#[test]
fn kind_names_are_unique() {
    let (mut names, mut plurals) = (HashSet::new(), HashSet::new());
    for kind in list_kinds() {
        assert!(names.insert((kind.group, kind.name)), "{kind:?}");
        assert!(plurals.insert((kind.group, kind.plural)), "{kind:?}");
    }
}

#[test]
fn every_stored_kind_says_what_it_is() {
    let stored = list_resources()
        .into_iter()
        .filter(|resource| resource.verbs.iter().any(|verb| verb == "list"));
    for resource in stored {
        let place = (resource.group.as_str(), resource.plural.as_str());
        let known = resource.behavior;
        assert_eq!((known.group, known.plural), place);
        assert_eq!(known.name, resource.kind);
        assert!(std::ptr::eq(known, find_kind(place.0, &resource.kind)));
        assert!(std::ptr::eq(known, find_resource(place.0, place.1)));
    }
}

#[test]
fn versions_agree_with_what_is_stored() {
    for resource in list_resources() {
        let kind = resource.behavior;
        if !kind.versions.is_empty() {
            assert!(kind.versions.contains(&resource.api_version().as_str()), "{kind:?}");
            assert!(
                kind.versions.contains(&resource.storage_api_version.as_str()),
                "{kind:?}"
            );
            assert!(kind.convert.is_some(), "{kind:?}");
        }
    }
}
