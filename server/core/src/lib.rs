//! The agent loop without I/O: it decides everything and does nothing.
//!
//! # How to drive it
//!
//! A run is a journal of events. [`run::machine::Machine`] is the fold of that journal, and decides what comes next.
//! Whoever drives it repeats four steps, in this order:
//!
//! 1. Call [`handle`](run::machine::Machine::handle) with an input and the time. It returns records and effects, or a
//!    refusal that changes nothing.
//! 2. Make the records durable. If that fails, drop the machine and read the journal again.
//! 3. Show the records to subscribers.
//! 4. Perform the effects. The result of each comes back as an input.
//!
//! After a restart, fold the journal with [`replay`](run::machine::Machine::replay) and handle
//! [`Input::Recovered`](run::input::Input::Recovered): it returns the effects that are still to be done. When
//! [`deadline`](run::machine::Machine::deadline) passes, tell the machine the time.
//!
//! Nothing here reads a clock, awaits, or draws a random number. The time is an argument, and chance comes from a seed in
//! the first event.
//!
//! # Glossary
//!
//! Each word has one meaning.
//!
//! | word | meaning |
//! |---|---|
//! | run | one prompt, and everything done to answer it |
//! | session | a conversation: the entries that its runs leave behind. At most one of its runs is live |
//! | entry | one message of a session, or a place where its context was made smaller |
//! | input | something that happened, told to the machine |
//! | event | a durable fact about a run, in the stored format. A record is an event with its number, time and status |
//! | effect | I/O that the machine asks for |
//! | phase | what a run is doing now |
//! | instruction | what the planner decided to do next |
//! | step | one instruction of a run that is moved by hand, one call of `Step` at a time |
//! | model call | one answer of a model, with all its attempts |
//! | attempt | one try of a model call or of a tool call, counted from 1 |
//! | slot | the place of a tool call in its run: which model call asked for it, and as which of its calls |
//! | lease | the secret of one attempt of a tool call. The host returns it with the result |
//! | tool host | a process that runs tools. It connects to the server |
//! | fleet | all tool hosts, and the calls that they have |
//! | credit | how many more calls a host accepts now |
//! | effect class | what it means to run a call of a tool twice |
//! | in doubt | nobody knows whether a call took effect |
//! | epoch | the number of a start of the server. A writer with an old epoch writes nothing |
//! | park | to end a run's task while it waits for something outside, and free its memory |
//! | compaction | making the context that the model reads smaller |

pub mod id;
pub mod limits;
pub mod time;

pub mod agent;
pub mod delta;
pub mod entry;
pub mod error;
pub mod extension;
pub mod message;
pub mod model;
pub mod model_traits;
pub mod outcome;
pub mod policy;
pub mod question;
pub mod title;
pub mod tool;
pub mod trace;

pub mod context;
pub mod retry;

pub mod run;

pub mod host;
