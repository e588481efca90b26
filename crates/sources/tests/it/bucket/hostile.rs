//! Hostile stores and buckets.

use std::time::Duration;

use tenure_bucket_server::{Answer, RecordedRequest};
use tenure_remote_requests::bucket::FetchRequest;
use tenure_remote_requests::fetch::{FetchFailure, FetchReason};
use tenure_sources::{BucketError, BudgetLimits, ByteBudget};

use super::Stand;
use crate::bed::noise;

fn is_list(request: &RecordedRequest) -> bool {
    request.target.contains("list-type")
}

fn make_page(objects: &str, more: &str) -> Answer {
    Answer::new(200, format!("<ListBucketResult>{objects}{more}</ListBucketResult>"))
}

#[tokio::test]
async fn a_store_says_when_it_may_be_asked_again() {
    let stand = Stand::new().await;
    stand.put(&[("a", "1")]);
    for (wait, expected) in [("120", Some(120)), ("soon", None)] {
        // To the list, and to one object.
        for of_list in [true, false] {
            stand.server.answer_with(move |request| {
                (is_list(request) == of_list && !request.target.contains(".sourceignore"))
                    .then(|| Answer::error(503, "SlowDown", "").with("Retry-After", wait))
            });
            let (error, message) = stand.refuse(stand.make_request()).await;
            let failure = FetchFailure::from(&error);
            assert_eq!(failure.retry_after, expected, "{message}");
            assert_eq!(
                message.contains("; it asks to wait for 120 s"),
                expected.is_some(),
                "{message}"
            );
        }
    }
}

#[tokio::test]
async fn endless_answers_are_cut_off() {
    let mut stand = Stand::new().await;
    stand.put(&[("a", "1")]);
    stand.limits.files = 10_000;
    // Endless pages: always the same one, different empty ones, and different full ones.
    let more =
        |token: &str| format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>");
    let next = |request: &RecordedRequest| {
        let number = request
            .target
            .split_once("continuation-token=")
            .map_or("", |(_, rest)| rest);
        number
            .split('&')
            .next()
            .and_then(|number| number.parse::<u64>().ok())
            .unwrap_or_default()
            + 1
    };
    stand
        .server
        .answer_with(move |request| is_list(request).then(|| make_page("", &more("x"))));
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("the same again"), "{message}");
    stand
        .server
        .answer_with(move |request| is_list(request).then(|| make_page("", &more(&next(request).to_string()))));
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("pages of its listing exceed 1000"), "{message}");
    stand.server.answer_with(move |request| {
        let number = next(request);
        let objects: String = (0..1000)
            .map(|at| format!("<Contents><Key>k{number}-{at}/</Key><Size>0</Size></Contents>"))
            .collect();
        is_list(request).then(|| make_page(&objects, &more(&number.to_string())))
    });
    let (error, message) = stand.refuse(stand.make_request()).await;
    assert!(
        matches!(error, BucketError::TooLarge { .. }) && message.contains("objects exceed 10000"),
        "{message}"
    );
    // An endless page, and an endless file with patterns.
    stand
        .server
        .answer_with(|request| is_list(request).then(|| Answer::new(200, vec![b' '; 5 << 20])));
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(
        message.contains("bytes of a page of its listing exceed 4 MiB"),
        "{message}"
    );
    stand.server.answer_with(|request| {
        request
            .target
            .ends_with(".sourceignore")
            .then(|| Answer::new(200, vec![b'#'; 70_000]).with("ETag", "x"))
    });
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("larger than 64 KiB"), "{message}");
    // More than the tenant's memory budget allows.
    stand
        .server
        .answer_with(|request| is_list(request).then(|| Answer::new(200, vec![b' '; 3 << 20])));
    stand.account.memory = ByteBudget::new(BudgetLimits {
        what: "bytes of fetches in memory",
        lane: 4 << 20,
        all: 8 << 20,
        lane_setting: "--lane",
        all_setting: "--all",
        is_half: false,
    });
    let (error, message) = stand.refuse(stand.make_request()).await;
    assert!(matches!(error, BucketError::OverBudget(_)), "{message}");
    assert_eq!(stand.account.memory.held(), 0);
    // The control: the same bucket on a correct server.
    stand.server.answer_with(|_| None);
    stand.get(stand.make_request()).await;
    assert_eq!(stand.account.memory.held(), 0);
}

#[tokio::test]
async fn nothing_leads_elsewhere() {
    let mut stand = Stand::new().await;
    stand.put(&[("a", "1")]);
    stand.require_keys("us-east-1");
    let other = Stand::new().await;
    other.put(&[("a", "1")]);
    stand.policy.allow.extend(other.policy.allow.clone());
    let location = format!("http://user:sesame@{}/apps/?x=sesame", other.server.address());
    for status in [301, 302, 307] {
        let location = location.clone();
        stand
            .server
            .answer_with(move |_| Some(Answer::new(status, "").with("Location", location.clone())));
        let (error, message) = stand.refuse(stand.make_request()).await;
        assert!(matches!(error, BucketError::Elsewhere { .. }), "{message}");
        assert!(message.contains("to 127.0.0.1"), "{message}");
    }
    // A store that names another region each time gets two requests.
    let _ = stand.server.take_requests();
    stand.server.answer_with(|request| {
        let region = request.headers.len() + request.target.len() % 7;
        let region = if format!("{request:?}").contains("us-east-1") {
            region
        } else {
            region + 1
        };
        Some(Answer::error(
            400,
            "AuthorizationHeaderMalformed",
            &format!("<Region>r{region}</Region>"),
        ))
    });
    stand.refuse(stand.make_request()).await;
    assert_eq!(stand.server.take_requests().len(), 2);
    assert!(other.server.take_requests().is_empty());
    // Addresses that the policy denies are refused, too.
    stand.server.answer_with(|_| None);
    let allowed = std::mem::take(&mut stand.policy.allow);
    let (error, message) = stand.refuse(stand.make_request()).await;
    assert_eq!(error.reason(), FetchReason::BucketOperationFailed);
    assert!(message.contains("denied") && message.contains("loopback"), "{message}");
    stand.policy.allow = allowed;
    stand.get(stand.make_request()).await;
}

#[tokio::test]
async fn answer_without_a_list_empties_no_artifact() {
    let stand = Stand::new().await;
    stand.put(&[("a", "1")]);
    let first = stand.get(stand.make_request()).await;
    for (body, problem) in [
        ("", "has no IsTruncated"),
        ("<html><body>welcome</body></html>", "has no IsTruncated"),
        ("<ListBucketResult><IsTruncated>false</IsTruncated>", "is cut off"),
        ("{}", "has no IsTruncated"),
    ] {
        stand
            .server
            .answer_with(move |request| is_list(request).then(|| Answer::new(200, body)));
        let (error, message) = stand.refuse(stand.ask_again(&first)).await;
        assert!(
            matches!(error, BucketError::Protocol { .. }) && message.contains(problem),
            "{message}"
        );
    }
    for status in [404, 500, 503] {
        stand
            .server
            .answer_with(move |request| is_list(request).then(|| Answer::new(status, "")));
        let (_, message) = stand.refuse(stand.ask_again(&first)).await;
        assert!(message.contains(&format!("HTTP {status}")), "{message}");
    }
    // A 404 that is not the store's own does not mean that the object was deleted.
    stand.server.answer_with(|request| {
        request
            .target
            .ends_with("/b")
            .then(|| Answer::new(404, "<html>no</html>"))
    });
    stand.put(&[("b", "2")]);
    let (_, message) = stand.refuse(stand.ask_again(&first)).await;
    assert!(
        message.contains("HTTP 404 to a request for the object \"b\""),
        "{message}"
    );
    assert_eq!(stand.list(&first), ["a"]);
}

#[tokio::test]
async fn keys_that_lead_elsewhere_are_refused() {
    let stand = Stand::new().await;
    stand.put(&[("fine.yaml", "1")]);
    for key in [
        "../../x",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "..",
        "a/.git/config",
        "b\\..\\c",
        "fine.yaml/x",
    ] {
        stand.put(&[(key, "evil")]);
        let (error, message) = stand.refuse(stand.make_request()).await;
        assert!(matches!(error, BucketError::InvalidKey { .. }), "{message}");
        assert!(message.contains("its key "), "{message}");
        stand.server.remove("apps", key);
    }
    // An excluded object does no harm.
    stand.put(&[("../../x", "evil")]);
    let artifact = stand
        .get(FetchRequest {
            ignore: Some("x".to_owned()),
            ..stand.make_request()
        })
        .await;
    assert_eq!(stand.list(&artifact), ["fine.yaml"]);
    assert!(!stand.folder.path().join("x").exists());
}

#[tokio::test]
async fn objects_must_match_the_listing() {
    let mut stand = Stand::new().await;
    stand.put(&[("a", "one")]);
    let is_a = |request: &RecordedRequest| request.target == "/apps/a";
    let mark = "\"f97c5d29941bfb1b2fdab0874906ab82\"";
    // Cut off, longer than listed, and without a mark.
    stand.server.answer_with(move |request| {
        is_a(request).then(|| Answer::new(200, "on").with("ETag", mark).with("Content-Length", "3"))
    });
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("broke"), "{message}");
    stand
        .server
        .answer_with(move |request| is_a(request).then(|| Answer::new(200, "one and more").with("ETag", mark)));
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("not as long as its listing says"), "{message}");
    stand
        .server
        .answer_with(move |request| is_a(request).then(|| Answer::new(200, "one")));
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("has no ETag"), "{message}");
    // Larger than the bounds, as listed and as received.
    stand.limits.file_bytes = 1 << 10;
    stand.limits.received_bytes = 64 << 10;
    stand.server.answer_with(|request| {
        is_list(request).then(|| {
            make_page(
                "<Contents><Key>a</Key><ETag>x</ETag><Size>2000</Size></Contents>",
                "<IsTruncated>false</IsTruncated>",
            )
        })
    });
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("bytes of one object exceed 1 KiB"), "{message}");
    let _ = stand.server.take_requests();
    stand
        .server
        .answer_with(move |request| is_a(request).then(|| Answer::new(200, noise(1, 2000)).with("ETag", "x")));
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("bytes of one object exceed 1 KiB"), "{message}");
    for number in 0..100 {
        stand.server.put("apps", &format!("n{number}"), &noise(number, 1000));
    }
    stand.server.answer_with(|_| None);
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("received bytes exceed 64 KiB"), "{message}");
    // An object that never ends.
    stand.limits.received_bytes = 1 << 20;
    stand
        .server
        .answer_with(move |request| is_a(request).then(|| Answer::new(200, "on").with("ETag", mark).stalling()));
    let slow = FetchRequest {
        timeout: Duration::from_millis(500),
        ..stand.make_request()
    };
    let (_, message) = stand.refuse(slow).await;
    assert!(message.contains("took longer than 0.5 s"), "{message}");
    // The control.
    stand.server.answer_with(|_| None);
    assert_eq!(stand.list(&stand.get(stand.make_request()).await).len(), 101);
}
