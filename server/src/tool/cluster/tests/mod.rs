//! Replicas in one process, joined by links that are cut and made anew.

mod calls;
mod catalogue;
mod extensions;
mod frames;
mod harness;
mod hub_moves;
mod links;
