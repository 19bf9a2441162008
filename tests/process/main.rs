//! Behaviour of real processes over real sockets: the command as it is built, hosts in every language, and what is
//! left when one of them is killed.
//!
//! The output of every process is part of its test's output.

mod abort;
mod blobs;
mod busy_session;
mod callers;
mod conversation;
mod database_failover;
mod every_event;
mod extensions;
mod golden;
mod grpcurl;
mod guide;
mod host_lost;
mod hostile;
mod hosts;
mod hosts_tls;
mod load;
mod need_input;
mod other_models;
mod parked;
mod readmes;
mod reload;
mod replicas;
mod resumed;
mod scenarios;
mod server_killed;
mod shutdown;
mod store_copy;
mod store_faults;
mod support;
mod vendors;
mod walk_through;
mod watching;
