//! All built-in data can be read. The real server's answers to creates and updates are in `tests/trials`.

use super::BuiltinSchemas;

#[test]
fn all_data_can_be_read() {
    for (api_version, kind) in BuiltinSchemas::instance().kinds() {
        assert!(
            BuiltinSchemas::instance().type_of(&api_version, kind).is_some(),
            "{api_version} {kind}"
        );
    }
    let documents: Vec<_> = super::openapi::list_documents().collect();
    assert_eq!(documents.len(), 19);
    for document in documents {
        let text = document.text();
        assert_eq!(text.len(), document.text_length, "{}", document.path);
        let hash = ring::digest::digest(&ring::digest::SHA512, &text);
        assert_eq!(hex::encode_upper(hash.as_ref()), document.hash, "{}", document.path);
    }
    let kinds = BuiltinSchemas::instance().kinds();
    let versions: std::collections::BTreeSet<String> = kinds.map(|(api_version, _)| api_version).collect();
    for api_version in versions {
        assert!(
            !BuiltinSchemas::instance().openapi_definitions(&api_version).is_empty(),
            "{api_version}"
        );
    }
}
