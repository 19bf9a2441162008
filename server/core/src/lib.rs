//! The agent loop without I/O: it decides everything and does nothing.
//!
//! # How to drive it
//!
//! A run is a journal of events. [`run::machine::Machine`] is the fold of that journal, and decides what comes next.
//! The driver repeats four steps, in this order:
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
//! Each word has one meaning. A word that is about two subjects has a row for each.
//!
//! ## Runs
//!
//! | word | meaning |
//! |---|---|
//! | tenant | the owner of sessions, runs, rules and hosts. Tenants share nothing |
//! | agent | a named set of settings in the configuration |
//! | spec | the settings of one run, resolved from its agent and its request. Fixed when the run starts |
//! | run | one prompt, and everything done to answer it |
//! | session | a conversation: the entries that its runs leave behind. At most one of its runs is live |
//! | entry | one message of a session, or one compaction |
//! | message | a text of a user, a response of a model, or the results of tool calls, as a model reads it |
//! | turn | a model call and the tool calls of its response. The contract gives it an id |
//! | waiting message | a message for a run that enters the session later. Its event is `MessageHeld` |
//! | phase | the current activity of a run |
//! | loop phase | the place of a run in its outer loop (plan, execute, observe), as events show it |
//! | process state | the place of a run in its inner loop (the call of a model or tool under way), as events show it |
//! | step | one instruction of a run that is moved by hand, one `Step` at a time |
//! | owner | the process that may write to a run's journal |
//! | epoch | a number that rises with each start of a server and each claim of a run. A writer with an old epoch writes nothing |
//! | claim of a run | an owner's statement that the run is its own. Each one has a new epoch |
//! | park | to end a run's task while the run waits for something outside, and free its memory |
//!
//! ## Replicas
//!
//! | word | meaning |
//! |---|---|
//! | replica | one start of a server, beside others that use the same database |
//! | RPC | one request of the contract, with its response or stream. It is never named a call: calls are tool calls and model calls |
//! | owner number | the number of a replica. It is never used again |
//! | shard | a part of all sessions, which has one owner at a time |
//! | claim of a shard | a replica's statement that the shard is its own |
//! | term | the number of claims of a shard so far. It rises with every claim, whoever claims |
//! | beat | a counter that a replica raises while it lives |
//! | hub | the replica that has the streams of all tool hosts: the owner of the first shard |
//! | link | the connection of a replica to another one. A tool link is a stream over it, from an owner of runs to the hub |
//! | owner's lease | the time for which a replica may trust that nobody has taken its shards. A plain lease is a tool call's |
//! | suspect | a replica whose counter stands still for longer than any lease lasts |
//! | fence | to mark a replica, so that nothing that it writes is accepted any more |
//! | share | the number of shards that a replica should have |
//! | busy shard | a shard with work in its owner's process that another replica could not go on with: a tool call |
//! | drain of a replica | to claim no shards and give away its own, before its end |
//! | write lane | a connection on which a replica writes, one statement after the other |
//!
//! ## The machine
//!
//! | word | meaning |
//! |---|---|
//! | input | something that happened, told to the machine. Only stored names, such as `input_held`, say it of messages |
//! | event | a durable fact about a run, in the stored format |
//! | record | an event with its number, time and status |
//! | journal | all records of a run, in order |
//! | effect | I/O that the machine requests |
//! | refusal | an input that the machine does not accept. It changes nothing |
//! | transition | the decision on one input: records and effects |
//! | situation | the reason why a run needs an instruction |
//! | directed run | a run with a planner of its own, or one that is stepped |
//! | planner | decides what a run does next. The built-in one is the loop of model calls and tool calls |
//! | instruction | a decision of the planner |
//! | deadline | the time at which something is given up |
//! | cancel | to stop a model call, a tool call or another effect before its end. A run is aborted |
//!
//! ## Subscribers
//!
//! | word | meaning |
//! |---|---|
//! | subscriber | a client that receives a run's events: first those in the journal, then live ones |
//! | feed | the live events of one run, for its subscribers |
//! | delta | a piece of a model's response while it arrives. Deltas are not durable |
//! | snapshot | the response of a model so far, for a subscriber that joins in the middle |
//! | watcher | a client that follows a list of runs and gets the newest row of each, not its events |
//!
//! ## Models
//!
//! | word | meaning |
//! |---|---|
//! | model call | one response of a model, with all its attempts |
//! | attempt of a model call | one request to its provider. Counted from 1 |
//! | try | an attempt of a tool call that counts: it was not rejected as busy, and did not end with an answered question |
//! | retry | a further attempt after a failed one |
//! | backoff | the wait before a retry |
//! | provider | a service that runs models, as the configuration names it |
//! | provider state | data that a provider attaches to a message and wants back unchanged |
//! | reasoning | text that a model writes before its response, for itself |
//! | context | everything that a model reads in one call |
//! | compaction | making the context smaller: older entries are hidden, cut or summarized |
//!
//! ## Tools
//!
//! | word | meaning |
//! |---|---|
//! | tool call | one use of a tool that a model requests, with all its attempts |
//! | slot | the place of a tool call in its run: the number of the model call, and the position in it |
//! | round | the tool calls of one response of a model |
//! | propose | to record that a tool call may run, at once or after an approval |
//! | settle | to give a tool call its one result, from its host or otherwise |
//! | effect class | the effect of running a call of a tool twice |
//! | in doubt | nobody knows if a call took effect |
//! | terms | a tool's name, effect class, approval, runtime and schema. Hosts of one tool declare the same. Not a shard's term |
//! | tool host | a process that runs tools. It connects to the server |
//! | fleet | all tool hosts, and the calls that they have |
//! | connection | one stream of a tool host |
//! | credit | the number of further calls that a host accepts |
//! | room | of a host: credit that is left, within the bounds of the tool and the host |
//! | seek | to look for a host with room for a call |
//! | grant | to reserve room on a host for a call |
//! | offer | to send a granted call to its host. The host confirms it when it begins |
//! | attempt of a tool call | one offer to a host. Counted from 1 |
//! | lease | the secret of one attempt of a tool call. The host returns it with the result |
//! | heartbeat | a frame by which a host says that it lives, and which calls it runs |
//! | grace period | the time that a disconnected host has to reconnect before its calls are lost |
//! | claim of a call | a reconnecting host's statement that it has the call |
//! | drain of a tool host | to get no new calls and finish those that it has, before its end |
//! | reclaim | a message of a recovered run that a host may have its call |
//! | checkpoint | progress that a call saves for its next attempt |
//! | result | the outcome of a tool call: output or failure |
//! | acknowledgement | the server's frame which tells a host that a result is dealt with. Until then the host keeps the result |
//! | runtime | a place that a tool runs in, such as a browser. A host opens it for one run |
//!
//! ## People and rules
//!
//! | word | meaning |
//! |---|---|
//! | question | something put to people: an approval, a call in doubt, a text, a choice, a form or a visit to a link. Never a request to a model or an extension |
//! | ask | to put a question to people. A program requests, reads or calls |
//! | answer | a person's reply to a question |
//! | approval | a question: may a tool call run? |
//! | decision | an answer as the journal keeps it. It may also be made by time, or by the end of the run |
//! | rule | allows, asks about or denies tool calls by tool and arguments |
//! | policy | the rules that apply to a run, and its bounds for tool calls |
//!
//! ## Stores and memory
//!
//! | word | meaning |
//! |---|---|
//! | queue | those that wait for the same thing, in the order in which they get it |
//! | batch | writes that share one commit |
//! | lock | a right that one task has at a time. Others wait for it |
//! | cache | a copy in memory of something that can be read or computed again |
//!
//! ## Extensions
//!
//! | word | meaning |
//! |---|---|
//! | extension | a planner, hook or context source, in the server's program or on a tool host |
//! | hook | is called at points around a run and its tool calls, and may change or stop them |
//! | context source | adds texts to the context before a run's first model call |
//! | declaration | the properties of a tool or extension, as its author states them |

#![warn(missing_docs)]

pub mod id;
pub mod limits;
pub mod text;
pub mod time;

pub mod agent;
pub mod blob;
pub mod entry;
pub mod extension;
pub mod message;
pub mod model;
pub mod outcome;
pub mod policy;
pub mod question;
pub mod todo;
pub mod tool;
pub mod trace;

pub mod context;

pub mod run;

pub mod host;

pub mod cluster;
