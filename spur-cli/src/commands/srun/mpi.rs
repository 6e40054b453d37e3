//! What serves the MPI programs of a step (`--mpi`).

use std::str::FromStr;

/// One of the ways in which an MPI library learns who and where its tasks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mpi {
    /// PMI-1 and PMI-2.
    Pmi2,
    /// PMIx, by the library that nodes have.
    Pmix,
    /// None: every task is alone.
    None,
    /// The question which there are.
    List,
}

impl Mpi {
    /// What `--mpi=list` prints.
    pub(super) const LIST: &str = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n";

    /// What was asked for, or, where nothing was, what the controller says (`[controller] mpi_default`).
    pub(super) fn chosen(asked: &str, default: &str) -> Result<Mpi, InvalidMpi> {
        if asked.is_empty() { default.parse() } else { asked.parse() }
    }

    /// As nodes know it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Mpi::Pmi2 => "pmi2",
            Mpi::Pmix => "pmix",
            Mpi::None | Mpi::List => "none",
        }
    }
}

/// A type that does not exist; in Slurm's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid MPI type '{0}', --mpi=list for acceptable types")]
pub(super) struct InvalidMpi(String);

impl FromStr for Mpi {
    type Err = InvalidMpi;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            // Programs that find no server start alone, each as the first of one, and nobody notices: so there is one.
            "" | "pmi2" => Mpi::Pmi2,
            // Slurm names a plugin for each version of the library; here the library itself knows.
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
