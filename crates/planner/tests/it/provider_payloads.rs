//! The requests to Providers, in each form: as Flux's notification-controller sends them.

use serde_json::{Value, json};
use tenure_planner::EventKind;
use tenure_planner::alert_event::AlertEvent;
use tenure_planner::provider::{Answer, Method, PreparedNotification, Verdict};

use crate::provider::{
    SHA1, find_header, make_failure, make_news, make_success, read_body, sent_with, write_notification,
};

#[test]
fn generic_is_fluxs_event_with_headers_of_the_secret() {
    let headers = "Authorization: token sesame\nX-Two: 'b'\n";
    let request = write_notification(
        &json!({}),
        &[("headers", headers), ("token", "unused")],
        &make_failure(),
    );
    assert_eq!(request.method, Method::Post);
    assert_eq!(request.address.target(), "/a/b");
    assert_eq!(find_header(&request, "gotk-component"), Some("kustomize-controller"));
    assert_eq!(find_header(&request, "content-type"), Some("application/json"));
    assert_eq!(find_header(&request, "authorization"), Some("token sesame"));
    assert_eq!(find_header(&request, "x-two"), Some("b"));
    assert_eq!(find_header(&request, "x-signature"), None);
    assert_eq!(
        read_body(&request),
        json!({
            "involvedObject": {
                "kind": "Kustomization", "namespace": "blue", "name": "app", "uid": "o",
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "resourceVersion": "7",
            },
            "severity": "error", "timestamp": "2026-01-02T03:04:05Z", "message": "kustomization.yaml:3\nno such file",
            "reason": "BuildFailed", "reportingController": "kustomize-controller",
            "metadata": { "revision": format!("main@sha1:{SHA1}"), "cluster": "one" },
        })
    );
}

#[test]
fn generic_hmac_signs_what_is_sent() {
    // As `printf '{"a":1}' | openssl dgst -sha256 -hmac sesame` has it, for another body.
    let request = write_notification(
        &json!({ "type": "generic-hmac" }),
        &[("token", "sesame\n")],
        &make_failure(),
    );
    let signature = find_header(&request, "x-signature").unwrap();
    let expected = |key: &[u8]| {
        use hmac::{Hmac, KeyInit as _, Mac as _};
        let mut code = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
        code.update(&request.body);
        format!("sha256={}", hex::encode(code.finalize().into_bytes()))
    };
    assert_eq!(signature, expected(b"sesame\n"), "all of the key counts, as in Flux");
    assert_ne!(signature, expected(b"sesame"));
    let hmac = json!({ "type": "generic-hmac", "secretRef": { "name": "secret" } });
    for data in [&[][..], &[("token", "")]] {
        let problem = sent_with(&hmac, Some(data), &make_failure()).unwrap_err();
        assert!(
            problem.contains("'blue/secret'") && problem.contains("token is missing or empty"),
            "{problem}"
        );
    }
}

#[test]
fn slack_receives_one_attachment() {
    let fields = json!({ "type": "slack", "channel": "general", "username": "tenure" });
    let request = write_notification(&fields, &[("token", "sesame\n")], &make_failure());
    assert_eq!(find_header(&request, "authorization"), Some("Bearer sesame"));
    assert_eq!(
        read_body(&request),
        json!({
            "channel": "general", "username": "tenure", "icon_url": "", "icon_emoji": "",
            "attachments": [{
                "fallback": "kustomization/app.blue: kustomization.yaml:3", "color": "danger",
                "author_name": "kustomization/app.blue", "text": "kustomization.yaml:3\nno such file", "mrkdwn_in": ["text"],
                "fields": [
                    { "title": "cluster", "value": "one", "short": false },
                    { "title": "revision", "value": format!("main@sha1:{SHA1}"), "short": false },
                ],
            }],
        })
    );
    let plain = sent_with(
        &json!({ "type": "slack" }),
        None,
        &make_news(EventKind::Normal, "Progressing", "x"),
    )
    .unwrap()
    .request;
    assert_eq!(find_header(&plain, "authorization"), None);
    assert_eq!(read_body(&plain)["username"], "kustomize-controller");
    assert_eq!(read_body(&plain)["attachments"][0]["color"], "good");
}

#[test]
fn discord_takes_slacks_message() {
    let at = |address: &str| {
        let request = sent_with(&json!({ "type": "discord", "address": address }), None, &make_failure())
            .unwrap()
            .request;
        (request.address.target(), read_body(&request))
    };
    let (target, payload) = at("https://discord.example/api/webhooks/1/2");
    assert_eq!(target, "/api/webhooks/1/2/slack");
    assert_eq!(payload["attachments"][0]["fallback"], "");
    assert_eq!(
        at("https://discord.example/api/webhooks/1/2/slack").0,
        "/api/webhooks/1/2/slack"
    );
    assert_eq!(
        at("https://discord.example/api/webhooks/1/2/?wait=true").0,
        "/api/webhooks/1/2/slack?wait=true"
    );
}

#[test]
fn teams_gets_a_card_by_its_address() {
    let at = |address: &str, news: &AlertEvent| {
        let fields = json!({ "type": "msteams", "address": address });
        read_body(&sent_with(&fields, None, news).unwrap().request)
    };
    assert_eq!(
        at(
            "https://prod-28.example/workflows/x/triggers/manual/paths/invoke",
            &make_failure()
        ),
        json!({
            "type": "message",
            "attachments": [{
                "contentType": "application/vnd.microsoft.card.adaptive",
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
                    "msteams": { "width": "Full" },
                    "body": [{
                        "type": "Container",
                        "items": [
                            { "type": "TextBlock", "size": "large", "text": "kustomization/app.blue", "weight": "bolder", "wrap": true },
                            { "type": "TextBlock", "text": "kustomization.yaml:3\nno such file", "wrap": true, "color": "attention" },
                            { "type": "FactSet", "facts": [
                                { "title": "cluster", "value": "one" },
                                { "title": "revision", "value": format!("main@sha1:{SHA1}") },
                            ] },
                        ],
                    }],
                },
            }],
        })
    );
    assert_eq!(
        at("https://x.webhook.office.com:443/y", &make_failure()),
        json!({
            "@type": "MessageCard", "@context": "http://schema.org/extensions", "themeColor": "FF0000",
            "summary": "kustomization/app.blue",
            "sections": [{
                "activityTitle": "kustomization.yaml:3\nno such file", "activitySubtitle": "kustomization/app.blue",
                "facts": [
                    { "name": "cluster", "value": "one" },
                    { "name": "revision", "value": format!("main@sha1:{SHA1}") },
                ],
            }],
        })
    );
    let good = make_news(EventKind::Normal, "Progressing", "x");
    assert_eq!(at("https://x.webhook.office.com/y", &good)["themeColor"], "0076D7");
    assert_eq!(at("https://x-webhook.office.com/y", &good)["type"], "message");
}

#[test]
fn alertmanager_gets_labels() {
    let fields = json!({ "type": "alertmanager", "address": "https://am.example/api/v2/alerts" });
    let request = sent_with(&fields, None, &make_failure()).unwrap().request;
    assert_eq!(
        read_body(&request),
        json!([{
            "status": "firing",
            "labels": {
                "alertname": "FluxKustomizationBuildfailed", "severity": "error", "reason": "BuildFailed", "kind": "Kustomization",
                "name": "app", "namespace": "blue", "reportingcontroller": "kustomize-controller", "cluster": "one",
                "revision": format!("main@sha1:{SHA1}"),
            },
            "annotations": { "message": "kustomization.yaml:3\nno such file" },
            "startsAt": "2026-01-02T03:04:05Z", "endsAt": "0001-01-01T00:00:00Z",
        }])
    );
    let token = write_notification(&fields, &[("token", "sesame")], &make_failure());
    assert_eq!(
        (find_header(&token, "authorization"), token.user.clone()),
        (Some("Bearer sesame"), None)
    );
    let basic = write_notification(
        &fields,
        &[("token", "unused"), ("username", "u"), ("password", "p")],
        &make_failure(),
    );
    assert_eq!(
        (find_header(&basic, "authorization"), basic.user.clone()),
        (None, Some(("u".to_owned(), "p".to_owned())))
    );
}

#[test]
fn a_commits_status_is_read_and_sent() {
    let sending = |type_: &str, address: &str, news: &AlertEvent| {
        let fields = json!({ "type": type_, "address": address, "secretRef": { "name": "secret" } });
        sent_with(&fields, Some(&[("token", "sesame\n")]), news).unwrap()
    };
    let describe = |sending: &PreparedNotification| {
        let (inquiry, request) = (sending.inquiry.as_ref().unwrap(), &sending.request);
        assert_eq!((inquiry.method, request.method), (Method::Get, Method::Post));
        (inquiry.address.target(), request.address.target(), read_body(request))
    };
    let name = "kustomization/app/0c9c2e41";

    let github = sending("github", "https://github.com/a/b.git", &make_success());
    assert_eq!(github.request.address.host, "api.github.com");
    assert_eq!(find_header(&github.request, "authorization"), Some("Bearer sesame"));
    assert_eq!(
        describe(&github),
        (
            format!("/repos/a/b/commits/{SHA1}/statuses?per_page=50"),
            format!("/repos/a/b/statuses/{SHA1}"),
            json!({ "state": "success", "context": name, "description": "reconciliation succeeded" }),
        )
    );

    let gitlab = sending("gitlab", "ssh://git@gitlab.example:2222/a/b/c.git", &make_failure());
    assert_eq!(
        (gitlab.request.address.is_https, gitlab.request.address.port),
        (true, None)
    );
    assert_eq!(find_header(&gitlab.request, "private-token"), Some("sesame"));
    assert_eq!(
        describe(&gitlab),
        (
            format!(
                "/api/v4/projects/a%2Fb%2Fc/repository/commits/{SHA1}/statuses?name=kustomization%2Fapp%2F0c9c2e41"
            ),
            format!("/api/v4/projects/a%2Fb%2Fc/statuses/{SHA1}"),
            json!({ "state": "failed", "name": name, "description": "build failed" }),
        )
    );

    let gitea = sending("gitea", "http://git.example:3000/a/b", &make_failure());
    assert_eq!(find_header(&gitea.request, "authorization"), Some("token sesame"));
    assert_eq!(
        describe(&gitea),
        (
            format!("/api/v1/repos/a/b/commits/{SHA1}/statuses?limit=50&page=1"),
            format!("/api/v1/repos/a/b/statuses/{SHA1}"),
            json!({ "state": "failure", "context": name, "description": "build failed", "target_url": "" }),
        )
    );

    // A status that the host has already is not sent again: the last one of this name counts.
    let has = |sending: &PreparedNotification, list: Value| {
        let answer = Answer {
            status: 200,
            retry_after: None,
            body: list.to_string().into_bytes(),
        };
        sending.judge_inquiry(&answer)
    };
    let same = json!({ "context": name, "state": "success", "description": "reconciliation succeeded" });
    let other = json!({ "context": name, "state": "failure", "description": "build failed" });
    let stranger = json!({ "context": "ci", "state": "failure", "description": "x" });
    assert_eq!(has(&github, json!([])), Ok(false));
    assert_eq!(has(&github, json!([stranger, same, other])), Ok(true));
    assert_eq!(has(&github, json!([other, same])), Ok(false));
    assert_eq!(has(&github, json!({ "message": "what?" })), Ok(false));
    let same = json!({ "sha": SHA1, "name": name, "status": "failed", "description": "build failed" });
    assert_eq!(has(&gitlab, json!([same])), Ok(true));
    let same = json!({ "context": name, "status": "failure", "description": "build failed" });
    assert_eq!(has(&gitea, json!([same])), Ok(true));
    let refused = Answer {
        status: 404,
        retry_after: None,
        body: b"sesame".to_vec(),
    };
    assert_eq!(
        github.judge_inquiry(&refused),
        Err(Verdict::Failed("it answers HTTP 404".to_owned()))
    );
}

#[test]
fn an_expression_names_a_commits_status() {
    let sending = |expression: &str| {
        let fields = json!({
            "type": "github", "address": "https://github.com/a/b", "secretRef": { "name": "secret" }, "commitStatusExpr": expression,
        });
        sent_with(&fields, Some(&[("token", "sesame")]), &make_success())
            .map(|sending| read_body(&sending.request)["context"].clone())
    };
    let name = "event.involvedObject.kind + '/' + event.involvedObject.name + '/' + event.metadata.cluster + '/' + provider.metadata.name \
                + '/' + alert.metadata.name";
    assert_eq!(sending(name), Ok(json!("Kustomization/app/one/chat/alert")));
    assert!(
        sending("event.metadata.nothing")
            .unwrap_err()
            .contains("spec.commitStatusExpr")
    );
    assert!(sending("''").unwrap_err().contains("must yield the name"));
    assert!(sending("'a\\nb'").unwrap_err().contains("must yield the name"));
}
