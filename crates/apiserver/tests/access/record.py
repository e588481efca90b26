#!/usr/bin/env python3
"""Asks a real kube-apiserver the questions in cases.json and writes its answers into answers.json.

Usage: record.py URL CLIENT_CERTIFICATE CLIENT_KEY   (an admin's, of a throw-away cluster: it makes and deletes objects)
"""
import json, ssl, sys, urllib.error, urllib.request, pathlib

url, certificate, key = sys.argv[1:4]
here = pathlib.Path(__file__).parent
cases = json.loads((here / "cases.json").read_text())
admin = ssl._create_unverified_context()
admin.load_cert_chain(certificate, key)
plain = ssl._create_unverified_context()
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def call(method, path, body=None, headers=(), token=None):
    request = urllib.request.Request(url + path, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    request.add_header("User-Agent", "record")
    if token:
        request.add_header("Authorization", "Bearer " + token)
    for name, value in headers:
        request.add_unredirected_header(name, value)
    try:
        with urllib.request.urlopen(request, context=plain if token else admin) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        try:
            return error.code, json.loads(text)
        except ValueError:
            return error.code, text


def path_of(item):
    plural = item["kind"].lower() + "s"
    namespace = item["metadata"].get("namespace")
    if item["kind"] in ("Namespace",):
        return "/api/v1/namespaces"
    if item["kind"] == "ServiceAccount":
        return f"/api/v1/namespaces/{namespace}/serviceaccounts"
    return f"{RBAC}/namespaces/{namespace}/{plural}" if namespace else f"{RBAC}/{plural}"


def status(code, body):
    if isinstance(body, dict) and body.get("kind") == "Status":
        body.pop("metadata", None)
        for word in ("kind", "apiVersion", "status"):
            body.pop(word, None)
        return body
    return {"code": code}


def stable(user):
    """Without what differs from run to run: the caller's own uid and token."""
    if user.get("username", "").startswith("system:serviceaccount:auth-one:c-"):
        user.pop("uid", None)
        user.pop("extra", None)
    return user


for item in cases["objects"]:
    call("DELETE", path_of(item) + "/" + item["metadata"]["name"]) if item["kind"] not in ("Namespace", "ServiceAccount") else None
    code, body = call("POST", path_of(item), item)
    assert code in (201, 409), (code, body)

answers = {"reviews": [], "escalations": [], "impersonations": []}
for case in cases["reviews"]:
    spec = {k: v for k, v in case.items()}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    code, body = call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    answers["reviews"].append(body["status"] if code == 201 else status(code, body))

for case in cases["escalations"]:
    item, old = case["object"], case.get("old")
    path = path_of(item)
    headers = [("Impersonate-User", case["user"])]
    call("DELETE", path + "/" + item["metadata"]["name"])
    if old is None:
        code, body = call("POST", path + "?dryRun=All", item, headers)
    else:
        code, body = call("POST", path, old)
        assert code == 201, body
        # As a client would that has read the object before.
        item = json.loads(json.dumps(item))
        for field in ("uid", "creationTimestamp", "resourceVersion"):
            item["metadata"][field] = body["metadata"][field]
        code, body = call("PUT", path + "/" + item["metadata"]["name"] + "?dryRun=All", item, headers)
    answers["escalations"].append(status(code, body))
    if old is not None:
        call("DELETE", path + "/" + item["metadata"]["name"])

tokens = {}
for case in cases["impersonations"]:
    namespace, name = case["caller"].split("/")
    if case["caller"] not in tokens:
        code, body = call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
                          {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        tokens[case["caller"]] = body["status"]["token"]
    if case.get("path"):
        code, body = call("GET", case["path"], None, case["headers"].items(), tokens[case["caller"]])
        answers["impersonations"].append(status(code, body))
    else:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        code, body = call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, case["headers"].items(), tokens[case["caller"]])
        answers["impersonations"].append({"userInfo": stable(body["status"]["userInfo"])} if code == 201 else status(code, body))

(here / "answers.json").write_text(json.dumps(answers, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
for item in cases["objects"]:
    if item["kind"] not in ("Namespace", "ServiceAccount"):
        call("DELETE", path_of(item) + "/" + item["metadata"]["name"])
