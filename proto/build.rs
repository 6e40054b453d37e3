//! Compiles the `.proto` files without a system `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=spur");
    let files = ["controller", "agent", "step", "identity"].map(|name| format!("spur/v1/{name}.proto"));
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
