//! Ordinary programs under the recorder, and the files that each cut leaves.

use std::fs;
use std::path::{Path, PathBuf};

use spur_powerloss::{Image, Loss, Recorder, Trace, TraceError};

/// Runs a shell script in an empty directory and returns its records.
fn record(name: &str, script: &str) -> Trace {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&place);
    let root = place.join("root");
    fs::create_dir_all(&root).expect("the build directory can be written");
    let recorder = Recorder::new(&root, &place.join("log")).expect("the directory is empty");
    let status =
        recorder.command("sh").arg("-ec").arg(script).current_dir(&root).status().expect("there is a shell");
    assert!(status.success(), "{script}: {status}");
    recorder.trace().expect("the records can be read")
}

/// The files after the record at which the script wrote `mark`, as `name=content` words.
fn at(trace: &Trace, mark: &str, loss: Loss) -> String {
    let said = |bytes: &[u8]| bytes.trim_ascii_end() == mark.as_bytes();
    let (number, _) = trace.marks().find(|(_, bytes)| said(bytes)).expect("the mark was made");
    words(&trace.cut(number + 1, loss).expect("all files were created under the recorder"))
}

fn words(image: &Image) -> String {
    let content = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\n', ".").replace('\0', "0");
    let word = |(name, bytes): (&PathBuf, &Vec<u8>)| format!("{}={}", name.display(), content(bytes));
    image.files.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_not_synced_is_lost() {
    let trace = record(
        "unsynced",
        "say() { echo $1 | cat >/dev/null; }
         echo one >a; say written
         sync a; say file
         sync .; say name
         echo two >>a; say appended
         : >a; echo three >a; say replaced",
    );
    trace.check_complete().unwrap();
    for (mark, unsynced, nothing) in [
        ("written", "", "a=one."),
        ("file", "", "a=one."),
        ("name", "a=one.", "a=one."),
        ("appended", "a=one.", "a=one.two."),
        ("replaced", "a=one.", "a=three."),
    ] {
        assert_eq!(at(&trace, mark, Loss::Unsynced), unsynced, "{mark}");
        assert_eq!(at(&trace, mark, Loss::Nothing), nothing, "{mark}");
    }
}

#[test]
fn names_last_when_their_directory_is_synced() {
    let trace = record(
        "names",
        "say() { echo $1 | cat >/dev/null; }
         mkdir d; echo one >d/a; sync d/a d; say inner
         sync .; say outer
         mv d/a b; say moved
         sync .; say there
         mv d e; rm b; say gone
         sync .; say synced",
    );
    trace.check_complete().unwrap();
    for (mark, unsynced) in [
        ("inner", ""),
        ("outer", "d/a=one."),
        ("moved", "d/a=one."),
        ("there", "b=one."),
        ("gone", "b=one."),
        ("synced", ""),
    ] {
        assert_eq!(at(&trace, mark, Loss::Unsynced), unsynced, "{mark}");
    }
}

#[test]
fn a_part_of_what_is_not_synced_may_be_there() {
    let script = "head -c 4096 /dev/zero | tr '\\0' x | dd of=a bs=4096 2>/dev/null; sync a; sync .
                  head -c 4096 /dev/zero | tr '\\0' y | dd of=a conv=notrunc bs=4096 2>/dev/null";
    let trace = record("part", script);
    trace.check_complete().unwrap();
    let mut seen = [false; 9];
    for seed in 0..200 {
        let cut = trace.cut(trace.records().len(), Loss::Some { seed }).unwrap();
        assert_eq!(cut, trace.cut(trace.records().len(), Loss::Some { seed }).unwrap());
        let content = &cut.files[Path::new("a")];
        assert_eq!(content.len(), 4096);
        for sector in content.chunks(512) {
            assert!(sector.iter().all(|byte| byte == &sector[0]), "a sector is written whole");
        }
        seen[content.iter().filter(|&&byte| byte == b'y').count() / 512] = true;
    }
    assert!(seen.iter().filter(|&&seen| seen).count() > 5, "{seen:?}");
}

#[test]
fn a_change_behind_the_recorder_is_noticed() {
    let trace = record("blind", "echo one >a; env -u LD_PRELOAD sh -c 'echo two >a'");
    let missed = trace.check_complete().unwrap_err();
    assert!(matches!(&missed, TraceError::Blind { path } if path.ends_with("root/a")), "{missed}");
}

#[test]
fn children_and_marks_from_outside_are_in_one_order() {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let _ = fs::remove_dir_all(&place);
    let root = place.join("root");
    fs::create_dir_all(&root).unwrap();
    let recorder = Recorder::new(&root, &place.join("log")).unwrap();
    for (file, mark) in [("a", "first"), ("b", "second")] {
        let script = format!("sh -c 'echo {file} >{file}'; sync {file}; sync .");
        assert!(recorder.command("sh").arg("-ec").arg(script).current_dir(&root).status().unwrap().success());
        recorder.mark(mark.as_bytes()).unwrap();
    }
    let trace = recorder.trace().unwrap();
    trace.check_complete().unwrap();
    assert_eq!(at(&trace, "first", Loss::Unsynced), "a=a.");
    assert_eq!(at(&trace, "second", Loss::Unsynced), "a=a. b=b.");
    assert!(Recorder::new(&root, &place.join("log")).is_err(), "the directory is not empty any more");
}
