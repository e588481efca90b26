#!/usr/bin/env python3
"""Asks a real kube-apiserver what the steps of a scenario ask, and writes its answers into the scenario's file.

usage: record.py KUBECONFIG SCENARIO.json [WEBHOOK_ANSWERS.json] [AUDIT.log]

The kubeconfig names a client certificate, which is not shown where a step says `authorization` itself. With answers, a webhook is served over TLS beside it: it answers each path as
the file says, or converts by its rules, and what it was sent on behalf of the user `alice` is written down as the step's
`seen`. With the server's audit log, the events of a step's request are its `seen`. A step's `pause`
is how many seconds the real server needs until it follows what the step before wrote; a step with `until` is repeated
until its answer has these values. Needs python3 with PyYAML, and
openssl for the webhook's certificate.
"""
import base64, http.client, http.server, json, os, re, ssl, subprocess, sys, tempfile, threading, time, urllib.parse
import yaml

UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
RECORD = re.compile(r"in record \(\d+\)")
CURRENT = re.compile(r"current: \d+")
REFERENCE = re.compile(r"\$\{(\w+):([^}]*)\}")
NAMESPACE = f"x{int(time.time()) % 1000000000:09}"


def normal(value, key=""):
    if isinstance(value, dict):
        return {k: normal(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [normal(v, key) for v in value]
    if isinstance(value, str):
        if key == "resourceVersion" and value != "0" and value.isdigit():
            return "<rv>"
        if key == "continue" and value:
            return "<continue>"
        value = UID.sub("<uid>", value)
        value = RECORD.sub("in record (<rv>)", value)
        value = CURRENT.sub("current: <rv>", value)
        value = re.sub("kube-api-access-[a-z0-9]{5}", "kube-api-access-<suffix>", value)
        value = re.sub("X509SHA256=[0-9a-f]+", "X509SHA256=<hash>", value)
        value = re.sub(r"^\d+s$", "<age>", value)
        return TIME.sub("<time>", value)
    return value


def pointer(value, path):
    for part in path.split("/"):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def found(value, path):
    try:
        return pointer(value, path.lstrip("/"))
    except (KeyError, IndexError, TypeError):
        return None


def merged(value, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    value = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            value.pop(key, None)
        else:
            value[key] = merged(value.get(key), change)
    return value


def converted(review, rules):
    """The answer to a ConversionReview: v1 has `spec.hostPort` and `spec.protocol`, v2 `spec.host`, `spec.port` and `spec.retries`;
    `careless` keeps what the wanted version doesn't have. `each` is merged into each object and `review` into the answer;
    `leave_out` objects are missing at the end, and `repeat` are there twice."""
    wanted, objects = review["request"]["desiredAPIVersion"], []
    for found in review["request"]["objects"]:
        found = dict(found, apiVersion=wanted)
        if isinstance(found.get("spec"), dict):
            spec = found["spec"] = dict(found["spec"])
            if wanted.endswith("/v1") and ("host" in spec or "port" in spec):
                spec["hostPort"] = spec.pop("host", "") + ":" + spec.pop("port", "")
            elif not wanted.endswith("/v1") and "hostPort" in spec:
                spec["host"], _, spec["port"] = spec.pop("hostPort").partition(":")
            if not rules.get("careless"):
                spec.pop("retries" if wanted.endswith("/v1") else "protocol", None)
        objects.append(merged(found, rules.get("each", {})))
    objects = objects[:len(objects) - rules.get("leave_out", 0)] + objects[:rules.get("repeat", 0)]
    response = {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
    return merged({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}, rules.get("review", {}))


def asked(path, review):
    request = review["request"]
    objects = " ".join(f"{found['apiVersion']} {json.dumps(found.get('spec'), sort_keys=True)}" for found in request["objects"])
    return f"{path}: {review['kind']} {review['apiVersion']} of {objects} to {request['desiredAPIVersion']}; {' '.join(sorted(request))}"


class Webhook:
    def __init__(self, answers):
        self.answers, self.seen, self.lock = answers, [], threading.Lock()
        directory = tempfile.mkdtemp()
        run = lambda *args: subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)
        run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=webhook-ca")
        run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "tls.key", "-out", "tls.csr", "-subj", "/CN=webhook")
        with open(f"{directory}/ext", "w") as file:
            file.write("subjectAltName=IP:127.0.0.1")
        run("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", "tls.crt")
        self.ca = base64.b64encode(open(f"{directory}/ca.crt", "rb").read()).decode()
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
                path = self.path.split("?")[0]
                if sent["request"].get("userInfo", {}).get("username") == "alice":
                    with webhook.lock:
                        webhook.seen.append({"path": self.path, "review": sent})
                answer = webhook.answers.get(path, {"status": 404})
                time.sleep(answer.get("hang", 0))
                body = converted(sent, answer["convert"]) if "convert" in answer else answer.get("body", "")
                body = (body if isinstance(body, str) else json.dumps(body)).replace("@UID", sent["request"]["uid"])
                if "@ASKED" in body:
                    body = body.replace("@ASKED", json.dumps(asked(self.path, sent))[1:-1])
                body = body.encode()
                self.send_response(answer.get("status", 200))
                for name, value in answer.get("headers", {}).items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{directory}/tls.crt", f"{directory}/tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def taken(self):
        with self.lock:
            seen, self.seen = self.seen, []
        return seen


class AuditLog:
    """What the real server notes of the requests that are asked here."""

    def __init__(self, path):
        self.path, self.position = path, os.path.getsize(path)

    def taken(self):
        time.sleep(0.3)
        with open(self.path) as file:
            file.seek(self.position)
            text = file.read()
        self.position += len(text.encode())
        events = [json.loads(line) for line in text.splitlines()]
        return [event for event in events if event.get("userAgent") == "exchange/1"]


def connect(kubeconfig):
    config = yaml.safe_load(open(kubeconfig))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    directory = tempfile.mkdtemp()
    for name, data in [("ca", cluster["certificate-authority-data"]), ("crt", user["client-certificate-data"]), ("key", user["client-key-data"])]:
        with open(f"{directory}/{name}", "wb") as file:
            file.write(base64.b64decode(data))
    contexts = {}
    for certified in (True, False):
        contexts[certified] = ssl.create_default_context(cafile=f"{directory}/ca")
        if certified:
            contexts[certified].load_cert_chain(f"{directory}/crt", f"{directory}/key")
    url = urllib.parse.urlparse(cluster["server"])
    return lambda certified: http.client.HTTPSConnection(url.hostname, url.port, context=contexts[certified])


def ask(connection, step):
    headers = {"user-agent": "exchange/1", "content-type": "application/json", "accept": "application/json", **step.get("headers", {})}
    body = step.get("body")
    if body is not None and not isinstance(body, str):
        body = json.dumps(body)
    connection.request(step["method"], step["path"], body=body, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    try:
        parsed = json.loads(text)
    except ValueError:
        try:
            parsed = [json.loads(line) for line in text.splitlines()] or text
        except ValueError:
            parsed = text
    return {"status": response.status, "body": parsed, "warnings": response.headers.get_all("warning") or []}


def main():
    new_connection = connect(sys.argv[1])
    path = sys.argv[2]
    audit = next((AuditLog(name) for name in sys.argv[3:] if name.endswith(".log")), None)
    webhook = next((Webhook(json.load(open(name))) for name in sys.argv[3:] if name.endswith(".json")), None)
    steps = json.load(open(path))
    saved = {}
    for step in steps:
        step.pop("want", None)
        step.pop("seen", None)
        text = json.dumps(step).replace("@NS", NAMESPACE)
        if webhook:
            text = text.replace("@PORT", str(webhook.port)).replace("@CA", webhook.ca)
        text = REFERENCE.sub(lambda found: pointer(saved[found[1]], found[2]), text)
        asked = json.loads(text)
        time.sleep(asked.get("pause", 0))
        certified = "authorization" not in asked.get("headers", {})
        got = ask(new_connection(certified), asked)
        for _ in range(100):
            if all(found(got, path) == value for path, value in asked.get("until", {}).items()):
                break
            time.sleep(0.1)
            got = ask(new_connection(certified), asked)
        if "save" in step:
            saved[step["save"]] = got["body"]

        def plain(value):
            text = json.dumps(normal(value)).replace(NAMESPACE, "@NS")
            if webhook:
                text = text.replace(f"127.0.0.1:{webhook.port}", "127.0.0.1:@PORT").replace(webhook.ca, "@CA")
            return json.loads(text)

        step["want"] = plain(got)
        if audit or webhook:
            seen = (audit or webhook).taken()
            if seen:
                step["seen"] = plain(seen)
    with open(path, "w") as file:
        json.dump(steps, file, indent=1, sort_keys=True)
        file.write("\n")


main()
