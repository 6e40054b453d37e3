//! Whole-system tests of Spur; each folder beside `src` is a test of its own:
//!
//! `scripts` (what the controller decides), `sim` (a whole cluster in one thread), `journal` (old journals are read for ever),
//! `e2e` (real daemons), `tidy` (what a machine can check of the code), and the crate `powerloss`.
