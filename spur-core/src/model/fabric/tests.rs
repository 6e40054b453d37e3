//! Fabrics as tables: what is built, what is shown, what is refused.
