//! The recorded questions of `access`, sent to a whole server over HTTP as they were sent to kube-apiserver. So the
//! steps between a request and the decision are tested, too. All questions go to one server.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tenure_apiserver::{ApiService, Config, Server};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

use crate::access_recorded::{ANSWERS, CASES, Steps};
use crate::{Case, by_caller, name_question};

/// The server, opened at the first question.
pub(crate) struct Asked {
    runtime: Runtime,
    asker: OnceCell<Asker>,
}

impl Asked {
    pub(crate) fn new() -> Self {
        Self {
            runtime: crate::start_runtime(),
            asker: OnceCell::new(),
        }
    }

    /// Sends a question to the server.
    fn ask<Answer>(&self, question: impl AsyncFnOnce(&Asker) -> Answer) -> Answer {
        self.runtime
            .block_on(async { question(self.asker.get_or_init(Asker::open).await).await })
    }

    /// Closes the server, if it was started.
    pub(crate) fn close(&self) {
        if let Some(asker) = self.asker.get() {
            self.runtime.block_on(asker.server.close());
        }
    }
}

struct Asker {
    admin: ApiService,
    anyone: ApiService,
    server: Server,
    /// A lock, as attempts to escalate create and delete objects with the same names.
    escalating: Mutex<()>,
    _directory: tempfile::TempDir,
}

impl Asker {
    async fn open() -> Self {
        let cases: Value = serde_json::from_str(CASES).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let server = Server::open(Config::new(directory.path())).await.unwrap();
        let asker = Self {
            admin: server.admin_service(),
            anyone: server.service(),
            server,
            escalating: Mutex::default(),
            _directory: directory,
        };
        for object in cases["objects"].as_array().unwrap() {
            let (code, body) = asker.admin(Method::POST, &collection(object), object, &[]).await;
            assert_eq!(code, 201, "{body}");
        }
        asker
    }

    async fn admin(&self, method: Method, path: &str, body: &Value, headers: &[(&str, &str)]) -> (u16, Value) {
        ask(&self.admin, method, path, body, headers).await
    }
}

async fn ask(service: &ApiService, method: Method, path: &str, body: &Value, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let response = service
        .handle(request.body(Full::new(Bytes::from(body))).unwrap())
        .await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn collection(object: &Value) -> String {
    let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    let base = match object["apiVersion"].as_str().unwrap() {
        "v1" => "/api/v1".to_owned(),
        version => format!("/apis/{version}"),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
        None => format!("{base}/{plural}"),
    }
}

/// Returns the recorded part of an answer: all of a refusal, only the code of any other answer.
fn show_answer(code: u16, mut body: Value) -> Value {
    if body["kind"] != "Status" {
        return json!({ "code": code });
    }
    for word in ["kind", "apiVersion", "metadata", "status"] {
        body.as_object_mut().unwrap().remove(word);
    }
    body
}

/// Returns the recorded questions of one kind, with their answers.
fn read_recorded(kind: &str) -> Steps {
    let take = |text: &str| -> Vec<Value> {
        let all: Value = serde_json::from_str(text).unwrap();
        all[kind].as_array().unwrap().clone()
    };
    let (questions, answers) = (take(CASES), take(ANSWERS));
    assert_eq!(questions.len(), answers.len());
    questions.into_iter().zip(answers).collect()
}

/// Returns the questions about rights.
pub(crate) fn reviews(asked: &Arc<Asked>) -> Vec<Case> {
    let numbered = read_recorded("reviews").into_iter().enumerate();
    numbered
        .map(|(index, (question, want))| {
            let asked = asked.clone();
            Case::new(name_question(index, &question), move || {
                let got = asked.ask(async |asker| review(asker, &question).await);
                assert_eq!(got, want, "{question}");
            })
        })
        .collect()
}

/// Returns the attempts to write rights that the writer doesn't have.
pub(crate) fn escalations(asked: &Arc<Asked>) -> Vec<Case> {
    let numbered = read_recorded("escalations").into_iter().enumerate();
    numbered
        .map(|(index, (question, want))| {
            let asked = asked.clone();
            Case::new(name_question(index, &question), move || {
                let got = asked.ask(async |asker| {
                    let _one = asker.escalating.lock().await;
                    escalate(asker, &question).await
                });
                assert_eq!(got, want, "{question}");
            })
        })
        .collect()
}

/// Returns the attempts to impersonate, one case for each caller.
pub(crate) fn impersonations(asked: &Arc<Asked>) -> Vec<Case> {
    by_caller(read_recorded("impersonations"))
        .into_iter()
        .map(|(caller, questions)| {
            let asked = asked.clone();
            Case::new(caller, move || {
                for (step, (question, want)) in questions.iter().enumerate() {
                    let got = asked.ask(async |asker| impersonate(asker, question).await);
                    assert_eq!(got, *want, "step {step}: {question}");
                }
            })
        })
        .collect()
}

async fn review(asker: &Asker, spec: &Value) -> Value {
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (_, body) = asker.admin(Method::POST, path, &review, &[]).await;
    body["status"].clone()
}

async fn escalate(asker: &Asker, case: &Value) -> Value {
    let path = collection(&case["object"]);
    let one = format!("{path}/{}", case["object"]["metadata"]["name"].as_str().unwrap());
    let headers = [("impersonate-user", case["user"].as_str().unwrap())];
    let mut object = case["object"].clone();
    let (code, body) = match case.get("old") {
        None => {
            asker
                .admin(Method::POST, &format!("{path}?dryRun=All"), &object, &headers)
                .await
        }
        Some(old) => {
            let (code, old) = asker.admin(Method::POST, &path, old, &[]).await;
            assert_eq!(code, 201, "{old}");
            // The aggregation controller may write meanwhile, so the object is sent as by a client that has just read
            // it.
            let (_, old) = asker.admin(Method::GET, &one, &Value::Null, &[]).await;
            for field in ["uid", "creationTimestamp"] {
                object["metadata"][field] = old["metadata"][field].clone();
            }
            let answer = asker
                .admin(Method::PUT, &format!("{one}?dryRun=All"), &object, &headers)
                .await;
            asker.admin(Method::DELETE, &one, &Value::Null, &[]).await;
            answer
        }
    };
    show_answer(code, body)
}

async fn impersonate(asker: &Asker, case: &Value) -> Value {
    let (namespace, name) = case["caller"].as_str().unwrap().split_once('/').unwrap();
    let bearer = format!(
        "Bearer {}",
        asker.server.service_account_token(namespace, name, 3600).unwrap()
    );
    let mut headers: Vec<(&str, &str)> = case["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect();
    headers.push(("authorization", &bearer));
    let Some(path) = case["path"].as_str() else {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let (code, body) = ask(&asker.anyone, Method::POST, path, &review, &headers).await;
        return match body.pointer("/status/userInfo") {
            Some(user) => json!({ "userInfo": without_own_credential(user.clone()) }),
            None => show_answer(code, body),
        };
    };
    let (code, body) = ask(&asker.anyone, Method::GET, path, &Value::Null, &headers).await;
    show_answer(code, body)
}

/// Removes the values that differ between runs: the caller's own UID and token.
fn without_own_credential(mut user: Value) -> Value {
    if user["username"]
        .as_str()
        .is_some_and(|name| name.starts_with("system:serviceaccount:auth-one:c-"))
    {
        let fields = user.as_object_mut().unwrap();
        fields.remove("uid");
        fields.remove("extra");
    }
    user
}
