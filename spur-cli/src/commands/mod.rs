//! The commands, one room each. A command is a function of a [`crate::session::Session`] and its words that
//! gives the exit code.

mod allocation;
mod called;
pub mod config;
pub mod demo;
pub mod discover;
mod gres;
pub mod import;
pub mod keygen;
pub mod links;
pub mod listing;
mod login;
pub mod moment;
pub mod moving;
pub mod pages;
mod qos;
pub mod query;
pub mod sacct;
pub mod sacctmgr;
pub mod salloc;
pub mod sbatch;
pub mod scancel;
pub mod scontrol;
pub mod sdiag;
pub mod seff;
mod signals;
pub mod sim;
pub mod sinfo;
pub mod sprio;
pub mod squeue;
pub mod sreport;
pub mod srun;
pub mod sshare;
pub mod sstat;
mod verbose;
pub mod watch;
pub mod why;
