//! Services for MPI programs of a step (`--mpi`).

use std::str::FromStr;

/// Interface by which an MPI library learns its rank and the addresses of the other tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mpi {
    /// PMI-1 and PMI-2.
    Pmi2,
    /// PMIx, by the library installed on the nodes.
    Pmix,
    /// No service: every task is alone.
    None,
    /// Request for the list of interfaces.
    List,
}

impl Mpi {
    /// Output of `--mpi=list`.
    pub(super) const LIST: &str = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n";

    /// Returns the requested interface, or the controller's default (`[controller] mpi_default`).
    pub(super) fn chosen(asked: &str, default: &str) -> Result<Mpi, InvalidMpi> {
        if asked.is_empty() { default.parse() } else { asked.parse() }
    }

    /// Returns the interface's name in messages to nodes.
    pub(super) fn name(self) -> &'static str {
        match self {
            Mpi::Pmi2 => "pmi2",
            Mpi::Pmix => "pmix",
            Mpi::None | Mpi::List => "none",
        }
    }
}

/// An unknown interface, in Slurm's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid MPI type '{0}', --mpi=list for acceptable types")]
pub(super) struct InvalidMpi(String);

impl FromStr for Mpi {
    type Err = InvalidMpi;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            // A program without a server would start each task alone, without an error, so PMI is the
            // default.
            "" | "pmi2" => Mpi::Pmi2,
            // Slurm has one plugin per version of the library; in Spur, the library handles its version
            // itself.
            "pmix" | "pmix_v2" | "pmix_v3" | "pmix_v4" | "pmix_v5" => Mpi::Pmix,
            "none" => Mpi::None,
            "list" => Mpi::List,
            other => return Err(InvalidMpi(other.to_owned())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_served_unless_somebody_says_otherwise() {
        assert_eq!("".parse(), Ok(Mpi::Pmi2));
        assert_eq!("none".parse(), Ok(Mpi::None));
        for (asked, default, wanted) in [
            ("", "", Mpi::Pmi2),
            ("", "pmix", Mpi::Pmix),
            ("", "none", Mpi::None),
            ("pmi2", "pmix", Mpi::Pmi2),
        ] {
            assert_eq!(Mpi::chosen(asked, default), Ok(wanted), "{asked} {default}");
        }
        assert_eq!("pmix_v4".parse(), Ok(Mpi::Pmix));
        let refused = "foo".parse::<Mpi>().unwrap_err().to_string();
        assert_eq!(refused, "Invalid MPI type 'foo', --mpi=list for acceptable types");
    }
}
