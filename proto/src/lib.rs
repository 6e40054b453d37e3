//! Spur's wire: the generated messages and services, and the one door between them and the core's types.

/// Generated from `spur/v1/*.proto`; documented there.
#[expect(missing_docs, clippy::all, unreachable_pub, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("spur.v1");
}
