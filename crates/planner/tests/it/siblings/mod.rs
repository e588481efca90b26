//! Several Kustomizations of one source on one small cluster, each planned in turn by a schedule. Objects that one commit moves between them are never deleted, an
//! object that two want stays with the first, and no Kustomization waits for ever. The clock never reaches a timeout, so that no timeout decides a case.

mod play;

use jiff::SignedDuration;

use play::*;

#[test]
fn object_moved_by_one_commit_is_never_deleted() {
    let both = make_builds(&[
        ("1", &[("one", &["x", "stays"]), ("two", &["y"]), ("three", &[])]),
        ("2", &[("one", &["stays", "y"]), ("two", &["x"]), ("three", &[])]),
    ]);
    let depends: [&[(&str, &str)]; 4] = [
        &[],
        &[("two", "one")],
        &[("one", "two")],
        &[("two", "three"), ("three", "one")],
    ];
    for depends_on in depends {
        for start in 0..15_u64 {
            let mut seed = start;
            let mut play = Play::new(both.clone(), depends_on);
            play.set_source("1");
            play.run_until_settled(&mut seed);
            let (x, by) = play.uid_and_owner("x").unwrap_or_else(|| panic!("{}", play.account));
            assert_eq!(by, "one");
            let (y, by) = play.uid_and_owner("y").unwrap();
            assert_eq!(by, "two");
            play.set_source("2");
            play.run_until_settled(&mut seed);
            play.run_until_settled(&mut seed);
            let expected = |uid: &str, by: &str| Some((uid.to_owned(), by.to_owned()));
            let (now_x, now_y) = (play.uid_and_owner("x"), play.uid_and_owner("y"));
            assert_eq!(now_x, expected(&x, "two"), "{depends_on:?} {start}\n{}", play.account);
            assert_eq!(now_y, expected(&y, "one"), "{depends_on:?} {start}\n{}", play.account);
            for name in ["one", "two", "three"] {
                let ready = play.read_ready(name);
                assert!(
                    ready.starts_with("True"),
                    "{depends_on:?} {start} {name}: {ready}\n{}",
                    play.account
                );
            }
            assert!(play.names_object("two", &make_id("x")) && !play.names_object("one", &make_id("x")));
            assert!(play.names_object("one", &make_id("y")) && !play.names_object("two", &make_id("y")));
        }
    }
}

#[test]
fn unwanted_object_is_deleted_after_all_siblings_looked() {
    let gone = make_builds(&[
        ("1", &[("one", &["x"]), ("two", &["y"]), ("three", &[])]),
        ("2", &[("one", &[]), ("two", &["y"]), ("three", &["z"])]),
    ]);
    for depends_on in [&[][..], &[("two", "one")], &[("one", "two"), ("two", "three")]] {
        for start in 0..12_u64 {
            let mut seed = start;
            let mut play = Play::new(gone.clone(), depends_on);
            play.set_source("1");
            play.run_until_settled(&mut seed);
            assert!(play.uid_and_owner("x").is_some());
            play.set_source("2");
            play.run_until_settled(&mut seed);
            play.run_until_settled(&mut seed);
            assert_eq!(
                play.uid_and_owner("x"),
                None,
                "{depends_on:?} {start}\n{}",
                play.account
            );
            assert!(play.read_ready("one").starts_with("True"), "{}", play.account);
            assert!(!play.names_object("one", &make_id("x")));
        }
    }
}

/// A watch reports no such object, and another client has created it since.
#[test]
fn unreported_object_stays_with_its_creator() {
    let all = make_builds(&[("1", &[("one", &["x"]), ("two", &["x"]), ("three", &["y"])])]);
    let mut play = Play::new(all, &[]);
    play.set_source("1");
    for _ in 0..20 {
        play.take_turn("one");
    }
    assert!(play.read_ready("one").starts_with("True"), "{}", play.account);
    play.unreported.extend([make_id("x"), make_id("y")]);
    for _ in 0..20 {
        play.take_turn("two");
        play.take_turn("three");
    }
    let ready = play.read_ready("two");
    assert!(ready.starts_with("False OwnedByAnother"), "{ready}\n{}", play.account);
    assert_eq!(play.uid_and_owner("x").unwrap().1, "one", "{}", play.account);
    assert!(play.parties["two"].read.contains(&make_id("x")));
    // An object that didn't exist is created without a read.
    assert!(play.read_ready("three").starts_with("True"), "{}", play.account);
    assert!(play.parties["three"].read.is_empty());
}

#[test]
fn contested_object_stays_with_first_and_nothing_is_lost() {
    let contested = make_builds(&[
        ("1", &[("one", &["x"]), ("two", &["x", "y"])]),
        ("2", &[("one", &["x"]), ("two", &["y"])]),
    ]);
    for start in 0..15_u64 {
        let mut seed = start;
        let mut play = Play::new(contested.clone(), &[]);
        play.set_source("1");
        play.run_until_settled(&mut seed);
        let (uid, first) = play.uid_and_owner("x").unwrap_or_else(|| panic!("{}", play.account));
        let second = if first == "one" { "two" } else { "one" };
        assert!(play.read_ready(&first).starts_with("True"), "{}", play.account);
        let ready = play.read_ready(second);
        assert!(
            ready.starts_with("False OwnedByAnother") && ready.contains(&format!("Kustomization team/{first}")),
            "{start}: {ready}\n{}",
            play.account
        );
        // With any previous owner, the object is never deleted, and ends with the Kustomization that wants it.
        play.set_source("2");
        play.run_until_settled(&mut seed);
        play.run_until_settled(&mut seed);
        assert_eq!(
            play.uid_and_owner("x"),
            Some((uid, "one".to_owned())),
            "{start}\n{}",
            play.account
        );
        for name in ["one", "two"] {
            assert!(play.read_ready(name).starts_with("True"), "{}", play.account);
        }
    }
}

#[test]
fn a_rename_deletes_nothing() {
    // The objects of `old` move to `new` and partly to `other`; no Kustomization wants the last object any more.
    let renamed = make_builds(&[
        ("1", &[("old", &["x", "y", "z"]), ("new", &[]), ("other", &[])]),
        ("2", &[("old", &["x", "y", "z"]), ("new", &["x"]), ("other", &["y"])]),
    ]);
    for depends_on in [&[][..], &[("new", "other")]] {
        for start in 0..15_u64 {
            let mut seed = start;
            let mut play = Play::new(renamed.clone(), depends_on);
            play.set_source("1");
            play.run_until_settled(&mut seed);
            let (x, _) = play.uid_and_owner("x").unwrap_or_else(|| panic!("{}", play.account));
            let (y, _) = play.uid_and_owner("y").unwrap();
            play.set_source("2");
            // The Kustomization is deleted before the others have seen the commit, or after they have learned that it keeps the objects that they want.
            if start % 2 == 0 {
                play.run_until_settled(&mut seed);
                let ready = play.read_ready("other");
                assert!(ready.starts_with("False OwnedByAnother"), "{ready}\n{}", play.account);
            }
            // The reported turnover is lost with the process, and the Kustomization that is deleted is planned first.
            if start % 4 == 0 {
                play.restart();
            }
            play.delete("old");
            if start % 4 == 0 {
                (0..6).for_each(|_| play.take_turn("old"));
            }
            play.run_until_settled(&mut seed);
            play.run_until_settled(&mut seed);
            assert!(!play.parties.contains_key("old"), "{start}\n{}", play.account);
            let now: Vec<_> = ["x", "y", "z"].map(|name| play.uid_and_owner(name)).into();
            let expected = [Some((x, "new".to_owned())), Some((y, "other".to_owned())), None];
            assert_eq!(now, expected, "{depends_on:?} {start}\n{}", play.account);
            for name in ["new", "other"] {
                let ready = play.read_ready(name);
                assert!(ready.starts_with("True"), "{name}: {ready}\n{}", play.account);
            }
        }
    }
}

#[test]
fn deletion_waits_for_siblings_only_limited_time() {
    let builds = make_builds(&[
        ("1", &[("old", &["x"]), ("idle", &[]), ("stuck", &[])]),
        ("2", &[("old", &["x"]), ("idle", &["x"]), ("stuck", &[])]),
    ]);
    let mut seed = 7;
    let mut play = Play::new(builds, &[]);
    play.set_source("1");
    play.run_until_settled(&mut seed);
    play.set_source("2");
    // One Kustomization is suspended, and one never looks.
    let idle = play.parties.get_mut("idle").unwrap();
    idle.snapshot.kustomization.spec.suspend = true;
    play.delete("old");
    for turn in 0..=LONGEST_LOOK + 5 {
        if !play.parties.contains_key("old") {
            assert!(turn >= LONGEST_LOOK, "{}", play.account);
            break;
        }
        play.take_turn("old");
    }
    assert!(!play.parties.contains_key("old"), "{}", play.account);
    assert_eq!(play.uid_and_owner("x"), None);
    assert!(
        play.account.contains("Kustomization/team/stuck has not looked yet"),
        "{}",
        play.account
    );
}

/// The dependent Kustomization can't begin before its dependency is Ready, and the dependency isn't Ready while it waits for others.
#[test]
fn dependent_kustomization_gets_its_own_timeout() {
    let moved = make_builds(&[
        ("1", &[("one", &["x", "stays"]), ("after", &[]), ("stuck", &[])]),
        ("2", &[("one", &["stays"]), ("after", &["x"]), ("stuck", &[])]),
    ]);
    let timeout = SignedDuration::from_mins(10);
    for comes in [true, false] {
        let mut seed = 3;
        let mut play = Play::new(moved.clone(), &[("after", "one")]);
        play.set_source("1");
        play.run_until_settled(&mut seed);
        let (x, _) = play.uid_and_owner("x").unwrap_or_else(|| panic!("{}", play.account));
        play.set_source("2");
        let turns = |play: &mut Play, name| (0..12).for_each(|_| play.take_turn(name));
        // `stuck` never looks, and `after` waits for `one`.
        turns(&mut play, "one");
        turns(&mut play, "after");
        assert!(
            play.account.contains("is reached by Kustomization/team/stuck"),
            "{}",
            play.account
        );
        play.now += timeout;
        turns(&mut play, "one");
        assert!(play.read_ready("one").starts_with("True"), "{}", play.account);
        assert_eq!(
            play.uid_and_owner("x").map(|(uid, _)| uid),
            Some(x.clone()),
            "{}",
            play.account
        );
        if comes {
            turns(&mut play, "after");
            assert_eq!(
                play.uid_and_owner("x"),
                Some((x, "after".to_owned())),
                "{}",
                play.account
            );
        } else {
            // Neither is it waited for without an end.
            play.now += timeout;
            turns(&mut play, "one");
            assert_eq!(play.uid_and_owner("x"), None, "{}", play.account);
        }
    }
}
