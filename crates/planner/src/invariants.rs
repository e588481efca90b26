//! Checks that hold for every plan, whatever the snapshot; run in all tests.
