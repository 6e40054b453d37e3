//! Refusals of the core, as gRPC statuses.

use spur_core::controller::Reject;
use tonic::{Code, Status};

use super::BadField;
use crate::refusal;
use crate::v1::Error;

/// The error code of a request with a field that cannot be read.
pub const INVALID: &str = "ESLURM_INVALID_REQUEST";

/// Encodes a refusal as an error.
pub fn error(reject: &Reject) -> Error {
    Error::new(reject.code(), reject.to_string())
}

/// Encodes a refusal as the status of a call.
pub fn status(reject: &Reject) -> Status {
    let code = match reject {
        Reject::InvalidJobId
        | Reject::InvalidPartition { .. }
        | Reject::InvalidStep { .. }
        | Reject::UnknownNode(_)
        | Reject::InvalidReservation(_)
        | Reject::Unknown => Code::NotFound,
        Reject::AccessDenied
        | Reject::AccountsDenied(_)
        | Reject::PartitionForbidden(_)
        | Reject::ReservationForbidden(_) => Code::PermissionDenied,
        Reject::AlreadyDone
        | Reject::NotPending
        | Reject::Pending
        | Reject::NotRequeueable
        | Reject::Ending
        | Reject::NotSuspended
        | Reject::Suspended
        | Reject::NotWholeHetJob(_)
        | Reject::StepBusy
        | Reject::NodesBusy(_)
        | Reject::ReservationBusy(_)
        | Reject::PartitionInUse(_)
        | Reject::Held
        | Reject::NotRunning
        | Reject::ReservationBegun
        | Reject::ReservationOverlap(_)
        | Reject::TooManyJobs(_)
        | Reject::OverLimit { .. }
        | Reject::PartitionUnavailable(_)
        | Reject::Stale(_)
        | Reject::Accounts(_)
        | Reject::NothingToDo(_)
        | Reject::Undecided
        | Reject::OldCopy(_)
        | Reject::NeedsFeatureLevel(_)
        | Reject::InvalidFeatureLevel { .. }
        | Reject::NodeTooOld { .. }
        | Reject::KeptByHost { .. }
        | Reject::ForeignNode { .. } => Code::FailedPrecondition,
        Reject::NoDefaultPartition
        | Reject::InvalidQos(_)
        | Reject::InvalidAccount(_)
        | Reject::InvalidWckey(_)
        | Reject::InvalidNodeCount(_)
        | Reject::InvalidTimeLimit(_)
        | Reject::InvalidTimeMin(_)
        | Reject::NodeConfigUnavailable(_)
        | Reject::InvalidFeature(_)
        | Reject::InvalidPrefer(_)
        | Reject::InvalidGres(_)
        | Reject::InvalidLicense(_)
        | Reject::TopologyUnavailable(_)
        | Reject::InvalidNodeName(_)
        | Reject::InvalidNodeState(_)
        | Reject::InvalidTime(_)
        | Reject::Dependency(_)
        | Reject::CircularDependency
        | Reject::InvalidArray(_)
        | Reject::Invalid(_)
        | Reject::StepTooLarge(_)
        | Reject::StepTooManyCpus(_)
        | Reject::StepTooMuchMemory(_)
        | Reject::InvalidPolicy(_) => Code::InvalidArgument,
    };
    refusal::status(code, &error(reject))
}

/// Encodes an unreadable field as the status of a call.
pub fn bad_field(bad: &BadField) -> Status {
    refusal::status(Code::InvalidArgument, &bad_field_error(bad))
}

/// Encodes an unreadable field as an error.
pub fn bad_field_error(bad: &BadField) -> Error {
    Error::new(INVALID, bad.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_and_sentence() {
        let status = status(&Reject::AccessDenied);
        assert_eq!(status.code(), Code::PermissionDenied);
        let error = refusal::error_of(&status).unwrap();
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("ESLURM_ACCESS_DENIED", "Access/permission denied")
        );
    }
}
