//! Compiles the libraries that are preloaded into the processes under test: the recorder and the clock.

use std::env;
use std::path::Path;

fn main() {
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let compiler = cc::Build::new().opt_level(2).pic(true).get_compiler();
    for name in ["recorder", "wall"] {
        println!("cargo::rerun-if-changed=src/{name}.c");
        let mut command = compiler.to_command();
        command.args(["-shared", "-std=gnu11", "-Wall", "-Wextra", "-U_FORTIFY_SOURCE"]);
        command.arg(format!("src/{name}.c")).args(["-ldl", "-o"]);
        command.arg(Path::new(&out).join(format!("{name}.so")));
        let status = command.status().expect("the C compiler can be started");
        assert!(status.success(), "{command:?} failed");
    }
}
