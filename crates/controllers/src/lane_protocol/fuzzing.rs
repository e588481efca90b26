//! Any bytes as what a lane's process, or its Pod, sends to the hub, and the other way round: for a target in `fuzz/`, and as a test over its first inputs. The module
//! exists only for tests and under `cfg(fuzzing)`, which cargo-fuzz sets. The messages stay private.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

use futures::executor::block_on;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::dial_channel::{DialAnswer, DialRequest};
use super::messages::{FromLane, LONGEST, ToLane, decode, encode, read_frame};
use super::pod_connection::{FromPod, LONGEST_OWN, Part, PodHello, ToPod, read_part};

pub fn check(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    match first % 7 {
        0 => check_frames::<FromLane>(bytes),
        1 => check_frames::<ToLane>(bytes),
        2 => check_parts::<FromPod>(bytes),
        3 => check_parts::<ToPod>(bytes),
        4 => check_message::<DialRequest>(bytes),
        5 => check_message::<DialAnswer>(bytes),
        _ => check_message::<PodHello>(bytes),
    }
}

/// Reads frames until one is refused. No frame takes more bytes than there are.
fn check_frames<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    let mut line = bytes;
    let mut read = 0;
    loop {
        match block_on(read_frame::<T>(&mut line)) {
            Ok(Some((frame, length))) => {
                read += length + 4;
                assert!(length <= LONGEST as usize && read <= bytes.len());
                check_round_trip(&frame);
            }
            Ok(None) => {
                assert_eq!(read, bytes.len());
                return;
            }
            Err(error) => {
                assert!(error.to_string().len() < 200, "an error quotes its frame");
                return;
            }
        }
    }
}

fn check_parts<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    let mut line = bytes;
    while let Ok(Some(part)) = block_on(read_part::<T>(&mut line)) {
        match part {
            Part::Own(message) => check_round_trip(&message),
            Part::Lane(frame) => {
                assert!(frame.len() <= LONGEST as usize);
                check_message::<FromLane>(&frame);
            }
            Part::Piece { bytes, .. } => assert!(bytes.len() <= LONGEST_OWN as usize),
        }
    }
}

fn check_message<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    if let Ok(message) = decode::<T>(bytes) {
        check_round_trip(&message);
    }
}

/// Writes a message and reads it back.
fn check_round_trip<T: DeserializeOwned + Serialize>(message: &T) {
    let Ok(written) = encode(message) else { return };
    let content = written.get(4..).unwrap();
    if serde_json::from_slice(content).is_ok_and(|value| has_fraction(&value)) {
        // Serde reads some fractions as a neighbour of the written number.
        return;
    }
    let again: T = decode(content).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(content)));
    let again = encode(&again).unwrap();
    assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&written));
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(values) => values.iter().any(has_fraction),
        Value::Object(values) => values.values().any(has_fraction),
        _ => false,
    }
}

/// Returns the first inputs: a message of each form.
pub fn seeds() -> Vec<Vec<u8>> {
    let reference = r#"{"kind":"GitRepository","namespace":"a","name":"b","from":"c"}"#;
    let from_lane = [
        r#"{"Pong":7}"#.to_owned(),
        r#""Works""#.to_owned(),
        r#"{"Left":{"namespace":"a"}}"#.to_owned(),
        r#"{"Wants":{"room":"Fetches","bytes":1,"besides":2,"waits":true}}"#.to_owned(),
        r#"{"GivesBack":{"room":"Trees","bytes":1}}"#.to_owned(),
        r#"{"Question":{"number":1,"question":{"Token":{"refused":false}}}}"#.to_owned(),
        r#"{"Question":{"number":1,"question":{"Endings":["a","b"]}}}"#.to_owned(),
        format!(r#"{{"Question":{{"number":1,"question":{{"Loan":{reference}}}}}}}"#),
        r#"{"Question":{"number":2,"question":{"Owner":{"namespace":"a","name":"b","objects":[],"cluster":null}}}}"#.to_owned(),
        r#"{"Listens":{"kind":"Kustomization","namespace":"a","name":"b","to":[["GitRepository","a","c"]]}}"#.to_owned(),
        r#"{"Door":{"namespace":"a","name":"b","path":"/hook/x"}}"#.to_owned(),
        r#"{"Hooked":{"number":1,"verdict":"Done"}}"#.to_owned(),
        r#"{"Gaps":["memory"]}"#.to_owned(),
        r#"{"Spans":[]}"#.to_owned(),
        r#"{"Event":{"kind":"Kustomization","namespace":"a","name":"b","event":{"kind":"Normal","reason":"r","message":"m","annotations":{},"place":{}}}}"#.to_owned(),
    ];
    let to_lane = [
        r#"{"Namespace":{"name":"a","facts":null}}"#,
        r#"{"Changed":{"kind":"Kustomization","object":{"metadata":{"name":"a"}}}}"#,
        r#"{"Gone":{"kind":"Kustomization","namespace":"a","name":"b","revision":"7"}}"#,
        r#""Synced""#,
        r#"{"Wake":{"kind":"Kustomization","namespace":"a","name":"b"}}"#,
        r#"{"Hook":{"number":1,"namespace":"a","name":"b","delivery":{"path":"/hook/x","headers":{"x-signature":"sha1=00"},"body":"e30="}}}"#,
        r#"{"Answer":{"number":1,"answer":{"Token":{"Err":"no"}}}}"#,
        r#"{"Answer":{"number":1,"answer":{"Owner":null}}}"#,
        r#"{"Granted":{"room":"Fetches","bytes":7}}"#,
        r#"{"WantedBack":"Fetches"}"#,
        r#"{"Ping":1}"#,
        r#""Stop""#,
    ];
    let from_pod = [
        r#"{"Alive":1}"#.to_owned(),
        r#"{"Missing":{"number":1}}"#.to_owned(),
        format!(r#"{{"Wants":{{"number":1,"reference":{reference},"digest":"sha256:00"}}}}"#),
        r#"{"Ended":{"Exited":1}}"#.to_owned(),
    ];
    let to_pod = [r#"{"Heard":1}"#, r#"{"Open":{"number":1,"path":"/a","most":7}}"#];
    let dials = [
        r#"{"number":1,"target":"Server"}"#.to_owned(),
        r#"{"number":1,"target":{"Endpoint":{"endpoint":{"scheme":"Https","host":"a","port":443},"behind":null,"patience":{"secs":1,"nanos":0}}}}"#.to_owned(),
        format!(r#"{{"number":1,"target":{{"Artifact":{{"reference":{reference},"digest":"x"}}}}}}"#),
    ];
    let frame = |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
    let part = |kind: u8, content: &[u8]| {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [length.as_slice(), &[kind], content].concat()
    };
    let mut seeds = Vec::new();
    seeds.extend(from_lane.iter().map(|text| [vec![0], frame(text)].concat()));
    seeds.extend(to_lane.iter().map(|text| [vec![1], frame(text)].concat()));
    seeds.extend(from_pod.iter().map(|text| [vec![2], part(0, text.as_bytes())].concat()));
    seeds.push(
        [
            vec![2],
            part(1, br#"{"Pong":7}"#),
            part(2, b"\0\0\0\0\0\0\0\x07piece"),
            part(2, &[0; 8]),
        ]
        .concat(),
    );
    seeds.extend(to_pod.iter().map(|text| [vec![3], part(0, text.as_bytes())].concat()));
    seeds.extend(dials.iter().map(|text| [&[4], text.as_bytes()].concat()));
    seeds.push(br#"?{"number":1,"refusal":null}"#.iter().map(|byte| if *byte == b'?' { 5 } else { *byte }).collect());
    seeds.push([&[6], br#"{"version":"0.1.0","token":"t","folder":"/a"}"#.as_slice()].concat());
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_near_seed_inputs_survive_round_trip() {
        for seed in seeds() {
            for at in 0..seed.len() {
                check(&seed[..at]);
                for flip in [0, 0x01, 0x80, 0xff] {
                    let mut bytes = seed.clone();
                    bytes[at] ^= flip;
                    check(&bytes);
                }
            }
        }
    }
}
