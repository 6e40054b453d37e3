//! Spur's protocol: the generated messages and services, and everything else that both ends share. This
//! includes addresses, limits, keys, tokens, refusals, and the conversion between messages and the core's
//! types.
//!
//! Beside the wire: the execution of the site's programs, which both daemons use.

pub mod arrival;
pub mod auth;
pub mod channel;
pub mod client;
mod codec;
pub mod convert;
pub mod identity;
pub mod keys;
pub mod listen;
pub mod lists;
pub mod program;
pub mod refusal;
pub mod shares;
pub mod tls;

/// The services and messages of `spur/v1/*.proto` as a serialized `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/spur.bin"));

/// Messages and services generated from `spur/v1/*.proto`, which document them.
#[expect(
    missing_docs,
    clippy::all,
    clippy::allow_attributes,
    clippy::too_many_lines,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("spur.v1");
}
