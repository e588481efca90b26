//! The times of each renewal as data, and a run of years in which no client ever meets a certificate that it doesn't trust.

use super::*;

fn time_at_day(days: i64) -> Timestamp {
    add_seconds(Timestamp::UNIX_EPOCH, days * DAY)
}

/// Makes a snapshot with one authority, made on the first day, and a certificate of it, made on the second.
fn make_snapshot(authority: i64, certificate: i64) -> Snapshot {
    Snapshot {
        authorities: vec![Validity::of_authority(time_at_day(authority))],
        serving: Some(ServingCertificate {
            authority: Some(0),
            validity: Validity::of_serving(time_at_day(certificate)),
            is_for_names: true,
        }),
        is_published: true,
    }
}

#[test]
fn renewal_step_follows_from_validity_and_publication() {
    let authority = |and_certificate| Step::MakeAuthority { and_certificate };
    let two = |certificate: usize, made: i64, is_published: bool| {
        let mut two = make_snapshot(0, made);
        two.authorities.push(Validity::of_authority(time_at_day(530)));
        two.is_published = is_published;
        two.serving.as_mut().unwrap().authority = Some(certificate);
        two
    };
    let mut other_names = make_snapshot(0, 0);
    other_names.serving.as_mut().unwrap().is_for_names = false;
    let mut foreign = make_snapshot(0, 0);
    foreign.serving.as_mut().unwrap().authority = None;
    let without_certificate = Snapshot {
        serving: None,
        ..make_snapshot(0, 0)
    };
    let cases = [
        ("nothing is there", Snapshot::default(), 0, authority(true), ""),
        ("all is new", make_snapshot(0, 0), 0, Step::Rest, ""),
        ("a clock that is a day behind", make_snapshot(0, 0), -1, Step::Rest, ""),
        ("a clock that is a day ahead", make_snapshot(0, 0), 1, Step::Rest, ""),
        (
            "a clock that is a week behind",
            make_snapshot(0, 0),
            -7,
            authority(true),
            "this clock is wrong",
        ),
        (
            "two thirds are over",
            make_snapshot(0, 0),
            61,
            Step::MakeCertificate,
            "",
        ),
        ("just before", make_snapshot(0, 0), 59, Step::Rest, ""),
        (
            "the certificate has ended",
            make_snapshot(0, 0),
            100,
            Step::MakeCertificate,
            "ended at 1970-04-01T00:00:00Z",
        ),
        (
            "both have ended",
            make_snapshot(0, 0),
            1000,
            authority(true),
            "no controller that could renew it has run since",
        ),
        (
            "the authority gets old",
            make_snapshot(0, 520),
            531,
            authority(false),
            "",
        ),
        (
            "the next one isn't trusted yet",
            two(0, 520, false),
            531,
            Step::Rest,
            "",
        ),
        ("it is", two(0, 520, true), 531, Step::MakeCertificate, ""),
        (
            "nobody shows the old one's any more",
            two(1, 531, true),
            532,
            Step::Forget(1),
            "",
        ),
        ("somebody may", two(1, 532, true), 532, Step::Rest, ""),
        ("other names", other_names, 1, Step::MakeCertificate, ""),
        (
            "somebody else's certificate",
            foreign,
            1,
            Step::MakeCertificate,
            "the Secret was changed from outside",
        ),
        ("no certificate", without_certificate, 1, Step::MakeCertificate, ""),
    ];
    for (name, snapshot, at, step, problem) in cases {
        let plan = plan(&snapshot, time_at_day(at));
        assert_eq!(plan.step, step, "{name}");
        let reported = plan.problem.unwrap_or_default();
        assert!(
            reported.contains(problem) && reported.is_empty() == problem.is_empty(),
            "{name}: {reported}"
        );
    }
}

/// The stored certificates, and the copies that the API server and another process know. A copy may be minutes old.
#[derive(Clone, Default)]
struct World {
    kept: Vec<(u64, Validity)>,
    serving: Option<(u64, Validity)>,
    next: u64,
}

#[test]
fn lagging_client_never_meets_untrusted_certificate() {
    for lag in [0, 1, 3, 8] {
        let mut world = World::default();
        // The states minute by minute, as far back as any process may lag.
        let mut past: Vec<World> = Vec::new();
        let (mut certificates, mut authorities) = (0, 0);
        let mut now = time_at_day(0);
        let end = time_at_day(5 * 365);
        while now < end {
            let at = |id: u64| world.kept.iter().position(|(kept, _)| *kept == id);
            let trusted: Vec<u64> = past.first().unwrap_or(&world).kept.iter().map(|(id, _)| *id).collect();
            let snapshot = Snapshot {
                authorities: world.kept.iter().map(|(_, validity)| *validity).collect(),
                serving: world.serving.map(|(id, validity)| ServingCertificate {
                    authority: at(id),
                    validity,
                    is_for_names: true,
                }),
                is_published: world.kept.iter().all(|(id, _)| trusted.contains(id)),
            };
            let step = plan(&snapshot, now).step;
            match step {
                Step::Rest => {}
                Step::MakeAuthority { and_certificate } => {
                    authorities += 1;
                    world.next += 1;
                    world.kept.push((world.next, Validity::of_authority(now)));
                    if and_certificate {
                        world.serving = Some((world.next, Validity::of_serving(now)));
                    }
                }
                Step::MakeCertificate => {
                    certificates += 1;
                    world.serving = Some((world.kept.last().unwrap().0, Validity::of_serving(now)));
                }
                Step::Forget(count) => drop(world.kept.drain(..count)),
            }
            past.push(world.clone());
            if past.len() > lag + 1 {
                past.remove(0);
            }
            // One process shows a certificate and another one trusts an authority, each as of any of these minutes.
            if now > time_at_day(1) {
                for shows in &past {
                    for trusts in &past {
                        let (id, validity) = shows.serving.unwrap();
                        let authority = trusts.kept.iter().find(|(kept, _)| *kept == id);
                        let holds =
                            authority.is_some_and(|(_, authority)| authority.is_valid(now)) && validity.is_valid(now);
                        assert!(holds, "{lag} minutes behind, {now}");
                    }
                }
            }
            // The run goes minute by minute while something happens, else by hours.
            let is_busy = step != Step::Rest || world.kept.len() > 1 || now < time_at_day(1);
            now = add_seconds(now, if is_busy { MINUTE } else { 60 * MINUTE });
            if !is_busy {
                past = vec![world.clone()];
            }
        }
        assert!(certificates > 25 && authorities > 2, "{certificates} {authorities}");
        assert!(world.kept.len() <= 2);
    }
}
