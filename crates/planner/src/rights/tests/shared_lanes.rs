//! Questions about a shared lane's tokens of administrators.

use super::*;

#[test]
fn shared_lane_that_mints_an_administrator_is_reported() {
    for (is_protected, is_reported) in [(false, true), (true, false)] {
        let mut world = World::new();
        world.minting = Ok(vec!["mighty".to_owned()]);
        world.snapshot.placement = Placement::Unclaimed {
            default_service_account: "default".to_owned(),
            is_protected,
        };
        world.run();
        assert!(world.read_admitted().is_some(), "a report stops no lane");
        let reasons: Vec<&str> = world.events.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!(reasons == ["LaneMintsAdministrator"], is_reported, "{reasons:?}");
        assert_eq!(world.snapshot.memory.shared_minting().is_some(), is_reported);
    }
    let answer = json!({ "status": { "resourceRules": [
        { "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["mint"] },
        { "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["mint-administrator"], "resourceNames": ["mighty"] },
    ] } });
    assert_eq!(read_minting_review(&answer), ["mighty"]);
    let all = json!({ "status": { "resourceRules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] } });
    assert_eq!(read_minting_review(&all), ["*"]);
}

/// The review lists the administrators' tokens that the lane can get.
#[test]
fn shared_lane_minting_is_reviewed_again() {
    let mut world = World::new();
    let next = world.run().unwrap();
    assert_eq!(world.snapshot.memory.shared_minting(), None);
    // An administrator grants the verb later. The API server is asked when the next review is due.
    world.minting = Ok(vec!["mighty".to_owned()]);
    world.take_done();
    world.now = add_duration(next, Duration::from_secs(1));
    let next = world.run().unwrap();
    assert_eq!(world.take_done(), Vec::<String>::new());
    let granted = |world: &mut World, now| {
        world.now = now;
        let next = world.run().unwrap();
        let found = world.snapshot.memory.shared_minting().map(ToString::to_string);
        (next, found.unwrap_or_default(), world.events.len())
    };
    let (next, found, events) = granted(&mut world, next);
    assert!(
        found.contains("Namespace/team: system:serviceaccount:tenure-system:tenure-lane-pool"),
        "{found}"
    );
    assert!(found.contains("(serviceaccounts mighty)"), "{found}");
    // An answer that is missing changes nothing, and the same answer is one event.
    world.minting = Err("the server is away".to_owned());
    let (next, same, _) = granted(&mut world, next);
    assert_eq!(same, found);
    world.minting = Ok(vec!["mighty".to_owned()]);
    let (next, same, still) = granted(&mut world, next);
    assert_eq!((same, still), (found, events));
    world.minting = Ok(Vec::new());
    let (_, none, still) = granted(&mut world, next);
    assert_eq!((none.as_str(), still), ("", events));
    // Another lane is asked at once.
    world.snapshot.placement = make_placement("blue");
    world.take_done();
    world.run();
    let asked = world.take_done();
    assert!(
        asked.iter().any(|step| step.contains("which administrators' tokens")),
        "{asked:?}"
    );
}

/// A request that failed proves nothing.
#[test]
fn a_lane_that_could_not_be_asked_is_reported() {
    let mut world = World::new();
    world.minting = Err("the server is away".to_owned());
    world.run();
    let found = world.snapshot.memory.shared_minting().cloned().unwrap();
    assert!(
        !found.is_known() && found.to_string().contains("isn't known: the server is away"),
        "{found}"
    );
    assert!(world.events.is_empty(), "{:?}", world.events);
    let judged = crate::enforcement::assess_lanes([&found].into_iter());
    assert_eq!((judged.is_in_force, judged.reason), (false, "NotReported"));
    world.minting = Ok(Vec::new());
    world.now = add_duration(world.now, MINTING_REVIEWS.1);
    world.run();
    assert_eq!(world.snapshot.memory.shared_minting(), None);
}
