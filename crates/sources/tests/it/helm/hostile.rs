//! Repositories that lead elsewhere, lie, or send too much.

use tenure_registry_server::{Answer, pack_entries, pack_files};
use tenure_remote_requests::fetch::FetchFailure;

use super::{CHART, Stand};

#[tokio::test]
async fn index_leads_to_no_forbidden_address() {
    let stand = Stand::new().await;
    let port = stand.server.address().port();
    for address in [
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[::ffff:a9fe:a9fe]/x".to_owned(),
        "http://10.0.0.1/x.tgz".to_owned(),
        format!("http://localhost:{port}/charts/app-1.0.0.tgz"),
        "//169.254.169.254/x".to_owned(),
    ] {
        stand.serve_index(&format!("- {{version: 1.0.0, urls: ['{address}']}}"));
        let (reason, message) = stand.refuse(&stand.make_request("").await).await;
        assert_eq!(reason, "ChartPullError", "{address}");
        assert!(message.contains("address"), "{address}: {message}");
    }
    for address in ["file:///etc/passwd", "oci://host/app", "gopher://host/"] {
        stand.serve_index(&format!("- {{version: 1.0.0, urls: ['{address}']}}"));
        let (_, message) = stand.refuse(&stand.make_request("").await).await;
        assert!(message.contains("no http or https URL"), "{message}");
    }
}

#[tokio::test]
async fn redirects_lead_to_no_forbidden_address() {
    let stand = Stand::new().await;
    for target in [
        "http://169.254.169.254/index.yaml",
        "http://[fd00::1]/x",
        "file:///etc/passwd",
    ] {
        stand.put("/charts/index.yaml", Answer::new(302, "").with("Location", target));
        let failure = FetchFailure::from(&stand.try_index(None).await.unwrap_err());
        assert_eq!(failure.reason.as_str(), "Failed", "{target}: {}", failure.message);
    }
    stand.serve_chart(&[("app/Chart.yaml", CHART)]);
    stand.put(
        "/charts/app-1.0.0.tgz",
        Answer::new(302, "").with("Location", "http://169.254.169.254/x"),
    );
    let (reason, message) = stand.refuse(&stand.make_request("").await).await;
    assert_eq!(reason, "ChartPullError");
    assert!(message.contains("a cloud metadata address"), "{message}");
}

#[tokio::test]
async fn archives_that_are_no_charts_are_refused() {
    let stand = Stand::new().await;
    let bomb = "0".repeat(6 << 20);
    let bombs: Vec<(String, &str)> = (0..20)
        .map(|number| (format!("app/{number}"), &bomb[..5 << 20]))
        .collect();
    let mut bombs: Vec<(&str, &str)> = bombs.iter().map(|(path, content)| (path.as_str(), *content)).collect();
    bombs.push(("app/Chart.yaml", CHART));
    let outside = pack_entries(&[(b'0', "app/../../etc/passwd", ""), (b'0', "app/Chart.yaml", "")]);
    for (archive, problem) in [
        (b"<html>".to_vec(), "chart pull error"),
        (pack_files(&[("app/values.yaml", "a: 1")]), "no 'Chart.yaml' found"),
        (
            pack_files(&[("app/Chart.yaml", "name: app\nversion: one\n")]),
            "is invalid",
        ),
        (
            pack_files(&[("app/Chart.yaml", CHART), ("app/large", &bomb)]),
            "larger than 5 MiB",
        ),
        (pack_files(&bombs), "more than 100 MiB"),
        (outside, "parent directory"),
        (
            pack_entries(&[(b'1', "app/hard", "/etc/passwd")]),
            "neither a file nor a link",
        ),
    ] {
        stand.put("/charts/app.tgz", Answer::new(200, archive));
        stand.serve_index("- {version: 1.0.0, urls: [app.tgz]}");
        let (reason, message) = stand.refuse(&stand.make_request("").await).await;
        assert_eq!(reason, "ChartPullError", "{message}");
        assert!(message.contains(problem), "{problem}: {message}");
    }
}

#[tokio::test]
async fn archive_with_another_digest_is_refused() {
    let stand = Stand::new().await;
    stand.serve_chart(&[("app/Chart.yaml", CHART)]);
    let asked = stand.make_request("").await;
    let forged = pack_files(&[("app/Chart.yaml", CHART), ("app/templates/evil.yaml", "x")]);
    stand.put("/charts/app-1.0.0.tgz", Answer::new(200, forged));
    let (reason, message) = stand.refuse(&asked).await;
    assert_eq!(reason, "ChartPullError");
    assert!(message.contains("and the index says sha256:"), "{message}");
}

#[tokio::test]
async fn content_without_end_is_refused() {
    let stand = Stand::new().await;
    stand.serve_chart(&[("app/Chart.yaml", CHART)]);
    let asked = stand.make_request("").await;
    let random: Vec<u8> = (0..11_u32 << 20)
        .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    stand.put("/charts/app-1.0.0.tgz", Answer::new(200, random.clone()));
    let (_, message) = stand.refuse(&asked).await;
    assert!(message.contains("the chart is larger than 10 MiB"), "{message}");
    stand.put("/charts/index.yaml", Answer::new(200, vec![b'#'; 51 << 20]));
    let failure = FetchFailure::from(&stand.try_index(None).await.unwrap_err());
    assert!(
        failure.message.contains("the index is larger than 50 MiB"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn unreadable_index_is_refused() {
    let stand = Stand::new().await;
    for (index, problem) in [
        ("", "empty index.yaml file"),
        ("<html></html>", "it is no map"),
        ("entries: {}", "no API version specified"),
        ("apiVersion: v1\nentries: {app: [{version: 1.0.0", "line"),
        ("\u{0}", "line"),
    ] {
        stand.put("/charts/index.yaml", Answer::new(200, index));
        let failure = FetchFailure::from(&stand.try_index(None).await.unwrap_err());
        assert_eq!(failure.reason.as_str(), "IndexationFailed", "{index:?}");
        assert!(failure.message.contains(problem), "{index:?}: {}", failure.message);
    }
    stand.put("/charts/index.yaml", Answer::new(200, vec![0xff, 0xfe]));
    assert!(stand.try_index(None).await.is_err());
    stand.put("/charts/index.yaml", Answer::new(429, "").with("Retry-After", "90"));
    let failure = FetchFailure::from(&stand.try_index(None).await.unwrap_err());
    assert_eq!((failure.reason.as_str(), failure.retry_after), ("Failed", Some(90)));
}
