//! The engine, and a server that is embedded, over stores, models and hosts of the tests' own.

mod blind_starts;
mod embed;
mod executors;
mod failing_store;
mod held_store;
mod owned;
mod recovery;
mod retention;
mod seeks;
mod support;
mod watched;
