//! Any bytes as an AdmissionReview: read, decided and answered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_admission::webhook::review::{Verdict, read_review, write_answer};
use tenure_admission_rules::fuzzing;
use tenure_fuzz::{within_factor, write_seeds};
use tenure_tenancy::FactIndex;

thread_local! {
    static FACTS: FactIndex = fuzzing::make_facts();
}

fuzz_target!(init: write_seeds("admission_review", fuzzing::seeds()), |bytes: &[u8]| {
    let Ok(review) = within_factor(bytes, 128, || read_review(bytes)) else {
        return;
    };
    let answer = write_answer(&review.uid, Verdict::forbid("no".to_owned()));
    assert_eq!(answer["response"]["uid"], review.uid.as_str());
    assert_eq!(review.request["uid"], review.uid.as_str());
    FACTS.with(|facts| within_factor(bytes, 256, || fuzzing::check(facts, &review.request)));
});
