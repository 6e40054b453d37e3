//! What this node has.
