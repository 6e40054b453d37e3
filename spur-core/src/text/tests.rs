//! Tests of properties that every language of this module has.
//!
//! No text makes a parser panic. A value that was read is printed as a text that reads as the same value, by
//! `FromStr` and by serde.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

/// Checks that a text that reads as a `T` is printed and read back as the same value; true if it reads as a
/// `T`.
fn canonical<T>(text: &str) -> bool
where
    T: FromStr<Err = ParseError> + Display + Debug + PartialEq + Serialize + DeserializeOwned,
{
    match text.parse::<T>() {
        Ok(value) => {
            let shown = value.to_string();
            assert_eq!(shown.parse::<T>().as_ref(), Ok(&value), "{text} is shown as {shown}");
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value, "{text} is serialized as {json}");
            true
        }
        Err(error) => {
            assert!(!error.problem.is_empty() && !error.help.is_empty(), "{error}");
            false
        }
    }
}

/// Number of the languages that accept `text`, each checked with [`canonical`].
fn read_by_all(text: &str) -> usize {
    let read = [
        canonical::<address::HostPort>(text),
        canonical::<array::ArraySpec>(text),
        canonical::<array::TaskSet>(text),
        canonical::<dependency::Dependency>(text),
        canonical::<exit::ExitCode>(text),
        canonical::<features::FeatureExpr>(text),
        canonical::<gather::Gather>(text),
        canonical::<gather::HetGather>(text),
        canonical::<gather::Latency>(text),
        canonical::<gather::LinkSpeed>(text),
        canonical::<gather::NetworkNeed>(text),
        canonical::<gather::Placement>(text),
        canonical::<gather::Switches>(text),
        canonical::<gres::GresList>(text),
        canonical::<gres::GresSpec>(text),
        canonical::<hostlist::HostExpr>(text),
        canonical::<hostlist::HostList>(text),
        canonical::<license::LicenseList>(text),
        canonical::<memory::MemoryMb>(text),
        canonical::<nodes::NodeCount>(text),
        canonical::<pattern::FilePattern>(text),
        canonical::<signal::Signal>(text),
        canonical::<signal::WarnSignal>(text),
        canonical::<time::Seconds>(text),
        canonical::<time::TimeLimit>(text),
        canonical::<time::When>(text),
        canonical::<tres::Tres>(text),
        canonical::<tres::TresKind>(text),
    ];
    read.into_iter().filter(|&read| read).count()
}

#[test]
fn small_texts_are_read_by_many() {
    assert!(read_by_all("4") >= 10);
    assert!(read_by_all("node") >= 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_text_is_read_canonically_or_refused(text in "\\PC{0,24}") {
        read_by_all(&text);
    }

    #[test]
    fn any_punctuation_is_read_canonically_or_refused(text in "[a-cnKG0-3:,@*%?{}()&|_+./=\\[\\] -]{0,16}") {
        read_by_all(&text);
    }

    #[test]
    fn any_arrangement_of_words_is_read_canonically_or_refused(
        words in prop::collection::vec(prop::sample::select(vec![
            "must", "prefer", "afterok", "after", "singleton", "now", "noon", "today", "tomorrow", "switch", "gres/",
            "gpu", "cpu", "mem", "bw", "latency", "TERM", "RTMIN", "B", "R", "leaf", "n", "a", "-1", "1", "2", "04",
            "16", "2027-02-28", "12/31", ":", ",", "?", "@", "*", "%", "+", "-", "_", "=", "[", "]", "{", "}", "(",
            ")", "&", "|", ".", "T", "G", "K", "us", "pm", " ",
        ]), 0..8))
    {
        read_by_all(&words.concat());
    }
}
