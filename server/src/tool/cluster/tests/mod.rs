//! Replicas in one process, joined by links that are cut and made anew.

mod calls;
mod catalogue;
mod claims;
mod extensions;
mod frames;
mod harness;
mod hub_moves;
mod links;
