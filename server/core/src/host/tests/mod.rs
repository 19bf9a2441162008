//! Behaviour of the fleet as scripts: what happens, and what comes of it as short lines.

mod bench;
mod calls;
mod connections;
mod frames;
mod instances;
mod pinned;
mod placement;
mod random;
