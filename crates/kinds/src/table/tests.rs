//! Paths to cells. Rows and ages are compared with the real server's in `tests/trials`.

use serde_json::{Value, json};

use super::JsonPath;

#[test]
fn paths_outside_the_language_are_refused() {
    for path in ["..a", ".a[", ".a[?(@.b", ".a{b}", ".a[x]"] {
        assert!(JsonPath::parse(path).is_err(), "{path}");
    }
    let object = json!({"a": {"b.c": [1, 2, 3]}, "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]});
    let check = |path: &str, want: Value| {
        let found: Vec<Value> = JsonPath::parse(path)
            .unwrap()
            .find(&object)
            .into_iter()
            .cloned()
            .collect();
        assert_eq!(Value::Array(found), want, "{path}");
    };
    check(".a['b.c'][0]", json!([1]));
    check(".a.b\\.c[-1]", json!([3]));
    check("{.a.b\\.c[1:]}", json!([2, 3]));
    check(".l[?(@.v>1)].n", json!(["y"]));
    check(".l[?(@.n=='x')].v", json!([1]));
    check(".l[*].v", json!([1, 2]));
    check(".missing.x", json!([]));
}
