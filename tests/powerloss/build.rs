//! Compiles the recorder, a shared object that is preloaded into the processes under test.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=src/recorder.c");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let compiler = cc::Build::new().opt_level(2).pic(true).get_compiler();
    let mut command = compiler.to_command();
    command.args([
        "-shared",
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-U_FORTIFY_SOURCE",
        "src/recorder.c",
        "-ldl",
        "-o",
    ]);
    command.arg(Path::new(&out).join("recorder.so"));
    let status = command.status().expect("the C compiler can be started");
    assert!(status.success(), "{command:?} failed");
}
